//! A worker on a host of a datacentre: its relay identifies the host by its address, and registers
//! it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use api_client::{BodyError, message_of, read_body, root_cause};
use reqwest::Url;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use crate::identity::{BadIdentity, Identity, Names, Proof};
use crate::machine::{Backoff, Machine};
use crate::registration_state::RegistrationState;

const CALL_LIMIT: Duration = Duration::from_secs(20);
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LONGEST_RETRY: Duration = Duration::from_secs(15);
/// DNS may know a new host only after a while.
const ALL_TRIES_LIMIT: Duration = Duration::from_secs(5 * 60);
/// A reply with the largest worker configuration.
const MAX_REPLY_BYTES: usize = 4 << 20;
/// Of a refusal.
const MAX_MESSAGE_CHARACTERS: usize = 1_000;

/// The relay of this host.
pub struct Relay {
    http: reqwest::Client,
    url: Url,
}

#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    #[error("{0:?} is not the URL of a relay, such as https://relay.example.com:8126")]
    Url(String),
    #[error("cannot use the certificate in {}", file.display())]
    Certificate {
        file: PathBuf,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("cannot set up the HTTP client")]
    Http(#[source] reqwest::Error),
    #[error("the relay does not answer: {0}")]
    NoAnswer(String),
    #[error("the relay refused with {status}: {message}")]
    Refused { status: u16, message: String },
    #[error("the reply of the relay has an unknown form: {0}")]
    Malformed(String),
    #[error("the relay gave no valid worker identity")]
    Identity(#[from] BadIdentity),
}

/// The reply of the relay.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reply {
    root_url: String,
    provider_id: String,
    worker_pool_id: String,
    worker_group: String,
    worker_id: String,
    registration: RegistrationState,
}

impl Relay {
    /// `certificate` is a PEM file with the certificate of this host and its key.
    pub fn at(url: &str, certificate: Option<&Path>) -> Result<Self, RelayError> {
        let bad_url = || RelayError::Url(url.to_owned());
        let base = api_client::parse_root_url(url).map_err(|_| bad_url())?;
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("fleetwright-worker/", env!("CARGO_PKG_VERSION")))
            .timeout(CALL_LIMIT)
            .redirect(reqwest::redirect::Policy::none())
            // The relay must see the address of this host.
            .no_proxy();
        if let Some(file) = certificate {
            let bad = |source| RelayError::Certificate {
                file: file.to_owned(),
                source,
            };
            let pem = std::fs::read(file).map_err(|source| bad(source.into()))?;
            let own = reqwest::Identity::from_pem(&pem).map_err(|source| bad(source.into()))?;
            builder = builder.identity(own);
        }
        Ok(Self {
            http: builder.build().map_err(RelayError::Http)?,
            url: base.join("/v1/registration").map_err(|_| bad_url())?,
        })
    }

    /// The identity of this host, with its registration. Asks again for a while, since DNS or the
    /// server may be late.
    pub async fn identity(&self, machine: &Machine) -> Result<Identity, RelayError> {
        let limit = Instant::now() + ALL_TRIES_LIMIT;
        let mut backoff = Backoff::new(FIRST_RETRY, LONGEST_RETRY);
        let mut is_logged = false;
        loop {
            let problem = match self.ask().await {
                Ok(reply) => return identity(reply),
                Err(problem) => problem,
            };
            let may_pass = matches!(
                problem,
                RelayError::NoAnswer(_) | RelayError::Refused { .. }
            );
            if !may_pass || !backoff.wait(machine, limit).await {
                return Err(problem);
            }
            if !is_logged {
                tracing::warn!("not registered yet, will try again: {problem}");
                is_logged = true;
            }
        }
    }

    async fn ask(&self) -> Result<Reply, RelayError> {
        let no_answer = |error: reqwest::Error| RelayError::NoAnswer(root_cause(&error));
        let sent = self.http.post(self.url.clone()).send();
        let response = sent.await.map_err(no_answer)?;
        let status = response.status();
        let body = match read_body(response, MAX_REPLY_BYTES).await {
            Ok(body) => body,
            Err(BodyError::Broken(error)) => return Err(no_answer(error)),
            Err(too_long @ BodyError::TooLong(_)) => {
                return Err(RelayError::Malformed(too_long.to_string()));
            }
        };
        if !status.is_success() {
            let message = message_of(&body).unwrap_or_default();
            return Err(RelayError::Refused {
                status: status.as_u16(),
                message: message.chars().take(MAX_MESSAGE_CHARACTERS).collect(),
            });
        }
        // The parser's message may quote a secret.
        let malformed =
            |error: serde_json::Error| RelayError::Malformed(format!("line {}", error.line()));
        serde_json::from_slice(&body).map_err(malformed)
    }
}

fn identity(reply: Reply) -> Result<Identity, RelayError> {
    let names = Names {
        provider_id: &reply.provider_id,
        pool: &reply.worker_pool_id,
        group: &reply.worker_group,
        id: &reply.worker_id,
    };
    let proof = Proof::Relay(Box::new(reply.registration));
    let mut identity = Identity::of(names, reply.root_url, proof)?;
    identity.location = json!({"cloud": "datacentre"});
    Ok(identity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reply_of_a_relay_is_an_identity_with_its_registration() {
        let reply = json!({"rootUrl": "http://127.0.0.1:1", "providerId": "static",
            "workerPoolId": "demo/boxes", "workerGroup": "dc1", "workerId": "box-7",
            "hostName": "box-7.dc1.example.com", "registration": {
                "credentials": {"clientId": "w", "accessToken": "hush"},
                "expires": "2026-11-30T00:00:00.000Z", "secret": "hush", "workerConfig": {}}});
        let identity = identity(serde_json::from_value(reply).unwrap()).unwrap();
        assert_eq!(identity.to_string(), "dc1/box-7 of pool demo/boxes");
        assert_eq!(identity.kind, crate::Kind::Static);
        assert!(!format!("{identity:?}").contains("hush"));
    }

    #[test]
    fn an_invalid_url_or_certificate_is_named() {
        let problem = |url: &str, file: Option<&str>| {
            let made = Relay::at(url, file.map(Path::new));
            made.err().unwrap().to_string()
        };
        assert!(problem("relay:1", None).contains("relay:1"));
        assert!(problem("http://relay/x", None).contains("is not the URL of a relay"));
        let missing = problem("http://relay:1", Some("/nosuch/host.pem"));
        assert!(missing.contains("/nosuch/host.pem"), "{missing}");
    }
}
