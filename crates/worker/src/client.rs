//! The worker's calls of the HTTP API: each with its name, its time limit and its error.
//!
//! It sends each call once. Who calls knows until when a repetition makes sense, and `retried`
//! repeats until then what may still work.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api_client::{BadRootUrl, Options, Retry, Stamp, parse_root_url, root_cause};
use bytes::Bytes;
use reqwest::{Method, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;

use crate::credentials::Credentials;
use crate::machine::{Backoff, Machine};

const CALL_LIMIT: Duration = Duration::from_secs(20);
/// The server holds a claim for 20 s when there is no work.
const CLAIM_LIMIT: Duration = Duration::from_secs(45);
/// A reply with the most claims (32), each with the largest task (1 MiB) and its credentials.
const MAX_REPLY_BYTES: usize = 48 << 20;
/// As much of a refusal as is worth showing.
const MAX_MESSAGE_CHARACTERS: usize = 1_000;
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LONGEST_RETRY: Duration = Duration::from_secs(15);

/// Why a call brought no result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// It may have been carried out or not. Repeat it if that is harmless.
    #[error("no answer to {call}: {reason}")]
    NoAnswer { call: &'static str, reason: String },
    /// The server did not do it, and says why.
    #[error("{call} was answered with {status}: {message}")]
    Refused {
        call: &'static str,
        status: u16,
        message: String,
    },
    /// It was carried out, but we do not understand the reply.
    #[error("the reply to {call} is not what it should be: {reason}")]
    BadReply { call: &'static str, reason: String },
}

/// One call of the API.
pub(crate) struct Call {
    name: &'static str,
    call: api_client::Call,
}

/// Sends calls to one server.
pub(crate) struct Client {
    api: api_client::Client,
    pub(crate) machine: Arc<Machine>,
    /// When a call last succeeded.
    last_success: Mutex<Instant>,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum NoClient {
    #[error("{0}: one looks like https://fleet.example.com, without a path")]
    BadRootUrl(BadRootUrl),
    #[error("cannot set up the HTTP client")]
    Http(#[source] reqwest::Error),
}

impl CallError {
    fn new(call: &'static str, problem: api_client::CallError) -> Self {
        match problem {
            api_client::CallError::NoAnswer(source) => Self::NoAnswer {
                call,
                reason: root_cause(&source),
            },
            api_client::CallError::Refused(refusal) => Self::Refused {
                call,
                status: refusal.status.as_u16(),
                message: shown(refusal.message()),
            },
            api_client::CallError::BadReply(reason) => Self::BadReply { call, reason },
        }
    }

    /// Whether the same call may work a little later.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::NoAnswer { .. } => true,
            Self::Refused { status, .. } => *status == 429 || *status >= 500,
            Self::BadReply { .. } => false,
        }
    }

    /// The status of a refusal.
    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            Self::NoAnswer { .. } | Self::BadReply { .. } => None,
        }
    }
}

impl Call {
    pub(crate) fn new(
        name: &'static str,
        method: Method,
        service: &str,
        segments: &[&str],
    ) -> Self {
        let call = api_client::Call::new(method, service, segments);
        Self { name, call }
    }

    pub(crate) fn query(self, name: &str, value: Option<impl ToString>) -> Self {
        let call = self.call.query(name, value);
        Self { call, ..self }
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        let call = self.call.json(body);
        Self { call, ..self }
    }

    pub(crate) fn raw(self, body: Bytes) -> Self {
        let call = self.call.raw(body);
        Self { call, ..self }
    }

    /// Waits as long as the server holds a claim.
    pub(crate) fn long(self) -> Self {
        let call = self.call.limit(CLAIM_LIMIT);
        Self { call, ..self }
    }
}

impl Client {
    pub(crate) fn new(root_url: &str, machine: Arc<Machine>) -> Result<Self, NoClient> {
        let root_url = parse_root_url(root_url).map_err(NoClient::BadRootUrl)?;
        let of_stamps = Arc::clone(&machine);
        let options = Options {
            user_agent: Some(concat!("fleetwright-worker/", env!("CARGO_PKG_VERSION"))),
            call_limit: CALL_LIMIT,
            max_reply_bytes: MAX_REPLY_BYTES,
            stamp: Box::new(move || Stamp {
                seconds: of_stamps.now().as_millis() / 1_000,
                nonce: of_stamps.nonce(),
            }),
            observer: None,
        };
        Ok(Self {
            api: api_client::Client::new(root_url, options).map_err(NoClient::Http)?,
            machine,
            last_success: Mutex::new(Instant::now()),
        })
    }

    /// The address of the server, without a slash at its end.
    pub(crate) fn root_url(&self) -> &str {
        self.api.root_url()
    }

    /// What to send plain requests to this address with.
    pub(crate) fn http_for(&self, url: &Url) -> Result<reqwest::Client, reqwest::Error> {
        self.api.http_for(url)
    }

    /// How long it is since a call last succeeded.
    pub(crate) fn silence(&self) -> Duration {
        self.lock().elapsed()
    }

    /// Sends a call, once.
    pub(crate) async fn send<T: DeserializeOwned>(
        &self,
        call: &Call,
        credentials: Option<&Credentials>,
    ) -> Result<T, CallError> {
        self.exchange(call, credentials, &mut |_| None).await
    }

    /// Sends a call again and again until it is answered for good, or `limit` has come.
    pub(crate) async fn retried<T: DeserializeOwned>(
        &self,
        call: &Call,
        credentials: Option<&Credentials>,
        limit: Instant,
    ) -> Result<T, CallError> {
        let mut backoff = Backoff::new(FIRST_RETRY, LONGEST_RETRY);
        let mut retry = |problem: &api_client::CallError| {
            let may_pass = problem.may_pass();
            may_pass.then(|| backoff.next(&self.machine, limit))?
        };
        self.exchange(call, credentials, &mut retry).await
    }

    async fn exchange<T: DeserializeOwned>(
        &self,
        call: &Call,
        credentials: Option<&Credentials>,
        retry: &mut Retry<'_>,
    ) -> Result<T, CallError> {
        let signing = credentials.map(|credentials| &credentials.signing);
        let outcome = self.api.call(&call.call, signing, retry).await;
        if !matches!(
            outcome,
            Err(api_client::CallError::NoAnswer(_) | api_client::CallError::Refused(_))
        ) {
            *self.lock() = Instant::now();
        }
        outcome.map_err(|problem| CallError::new(call.name, problem))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Instant> {
        // A moment is never half written.
        self.last_success
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// As much of a refusal as is worth showing.
fn shown(message: Option<String>) -> String {
    let message = message.unwrap_or_else(|| "no reason was given".to_owned());
    message.chars().take(MAX_MESSAGE_CHARACTERS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_shown_bounded() {
        assert_eq!(shown(None), "no reason was given");
        assert_eq!(shown(Some("é".repeat(5_000))).chars().count(), 1_000);
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        let refused = |status| CallError::Refused {
            call: "x",
            status,
            message: String::new(),
        };
        for (status, expected) in [(400, false), (401, false), (404, false), (409, false)] {
            assert_eq!(refused(status).may_pass(), expected, "{status}");
        }
        for status in [429, 500, 503] {
            assert!(refused(status).may_pass(), "{status}");
        }
    }
}
