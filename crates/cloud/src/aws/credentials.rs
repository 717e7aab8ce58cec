//! With what we sign: keys from the configuration, or whatever AWS's usual chain finds on this machine.
//!
//! The chain (environment, profile, web identity, container, instance) is AWS's own; only its way out to the network is
//! ours, so that there is one TLS in the program.

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

use super::error::Ec2Error;
use super::http::{Http, read_bounded};

/// Credentials that end are replaced so long before.
const REFRESH_BEFORE_MS: i64 = 5 * 60 * 1_000;
/// A file with a key, or a metadata service, has this long to answer.
const FETCH_LIMIT: Duration = Duration::from_secs(15);
/// A secret access key in a file is not longer than this.
const MAX_KEY_BYTES: u64 = 4_096;

/// Where credentials come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Keys {
        access_key_id: String,
        secret_access_key: KeyText,
        session_token: Option<Secret>,
    },
    /// AWS's own order of places to look at.
    Chain,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyText {
    Given(Secret),
    /// Read when it is needed, and again when AWS no longer accepts it.
    File(PathBuf),
}

pub(crate) struct Keys {
    source: Source,
    /// Where the chain asks for tokens.
    region: String,
    http: Http,
    clock: Arc<dyn Clock>,
    kept: Mutex<Option<Kept>>,
}

struct Kept {
    credentials: Credentials,
    /// `None`: they do not end.
    until: Option<Timestamp>,
}

impl Keys {
    pub(crate) fn new(source: Source, region: String, http: Http, clock: Arc<dyn Clock>) -> Self {
        Self {
            source,
            region,
            http,
            clock,
            kept: Mutex::new(None),
        }
    }

    /// Credentials that are good for a while. Those who come while they are fetched wait for the same.
    pub(crate) async fn get(&self) -> Result<Credentials, Ec2Error> {
        let mut kept = self.kept.lock().await;
        let now = self.clock.now();
        if let Some(kept) = &*kept
            && kept.until.is_none_or(|until| now < until)
        {
            return Ok(kept.credentials.clone());
        }
        let fetched = tokio::time::timeout(FETCH_LIMIT, self.fetch())
            .await
            .map_err(|_| Ec2Error::NoCredentials(format!("no answer in {FETCH_LIMIT:?}")))??;
        let until = fetched
            .expiry()
            .map(|end| timestamp(end).plus_millis(-REFRESH_BEFORE_MS));
        *kept = Some(Kept {
            credentials: fetched.clone(),
            until,
        });
        Ok(fetched)
    }

    /// AWS did not accept them: next time, look for others.
    pub(crate) async fn forget(&self) {
        *self.kept.lock().await = None;
    }

    async fn fetch(&self) -> Result<Credentials, Ec2Error> {
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

    async fn follow_chain(&self) -> Result<Credentials, Ec2Error> {
        let region = Region::new(self.region.clone());
        let settings = ProviderConfig::without_region()
            .with_region(Some(region.clone()))
            .with_http_client(self.http.clone());
        let chain = DefaultCredentialsChain::builder()
            .configure(settings)
            .region(region)
            .build()
            .await;
        chain.provide_credentials().await.map_err(|problem| {
            Ec2Error::NoCredentials(format!(
                "none in the provider's section, nor where AWS's tools look for them: {problem}"
            ))
        })
    }
}

impl KeyText {
    async fn read(&self) -> Result<Secret, Ec2Error> {
        match self {
            Self::Given(secret) => Ok(secret.clone()),
            Self::File(path) => read_bounded(path, MAX_KEY_BYTES)
                .await
                .map(|text| Secret::new(text.trim()))
                .map_err(|problem| {
                    let path = path.display();
                    Ec2Error::NoCredentials(format!(
                        "secret_access_key_file {path} cannot be read: {problem}"
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

    struct Hand(AtomicI64);

    impl Clock for Hand {
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
        let clock = Arc::new(Hand(AtomicI64::new(0)));
        Keys::new(source, "us-east-1".to_owned(), Http::new(), clock)
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
        let problem = keys.get().await.unwrap_err().to_string();
        assert!(
            problem.contains("secret_access_key_file /nowhere/key cannot be read"),
            "{problem}"
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
