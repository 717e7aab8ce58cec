//! One call of the queue's API: signed, sent, limited, read.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use access::{Secret, slugid};
use api_client::{Call, CallError, Client, Credentials, Options, Stamp, parse_base_url};
use domain::time::Clock;
use rand::Rng;
use reqwest::Method;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::DemandError;

const CALL_LIMIT: Duration = Duration::from_secs(20);
/// An answer that is larger is none.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;
/// So much of a refusal goes into the error.
const MAX_MESSAGE: usize = 500;
const API: &str = "/api/queue/v1";

/// Where the queue is, and as whom to ask it.
pub struct QueueAccess {
    /// Of the deployment, without a slash at its end.
    pub root_url: String,
    pub client_id: String,
    pub access_token: Secret,
    pub clock: Arc<dyn Clock>,
    pub random: Box<dyn Rng + Send>,
}

pub(super) struct Caller {
    client: Client,
    credentials: Credentials,
}

impl Caller {
    pub(super) fn new(access: QueueAccess) -> Result<Self, DemandError> {
        let root_url = parse_base_url(&access.root_url).map_err(DemandError::RootUrl)?;
        let (clock, random) = (access.clock, Mutex::new(access.random));
        let options = Options {
            user_agent: None,
            call_limit: CALL_LIMIT,
            max_reply_bytes: MAX_ANSWER_BYTES,
            stamp: Box::new(move || {
                let mut random = random.lock().unwrap_or_else(PoisonError::into_inner);
                Stamp {
                    seconds: clock.now().as_millis() / 1_000,
                    nonce: slugid::nice(&mut **random),
                }
            }),
            observer: None,
        };
        Ok(Self {
            client: Client::new(root_url, options).map_err(DemandError::Client)?,
            credentials: Credentials {
                client_id: access.client_id,
                access_token: access.access_token,
                extension: None,
            },
        })
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("{}{API}{path}", self.client.root_url())
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, DemandError> {
        let call = Call::to(Method::GET, format!("{API}{path}"));
        self.call(path, &call).await
    }

    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<T, DemandError> {
        let call = Call::to(Method::POST, format!("{API}{path}")).json(body);
        self.call(path, &call).await
    }

    async fn call<T: DeserializeOwned>(&self, path: &str, call: &Call) -> Result<T, DemandError> {
        let credentials = Some(&self.credentials);
        let outcome = self.client.call(call, credentials, &mut |_| None).await;
        outcome.map_err(|problem| match problem {
            CallError::NoAnswer(source) => DemandError::Unreachable {
                url: self.url(path),
                source: source.without_url(),
            },
            CallError::Refused(refusal) => DemandError::Refused {
                url: self.url(path),
                status: refusal.status.as_u16(),
                message: shown(refusal.message()),
            },
            CallError::BadReply(problem) => DemandError::NoAnswer {
                url: self.url(path),
                problem,
            },
        })
    }
}

/// What a refusal says, in one line.
fn shown(message: Option<String>) -> String {
    let text = message.unwrap_or_else(|| "without a word".to_owned());
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(MAX_MESSAGE).collect()
}
