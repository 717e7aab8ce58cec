//! AWS credentials: keys from the configuration, or AWS's default credential chain.
//!
//! AWS's own library follows the chain (environment, profile, web identity, container, instance).
//! It uses our HTTP client, so that the program has only one TLS implementation.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use access::Secret;
use aws_config::Region;
use aws_config::default_provider::credentials::DefaultCredentialsChain;
use aws_config::provider_config::ProviderConfig;
use aws_credential_types::Credentials;
use aws_credential_types::provider::ProvideCredentials;
use domain::time::{Clock, Timestamp};
use tokio::sync::Mutex;

use super::http::{Http, read_bounded};

/// Temporary credentials are replaced this long before they expire.
const REFRESH_BEFORE_MS: i64 = 5 * 60 * 1_000;
/// Time limit for reading a key file or asking a metadata service.
const FETCH_LIMIT: Duration = Duration::from_secs(15);
/// Longest secret access key in a file.
const MAX_KEY_BYTES: u64 = 4_096;

/// No credentials were found, so nothing can be signed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no AWS credentials: {0}")]
pub(crate) struct NoCredentials(pub(crate) String);

/// Where credentials come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Keys {
        access_key_id: String,
        secret_access_key: KeyText,
        session_token: Option<Secret>,
    },
    /// AWS's default credential chain.
    Chain,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyText {
    Given(Secret),
    /// Read on first use, and again after AWS refused the key.
    File(PathBuf),
}

pub(crate) struct Keys {
    source: Source,
    /// The region in which the chain asks for tokens.
    region: String,
    http: Http,
    clock: Arc<dyn Clock>,
    cached: Mutex<Option<Credentials>>,
}

impl Keys {
    pub(crate) fn new(source: Source, region: String, http: Http, clock: Arc<dyn Clock>) -> Self {
        Self {
            source,
            region,
            http,
            clock,
            cached: Mutex::new(None),
        }
    }

    /// Credentials that are valid for a while. Concurrent callers wait for the same fetch.
    pub(crate) async fn get(&self) -> Result<Credentials, NoCredentials> {
        let mut cached = self.cached.lock().await;
        let fresh_until = self.clock.now().plus_millis(REFRESH_BEFORE_MS);
        if let Some(credentials) = &*cached
            && credentials
                .expiry()
                .is_none_or(|end| fresh_until < timestamp(end))
        {
            return Ok(credentials.clone());
        }
        let fetched = tokio::time::timeout(FETCH_LIMIT, self.fetch())
            .await
            .map_err(|_| NoCredentials(format!("no answer in {FETCH_LIMIT:?}")))??;
        *cached = Some(fetched.clone());
        Ok(fetched)
    }

    /// Drops the credentials after AWS refused them, so that the next call fetches new ones.
    pub(crate) async fn forget(&self) {
        *self.cached.lock().await = None;
    }

    async fn fetch(&self) -> Result<Credentials, NoCredentials> {
        match &self.source {
            Source::Keys {
                access_key_id,
                secret_access_key,
                session_token,
            } => Ok(Credentials::new(
                access_key_id.as_str(),
                secret_access_key.read().await?.expose(),
                session_token
                    .as_ref()
                    .map(|token| token.expose().to_owned()),
                None,
                "fleetwright",
            )),
            Source::Chain => self.follow_chain().await,
        }
    }

    async fn follow_chain(&self) -> Result<Credentials, NoCredentials> {
        let region = Region::new(self.region.clone());
        let settings = ProviderConfig::without_region()
            .with_region(Some(region.clone()))
            .with_http_client(self.http.clone());
        let chain = DefaultCredentialsChain::builder()
            .configure(settings)
            .region(region)
            .build()
            .await;
        chain.provide_credentials().await.map_err(|error| {
            NoCredentials(format!(
                "neither the provider's section nor AWS's default credential chain has any: {error}"
            ))
        })
    }
}

impl KeyText {
    async fn read(&self) -> Result<Secret, NoCredentials> {
        match self {
            Self::Given(secret) => Ok(secret.clone()),
            Self::File(path) => read_bounded(path, MAX_KEY_BYTES)
                .await
                .map(|text| Secret::new(text.trim()))
                .map_err(|error| {
                    let path = path.display();
                    NoCredentials(format!(
                        "secret_access_key_file {path} cannot be read: {error}"
                    ))
                }),
        }
    }
}

fn timestamp(time: SystemTime) -> Timestamp {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    struct ManualClock(AtomicI64);

    impl Clock for ManualClock {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(self.0.load(Ordering::Relaxed))
        }
    }

    fn keys(secret_access_key: KeyText) -> Keys {
        let source = Source::Keys {
            access_key_id: "AKID".to_owned(),
            secret_access_key,
            session_token: None,
        };
        let clock = Arc::new(ManualClock(AtomicI64::new(0)));
        Keys::new(source, "us-east-1".to_owned(), Http::default(), clock)
    }

    #[tokio::test]
    async fn a_key_file_is_read_again_after_aws_refused_its_key() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "old\n").unwrap();
        let keys = keys(KeyText::File(file.path().to_owned()));
        assert_eq!(keys.get().await.unwrap().secret_access_key(), "old");
        std::fs::write(file.path(), "new\n").unwrap();
        assert_eq!(keys.get().await.unwrap().secret_access_key(), "old");
        keys.forget().await;
        assert_eq!(keys.get().await.unwrap().secret_access_key(), "new");
    }

    #[tokio::test]
    async fn a_key_file_that_is_missing_is_named() {
        let keys = keys(KeyText::File("/nowhere/key".into()));
        let error = keys.get().await.unwrap_err().to_string();
        assert!(
            error.contains("secret_access_key_file /nowhere/key cannot be read"),
            "{error}"
        );
    }

    #[test]
    fn secrets_do_not_print() {
        let keys = Source::Keys {
            access_key_id: "AKID".to_owned(),
            secret_access_key: KeyText::Given(Secret::new("hush")),
            session_token: Some(Secret::new("hush")),
        };
        assert!(!format!("{keys:?}").contains("hush"));
    }
}
