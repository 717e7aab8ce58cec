//! A worker on an EC2 instance: its identity, and the notice that AWS will stop the instance.
//!
//! Both come from the metadata service of the instance (version 2, with a token).

use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Duration;

use api_client::{BodyError, read_body};
use reqwest::{Method, StatusCode, Url};
use serde::Deserialize;
use serde_json::json;

use crate::identity::{BadIdentity, Identity, Kind, Names, Proof};
use crate::machine::pause;
use crate::stop::{Stop, Stops};

/// The address of the service on every instance.
pub const METADATA_URL: &str = "http://169.254.169.254";
const CALL_LIMIT: Duration = Duration::from_secs(5);
const MAX_ATTEMPTS: u32 = 8;
const RETRY: Duration = Duration::from_millis(500);
/// User data has at most 16 KiB, and documents are smaller.
const MAX_REPLY_BYTES: usize = 256 << 10;
const TOKEN_SECONDS: &str = "21600";
/// The notice comes two minutes before the stop.
const WATCH_PERIOD: Duration = Duration::from_secs(5);

/// The metadata service of this instance.
pub struct Metadata {
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
    #[error("{what} of this instance has an unknown form")]
    Malformed {
        what: &'static str,
        #[source]
        source: serde_json::Error,
    },
    #[error("the instance has no valid worker identity")]
    Identity(#[from] BadIdentity),
}

/// The user data that the launch of the instance wrote.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UserData {
    root_url: String,
    provider_id: String,
    worker_pool_id: String,
    worker_group: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    instance_id: String,
    region: String,
    availability_zone: String,
}

impl Metadata {
    pub fn at(url: &str) -> Result<Self, MetadataError> {
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

    /// The identity of the worker for which this instance was launched.
    pub async fn identity(&self, work_dir: PathBuf) -> Result<Identity, MetadataError> {
        let token = self
            .ask_with_retries("a token", Method::PUT, "/latest/api/token", None)
            .await?;
        let get = async |what, path| {
            self.ask_with_retries(what, Method::GET, path, Some(&token))
                .await
        };
        let user_data = get("its user data", "/latest/user-data").await?;
        let document = get(
            "its identity document",
            "/latest/dynamic/instance-identity/document",
        )
        .await?;
        let signature = get(
            "its signature",
            "/latest/dynamic/instance-identity/signature",
        )
        .await?;
        let user_data: UserData = parse("the user data", &user_data)?;
        let told: Document = parse("the identity document", &document)?;
        let names = Names {
            provider_id: &user_data.provider_id,
            pool: &user_data.worker_pool_id,
            group: &user_data.worker_group,
            id: &told.instance_id,
        };
        let proof = Proof::Document {
            document,
            signature,
        };
        Ok(Identity {
            kind: Kind::Launched,
            location: json!({
                "cloud": "aws",
                "region": told.region,
                "availabilityZone": told.availability_zone,
            }),
            ..Identity::of(names, user_data.root_url, proof)?.working_in(work_dir)
        })
    }

    /// Whether a time is set at which the instance will be stopped.
    async fn is_ending(&self) -> Result<bool, String> {
        let (_, token) = self.ask(Method::PUT, "/latest/api/token", None).await?;
        let path = "/latest/meta-data/spot/termination-time";
        let (status, _) = self.ask(Method::GET, path, Some(&token)).await?;
        Ok(status.is_success())
    }

    /// The service may not respond yet when the instance has just been started.
    async fn ask_with_retries(
        &self,
        what: &'static str,
        method: Method,
        path: &str,
        token: Option<&str>,
    ) -> Result<String, MetadataError> {
        let mut attempt = 1;
        loop {
            let reason = match self.ask(method.clone(), path, token).await {
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

    async fn ask(
        &self,
        method: Method,
        path: &str,
        token: Option<&str>,
    ) -> Result<(StatusCode, String), String> {
        let mut url = self.url.clone();
        url.set_path(path);
        let request = self.http.request(method, url);
        let request = match token {
            Some(token) => request.header("X-aws-ec2-metadata-token", token),
            None => request.header("X-aws-ec2-metadata-token-ttl-seconds", TOKEN_SECONDS),
        };
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

/// Requests a drain when the instance is about to be stopped. Waits for ever without a service.
pub(crate) async fn watch(metadata: Option<Metadata>, stops: Stops) -> Infallible {
    if let Some(metadata) = metadata {
        loop {
            pause(WATCH_PERIOD).await;
            match metadata.is_ending().await {
                Ok(true) => break,
                Ok(false) => {}
                Err(problem) => tracing::debug!("no answer from the metadata service: {problem}"),
            }
        }
        tracing::warn!("AWS is about to stop this instance");
        stops.ask(Stop::Drain);
    }
    std::future::pending().await
}

fn parse<'a, T: Deserialize<'a>>(what: &'static str, text: &'a str) -> Result<T, MetadataError> {
    serde_json::from_str(text).map_err(|source| MetadataError::Malformed { what, source })
}
