//! The provider protocol over HTTP: signed questions to a service.
//!
//! Each question is a POST to `<url>/v1/<operation>`, signed with Hawk over its body, so that the service can tell that
//! we ask and that nobody changed it on its way. Answers are trusted as far as TLS is.

#[cfg(test)]
mod server;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use access::Secret;
use access::hawk::{RequestLine, payload_hash, sign_header};
use api_client::{BodyError, JSON, read_body};
use async_trait::async_trait;
use domain::launch::Cause;
use domain::time::SECOND_MS;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode, Url};
use serde::Deserialize;

use crate::ProviderContext;
use crate::outside::{Answer, Carrier, MAX_ANSWER_BYTES, NoAnswer, Operation, OutsideProvider};

const DEFAULT_TIME_LIMIT_SECONDS: u64 = 30;
/// Who guesses a shorter secret signs for us.
const MIN_SECRET_LENGTH: usize = 22;
const NONCE_LENGTH: usize = 22;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExternalSettings {
    /// Where the service is; `/v1/<operation>` is added.
    pub url: String,
    /// What the service knows us by, as `secret` or in a file.
    #[serde(default)]
    pub secret: Option<Secret>,
    #[serde(default)]
    pub secret_file: Option<PathBuf>,
    /// No call takes longer.
    #[serde(default = "default_time_limit")]
    pub time_limit_seconds: u64,
}

fn default_time_limit() -> u64 {
    DEFAULT_TIME_LIMIT_SECONDS
}

/// A provider behind an HTTP service.
pub type ExternalProvider = OutsideProvider<Service>;

pub struct Service {
    context: ProviderContext,
    settings: ExternalSettings,
    /// Known once the provider is set up.
    line: OnceLock<Line>,
    n_questions: AtomicU64,
}

/// What it takes to ask.
struct Line {
    http: Client,
    url: Url,
    secret: Secret,
}

impl ExternalProvider {
    pub fn new(context: ProviderContext, settings: ExternalSettings) -> Self {
        let carrier = Service {
            context: context.clone(),
            settings,
            line: OnceLock::new(),
            n_questions: AtomicU64::new(0),
        };
        Self::over(context, carrier)
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
                let text = text.map_err(|problem| {
                    format!("{} ({place}): {problem}", self.key("secret_file"))
                })?;
                Secret::new(text.trim())
            }
            (None, None) | (Some(_), Some(_)) => {
                return Err(format!(
                    "{} or secret_file: give one of them",
                    self.key("secret")
                ));
            }
        };
        if secret.expose().len() < MIN_SECRET_LENGTH {
            let key = self.key("secret");
            return Err(format!(
                "{key} is shorter than {MIN_SECRET_LENGTH} characters: make one with: head -c 33 /dev/urandom | base64"
            ));
        }
        Ok(secret)
    }

    fn connect(&self) -> Result<Line, String> {
        let mut url: Url = self
            .settings
            .url
            .parse()
            .map_err(|problem| format!("{}: {problem}", self.key("url")))?;
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
            // A signature is for one address.
            .redirect(Policy::none())
            .build()
            .map_err(|problem| format!("an HTTP client cannot be made: {problem}"))?;
        let secret = self.secret()?;
        Ok(Line { http, url, secret })
    }

    fn signature(&self, line: &Line, url: &Url, question: &[u8]) -> String {
        let now = self.context.clock.now();
        let hash = payload_hash(JSON, question);
        let number = self.n_questions.fetch_add(1, Ordering::Relaxed);
        // Not to be guessed, and not the same for two questions, also of two processes of ours.
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
            &line.secret,
            seconds,
            nonce,
            Some(&hash),
            None,
        )
    }
}

#[async_trait]
impl Carrier for Service {
    fn kind(&self) -> &'static str {
        "external"
    }

    fn schema(&self) -> &'static str {
        "fleetwright/v1/config-external.json"
    }

    async fn prepare(&self) -> Result<(), String> {
        if self.line.get().is_none() {
            let line = self.connect()?;
            // Prepared side by side: either of the two is right.
            let _ = self.line.set(line);
        }
        Ok(())
    }

    async fn carry(&self, operation: Operation, question: Vec<u8>) -> Result<Answer, NoAnswer> {
        let line = self
            .line
            .get()
            .ok_or_else(|| NoAnswer::NotSent("the provider is not set up".to_owned()))?;
        let mut url = line.url.clone();
        let path = format!(
            "{}/v1/{}",
            url.path().trim_end_matches('/'),
            operation.as_str()
        );
        url.set_path(&path);
        let asked = line
            .http
            .post(url.clone())
            .header(CONTENT_TYPE, JSON)
            .header(AUTHORIZATION, self.signature(line, &url, &question))
            .body(question)
            .send()
            .await;
        let response = asked.map_err(|problem| {
            let text = format!("{}: {}", operation.as_str(), chain(&problem));
            match problem.is_connect() || problem.is_builder() {
                true => NoAnswer::NotSent(text),
                false => NoAnswer::Lost(text),
            }
        })?;
        let status = response.status();
        let body = read_body(response, MAX_ANSWER_BYTES).await;
        let body = body.map_err(|problem| {
            let text = match &problem {
                BodyError::Broken(problem) => chain(problem),
                BodyError::TooLong(most) => format!("the answer is longer than {most} bytes"),
            };
            NoAnswer::Lost(format!("{}: {text}", operation.as_str()))
        })?;
        Ok(Answer {
            done: status.is_success(),
            body,
            outline: format!("status {}", status.as_u16()),
            cause: cause_of(status),
        })
    }
}

/// What a status says by itself: that the door was closed.
fn cause_of(status: StatusCode) -> Option<Cause> {
    match status.as_u16() {
        401 | 403 => Some(Cause::Credentials),
        429 => Some(Cause::Throttled),
        _ => None,
    }
}

/// The error with what caused it; it hides that behind a general phrase. Without the address, which is known.
fn chain(error: &reqwest::Error) -> String {
    let mut text = match error.is_timeout() {
        true => "no answer in time".to_owned(),
        false => "no answer".to_owned(),
    };
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}
