//! The provider protocol over HTTP: signed requests to a service.
//!
//! Each request is a POST to `<url>/v1/<operation>`, with a Hawk signature that covers its body. So
//! the service can check the sender and the content. Responses are trusted as far as TLS is.

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use access::Secret;
use access::hawk::{RequestLine, payload_hash, sign_header};
use api_client::{BodyError, JSON, read_body, with_causes};
use async_trait::async_trait;
use domain::launch::Cause;
use domain::time::SECOND_MS;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode, Url};
use serde::Deserialize;

use crate::ProviderContext;
use crate::protocol::{Answer, Failure, MAX_ANSWER_BYTES, Operation, ProtocolProvider, Transport};

const DEFAULT_TIME_LIMIT_SECONDS: u64 = 30;
/// Shorter secrets can be guessed, and the holder of the secret can sign requests.
const MIN_SECRET_LENGTH: usize = 22;
const NONCE_LENGTH: usize = 22;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExternalSettings {
    /// The URL of the service, to which `/v1/<operation>` is added.
    pub url: String,
    /// The secret shared with the service. Set either this or `secret_file`.
    #[serde(default)]
    pub secret: Option<Secret>,
    #[serde(default)]
    pub secret_file: Option<PathBuf>,
    /// Time limit of every call.
    #[serde(default = "default_time_limit")]
    pub time_limit_seconds: u64,
}

fn default_time_limit() -> u64 {
    DEFAULT_TIME_LIMIT_SECONDS
}

/// A provider behind an HTTP service.
pub type ExternalProvider = ProtocolProvider<Service>;

pub struct Service {
    context: ProviderContext,
    settings: ExternalSettings,
    /// Set once the provider is set up.
    connection: OnceLock<Connection>,
    n_requests: AtomicU64,
}

/// The client, the address and the secret for requests.
struct Connection {
    http: Client,
    url: Url,
    secret: Secret,
}

impl ExternalProvider {
    pub fn new(context: ProviderContext, settings: ExternalSettings) -> Self {
        let service = Service {
            context: context.clone(),
            settings,
            connection: OnceLock::new(),
            n_requests: AtomicU64::new(0),
        };
        Self::new_over(context, service)
    }
}

impl Service {
    fn key(&self, key: &str) -> String {
        format!("providers.{}.{key}", self.context.id)
    }

    fn secret(&self) -> Result<Secret, String> {
        let secret = match (&self.settings.secret, &self.settings.secret_file) {
            (Some(secret), None) => secret.clone(),
            (None, Some(file)) => {
                let text = std::fs::read_to_string(file);
                let place = file.display();
                let text = text
                    .map_err(|error| format!("{} ({place}): {error}", self.key("secret_file")))?;
                Secret::new(text.trim())
            }
            (None, None) | (Some(_), Some(_)) => {
                return Err(format!("set either {} or secret_file", self.key("secret")));
            }
        };
        if secret.expose().len() < MIN_SECRET_LENGTH {
            let key = self.key("secret");
            return Err(format!(
                "{key} is shorter than {MIN_SECRET_LENGTH} characters. Make one with: head -c 33 /dev/urandom | base64"
            ));
        }
        Ok(secret)
    }

    fn connect(&self) -> Result<Connection, String> {
        let mut url: Url = self
            .settings
            .url
            .parse()
            .map_err(|error| format!("{}: {error}", self.key("url")))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(format!(
                "{} must begin with http:// or https://",
                self.key("url")
            ));
        }
        url.set_query(None);
        url.set_fragment(None);
        let http = Client::builder()
            .timeout(Duration::from_secs(self.settings.time_limit_seconds))
            // A signature is valid for one address only.
            .redirect(Policy::none())
            .build()
            .map_err(|error| format!("cannot create an HTTP client: {error}"))?;
        let secret = self.secret()?;
        Ok(Connection { http, url, secret })
    }

    fn sign(&self, connection: &Connection, url: &Url, question: &[u8]) -> String {
        let now = self.context.clock.now();
        let hash = payload_hash(JSON, question);
        let number = self.n_requests.fetch_add(1, Ordering::Relaxed);
        // Unpredictable, and different for any two requests, also of two of our processes.
        let unique = format!("{}:{number}:{}:{hash}", std::process::id(), now.as_millis());
        let digest = self
            .context
            .keyring
            .digest("external-nonce", &Secret::new(unique));
        let nonce = &digest[digest.len().saturating_sub(NONCE_LENGTH)..];
        let resource = url.path();
        let request = RequestLine {
            method: "POST",
            resource,
            host: url.host_str().unwrap_or_default(),
            port: url.port_or_known_default().unwrap_or_default(),
        };
        let seconds = now.as_millis() / SECOND_MS;
        let id = self.context.id.as_str();
        sign_header(
            &request,
            id,
            &connection.secret,
            seconds,
            nonce,
            Some(&hash),
            None,
        )
    }
}

#[async_trait]
impl Transport for Service {
    fn kind(&self) -> &'static str {
        "external"
    }

    fn schema(&self) -> &'static str {
        "fleetwright/v1/config-external.json"
    }

    async fn prepare(&self) -> Result<(), String> {
        if self.connection.get().is_none() {
            let connection = self.connect()?;
            // Two set-ups may run at the same time; either result is valid.
            let _ = self.connection.set(connection);
        }
        Ok(())
    }

    async fn send(&self, operation: Operation, question: Vec<u8>) -> Result<Answer, Failure> {
        let connection = self
            .connection
            .get()
            .ok_or_else(|| Failure::not_sent("the provider is not set up"))?;
        let mut url = connection.url.clone();
        let path = format!(
            "{}/v1/{}",
            url.path().trim_end_matches('/'),
            operation.as_str()
        );
        url.set_path(&path);
        let asked = connection
            .http
            .post(url.clone())
            .header(CONTENT_TYPE, JSON)
            .header(AUTHORIZATION, self.sign(connection, &url, &question))
            .body(question)
            .send()
            .await;
        let response = asked.map_err(|error| {
            let text = format!("{}: {}", operation.as_str(), chain(&error));
            if error.is_connect() || error.is_builder() {
                Failure::not_sent(text)
            } else {
                Failure::Lost(text)
            }
        })?;
        let status = response.status();
        let body = read_body(response, MAX_ANSWER_BYTES).await;
        let body = body.map_err(|error| {
            let text = match &error {
                BodyError::Broken(error) => chain(error),
                BodyError::TooLong(most) => format!("the response is longer than {most} bytes"),
            };
            Failure::Lost(format!("{}: {text}", operation.as_str()))
        })?;
        Ok(Answer {
            done: status.is_success(),
            body,
            outline: format!("status {}", status.as_u16()),
            cause: cause_of(status),
        })
    }
}

/// The cause that a status alone shows.
fn cause_of(status: StatusCode) -> Option<Cause> {
    match status.as_u16() {
        401 | 403 => Some(Cause::Credentials),
        429 => Some(Cause::Throttled),
        _ => None,
    }
}

/// The error with its causes, which reqwest hides behind a general phrase. The address is known and
/// left out.
fn chain(error: &reqwest::Error) -> String {
    let what = if error.is_timeout() {
        "no response within the time limit"
    } else {
        "no response"
    };
    match std::error::Error::source(error) {
        Some(cause) => format!("{what}: {}", with_causes(cause)),
        None => what.to_owned(),
    }
}
