//! Calls of the worker manager: credentials of hosts, and announcements.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use access::Secret;
use api_client::{
    BadRootUrl, Call, CallError, Client, Credentials, Options, Retry, Stamp, WORKER_MANAGER,
    parse_root_url, root_cause,
};
use domain::id::{RelayId, WorkerKey};
use domain::time::Timestamp;
use serde::{Deserialize, Deserializer, de};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::config::Config;
use crate::host_name::HostName;
use crate::machine::Machine;

const CALL_LIMIT: Duration = Duration::from_secs(5);
/// The limit for all tries of one request: its host waits.
const ALL_TRIES_LIMIT: Duration = Duration::from_secs(10);
const FIRST_RETRY: Duration = Duration::from_millis(200);
/// A reply with the largest worker configuration.
const MAX_REPLY_BYTES: usize = 4 << 20;

pub(crate) struct WorkerManager {
    client: Client,
    credentials: Credentials,
    relay_id: RelayId,
    machine: Arc<Machine>,
}

/// The client cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum NoClient {
    #[error("root_url: {0}")]
    RootUrl(BadRootUrl),
    #[error("cannot set up the HTTP client")]
    Http(#[source] reqwest::Error),
}

/// A worker's registration, as the worker manager replied.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HostCredentials {
    pub(crate) provider_id: String,
    #[serde(deserialize_with = "parsed")]
    pub(crate) expires: Timestamp,
    pub(crate) credentials: TemporaryCredentials,
    pub(crate) secret: Secret,
    pub(crate) worker_config: Value,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TemporaryCredentials {
    pub(crate) client_id: String,
    pub(crate) access_token: Secret,
    pub(crate) certificate: Option<String>,
}

/// Why the worker manager gave nothing.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum NotGiven {
    #[error("the worker manager is away: {0}")]
    Away(String),
    #[error("the worker manager refused: {0}")]
    Refused(String),
}

impl WorkerManager {
    pub(crate) fn new(
        config: &Config,
        access_token: Secret,
        machine: Arc<Machine>,
    ) -> Result<Self, NoClient> {
        let of_stamps = Arc::clone(&machine);
        let options = Options {
            user_agent: Some(concat!("fleetwright-relay/", env!("CARGO_PKG_VERSION"))),
            call_limit: CALL_LIMIT,
            max_reply_bytes: MAX_REPLY_BYTES,
            stamp: Box::new(move || Stamp {
                seconds: of_stamps.now().as_millis() / 1_000,
                nonce: of_stamps.nonce(),
            }),
            observer: None,
        };
        let root_url = parse_root_url(&config.root_url).map_err(NoClient::RootUrl)?;
        let credentials = Credentials {
            client_id: config.client_id.clone(),
            access_token,
            extension: None,
        };
        Ok(Self {
            client: Client::new(root_url, options).map_err(NoClient::Http)?,
            credentials,
            relay_id: config.relay_id.clone(),
            machine,
        })
    }

    /// The URL of the worker manager, without a slash at its end.
    pub(crate) fn root_url(&self) -> &str {
        self.client.root_url()
    }

    /// Registers a host. A repetition is harmless: it registers the host once more.
    pub(crate) async fn credentials(
        &self,
        worker: &WorkerKey,
        (address, host): (IpAddr, &HostName),
        declare: Option<u32>,
    ) -> Result<HostCredentials, NotGiven> {
        let mut body = json!({"address": address.to_string(), "hostName": host.as_str()});
        if let Some(capacity) = declare {
            body["declare"] = json!(true);
            body["capacity"] = json!(capacity);
        }
        let (pool, group, id) = (&worker.pool_id, &worker.group, &worker.id);
        let segments = [
            "workers",
            pool.as_str(),
            group.as_str(),
            id.as_str(),
            "relay-credentials",
        ];
        let call = Call::post(WORKER_MANAGER, &segments, &body);
        let until = Instant::now() + ALL_TRIES_LIMIT;
        let mut next = FIRST_RETRY;
        let mut retry = |problem: &CallError| {
            let delay = self.machine.jittered(next);
            next *= 2;
            let in_time = Instant::now() + delay + CALL_LIMIT <= until;
            (problem.may_pass() && in_time).then_some(delay)
        };
        let answer = self.client.call(&call, Some(&self.credentials), &mut retry);
        answer.await.map_err(not_given)
    }

    /// Sends an announcement once: the next one comes soon.
    pub(crate) async fn announce(&self, announcement: &Value) -> Result<(), NotGiven> {
        let segments = ["relay", self.relay_id.as_str()];
        let call = Call::put(WORKER_MANAGER, &segments, announcement);
        let retry: &mut Retry<'_> = &mut |_| None;
        let sent = self.client.exchange(&call, Some(&self.credentials), retry);
        sent.await.map(drop).map_err(not_given)
    }
}

fn not_given(problem: CallError) -> NotGiven {
    let is_away = problem.may_pass();
    let text = match &problem {
        CallError::NoAnswer(source) => root_cause(source),
        CallError::Refused(refusal) => refusal.to_string(),
        CallError::BadReply(reason) => format!("the reply is not valid: {reason}"),
    };
    if is_away {
        NotGiven::Away(text)
    } else {
        NotGiven::Refused(text)
    }
}

fn parsed<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
    String::deserialize(from)?
        .parse()
        .map_err(de::Error::custom)
}
