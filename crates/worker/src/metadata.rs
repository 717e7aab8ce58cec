//! Asks the metadata service of a cloud's machine.

use std::time::Duration;

use api_client::{BodyError, read_body};
use reqwest::{Method, StatusCode, Url};
use serde::Deserialize;

use crate::identity::BadIdentity;
use crate::machine::pause;

/// The address of the service on every machine of each cloud.
pub const METADATA_URL: &str = "http://169.254.169.254";
const CALL_LIMIT: Duration = Duration::from_secs(5);
const MAX_ATTEMPTS: u32 = 8;
const RETRY: Duration = Duration::from_millis(500);
/// Google's metadata have at most 256 KiB for one key, and all other replies are smaller.
const MAX_REPLY_BYTES: usize = 512 << 10;

/// The metadata service of this machine.
pub(crate) struct MetadataService {
    http: reqwest::Client,
    url: Url,
}

#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
    #[error("{0:?} is not a valid address of a metadata service")]
    Url(String),
    #[error("cannot set up the HTTP client")]
    Http(#[source] reqwest::Error),
    #[error("the metadata service does not return {what}: {reason}")]
    NoAnswer { what: &'static str, reason: String },
    #[error("{what} of this machine has an unknown form")]
    Malformed {
        what: &'static str,
        #[source]
        source: serde_json::Error,
    },
    #[error("this machine has no tag {0}: the server did not launch it for a worker")]
    NoTag(&'static str),
    #[error("the machine has no valid worker identity")]
    Identity(#[from] BadIdentity),
}

/// A question to the service.
#[derive(Clone)]
pub(crate) struct MetadataCall<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) query: &'a [(&'a str, &'a str)],
    /// The header by which the service knows that the question is meant for it.
    pub(crate) header: (&'static str, &'a str),
}

impl MetadataService {
    pub(crate) fn at(url: &str) -> Result<Self, MetadataError> {
        let parsed: Url = url
            .parse()
            .ok()
            .filter(|url: &Url| url.scheme() == "http" && url.has_host())
            .ok_or_else(|| MetadataError::Url(url.to_owned()))?;
        // The service is on this machine, whatever proxies the environment names.
        let http = reqwest::Client::builder()
            .no_proxy()
            .tls_certs_only([])
            .redirect(reqwest::redirect::Policy::none())
            .timeout(CALL_LIMIT)
            .build()
            .map_err(MetadataError::Http)?;
        Ok(Self { http, url: parsed })
    }

    /// The service may not respond yet when the machine has just been started.
    pub(crate) async fn ask_with_retries(
        &self,
        what: &'static str,
        call: MetadataCall<'_>,
    ) -> Result<String, MetadataError> {
        let mut attempt = 1;
        loop {
            let reason = match self.ask(call.clone()).await {
                Ok((status, text)) if status.is_success() => return Ok(text),
                Ok((status, _)) => format!("it answers {status}"),
                Err(problem) => problem,
            };
            if attempt >= MAX_ATTEMPTS {
                return Err(MetadataError::NoAnswer { what, reason });
            }
            attempt += 1;
            pause(RETRY).await;
        }
    }

    pub(crate) async fn ask(&self, call: MetadataCall<'_>) -> Result<(StatusCode, String), String> {
        let mut url = self.url.clone();
        url.set_path(&format!(
            "{}{}",
            self.url.path().trim_end_matches('/'),
            call.path
        ));
        if !call.query.is_empty() {
            url.query_pairs_mut().extend_pairs(call.query);
        }
        let (name, value) = call.header;
        let request = self.http.request(call.method, url).header(name, value);
        let describe = |error: reqwest::Error| api_client::root_cause(&error);
        let response = request.send().await.map_err(describe)?;
        let status = response.status();
        let body = read_body(response, MAX_REPLY_BYTES).await;
        let body = body.map_err(|error| match error {
            BodyError::Broken(error) => describe(error),
            BodyError::TooLong(most) => format!("the response is longer than {most} bytes"),
        })?;
        let text = String::from_utf8(body).map_err(|_| "the response is not UTF-8".to_owned())?;
        Ok((status, text))
    }
}

pub(crate) fn parse<'a, T: Deserialize<'a>>(
    what: &'static str,
    text: &'a str,
) -> Result<T, MetadataError> {
    serde_json::from_str(text).map_err(|source| MetadataError::Malformed { what, source })
}

/// The data that the launch of a machine wrote for its worker, in Taskcluster's form.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LaunchData {
    pub(crate) root_url: String,
    pub(crate) provider_id: String,
    pub(crate) worker_pool_id: String,
    pub(crate) worker_group: String,
}
