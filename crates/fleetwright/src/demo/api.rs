//! Calls of the demo's people, clients and workers, as all clients make them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use access::certificate::Certificate;
use access::hawk::extension;
use access::{Secret, slugid};
use api_client::{Call, CallError, Credentials, Options, Stamp, parse_root_url};
use domain::id::WorkerKey;
use domain::time::Clock;
use serde_json::Value;

use crate::machine;

const CALL_LIMIT: Duration = Duration::from_secs(60);
const MAX_REPLY_BYTES: usize = 64 << 20;

/// The people and the hosts of the demo.
pub(crate) struct Cast {
    pub(super) people: BTreeMap<String, Credentials>,
    pub(super) hosts: Vec<(WorkerKey, Secret)>,
}

/// The API of the demo's server. Signatures have the time of the demo's clock.
pub(crate) struct Api(api_client::Client);

impl Api {
    pub(crate) fn new(root_url: &str, clock: Arc<dyn Clock>) -> anyhow::Result<Self> {
        let options = Options {
            user_agent: Some("fleetwright-demo"),
            call_limit: CALL_LIMIT,
            max_reply_bytes: MAX_REPLY_BYTES,
            stamp: Box::new(move || Stamp {
                seconds: clock.now().as_millis() / 1_000,
                nonce: slugid::nice(&mut machine::random_source()),
            }),
            observer: None,
        };
        let client = api_client::Client::new(parse_root_url(root_url)?, options)?;
        Ok(Self(client))
    }

    /// The reply; `Null` if it has no body.
    pub(super) async fn call(
        &self,
        call: &Call,
        by: Option<&Credentials>,
    ) -> Result<Value, CallError> {
        let body = self.0.exchange(call, by, &mut |_| None).await?;
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&body).map_err(|error| CallError::BadReply(error.to_string()))
    }

    /// Sends a file to the URL that a queue gave for it.
    pub(super) async fn put(&self, url: &str, text: String) -> Result<(), reqwest::Error> {
        let Ok(url) = url.parse::<reqwest::Url>() else {
            return Ok(());
        };
        let sent = self.0.http_for(&url)?.put(url).body(text).send();
        sent.await?.error_for_status().map(drop)
    }
}

/// The credentials in a reply of the server.
pub(super) fn credentials_of(reply: &Value) -> Option<Credentials> {
    let reply = &reply["credentials"];
    let certificate = reply["certificate"].as_str();
    let certificate: Option<Certificate> = certificate
        .map(serde_json::from_str)
        .transpose()
        .unwrap_or_default();
    Some(Credentials {
        client_id: reply["clientId"].as_str()?.to_owned(),
        access_token: Secret::new(reply["accessToken"].as_str()?),
        extension: extension(certificate.as_ref(), None),
    })
}

/// The text of a member of a reply.
pub(super) fn text<'a>(reply: &'a Value, name: &str) -> &'a str {
    reply[name].as_str().unwrap_or_default()
}
