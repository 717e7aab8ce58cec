//! The worker's calls to the HTTP API, each with its name, its time limit and its error.
//!
//! `send` makes a call once. `retried` repeats a call that may still succeed until a limit, which
//! its caller chooses.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api_client::{BadRootUrl, Options, Retry, Stamp, parse_root_url, root_cause};
use reqwest::Url;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::credentials::Credentials;
use crate::machine::{Backoff, Machine};

const CALL_LIMIT: Duration = Duration::from_secs(20);
/// A reply with the most claims (32), each with the largest task (1 MiB) and its credentials.
const MAX_REPLY_BYTES: usize = 48 << 20;
/// Maximum length of the message of a refusal.
const MAX_MESSAGE_CHARACTERS: usize = 1_000;
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LONGEST_RETRY: Duration = Duration::from_secs(15);

/// Why a call had no result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The server may have executed the call or not. Repeat it if that is harmless.
    #[error("no answer to {call}: {reason}")]
    NoAnswer { call: &'static str, reason: String },
    /// The server refused the call, with a reason.
    #[error("{call} was answered with {status}: {message}")]
    Refused {
        call: &'static str,
        status: u16,
        message: String,
    },
    /// The server executed the call, but the reply is not valid.
    #[error("the reply to {call} is not valid: {reason}")]
    BadReply { call: &'static str, reason: String },
}

/// One call of the API, with its name in errors.
pub(crate) struct Call {
    name: &'static str,
    call: api_client::Call,
}

/// Sends calls to a server.
pub(crate) struct Client {
    api: api_client::Client,
    pub(crate) machine: Arc<Machine>,
    /// When a call last succeeded.
    last_success: Mutex<Instant>,
}

/// The client cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum NoClient {
    #[error("{0}: write it like https://fleet.example.com, without a path")]
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

    /// Whether the same call may succeed later.
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
    pub(crate) fn new(name: &'static str, call: api_client::Call) -> Self {
        Self { name, call }
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

    /// The URL of the server, without a slash at its end.
    pub(crate) fn root_url(&self) -> &str {
        self.api.root_url()
    }

    /// An HTTP client for plain requests to this URL.
    pub(crate) fn http_for(&self, url: &Url) -> Result<reqwest::Client, reqwest::Error> {
        self.api.http_for(url)
    }

    /// The time since a call last succeeded.
    pub(crate) fn silence(&self) -> Duration {
        self.lock().elapsed()
    }

    /// Sends a call once.
    pub(crate) async fn send<T: DeserializeOwned>(
        &self,
        call: &Call,
        credentials: Option<&Credentials>,
    ) -> Result<T, CallError> {
        self.exchange(call, credentials, &mut |_| None).await
    }

    /// Repeats a call until it has a final answer or `limit` is reached.
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
        // An assignment cannot be interrupted by a panic.
        self.last_success
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The message of a refusal, shortened.
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
