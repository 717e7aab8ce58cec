//! A worker on an instance of EC2: who it is, and whether the instance is about to be taken away.
//!
//! Both are told by the metadata service of the instance (version 2, with a token).

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

/// Where every instance finds the service.
pub const METADATA_URL: &str = "http://169.254.169.254";
const CALL_LIMIT: Duration = Duration::from_secs(5);
const MAX_ATTEMPTS: u32 = 8;
const RETRY: Duration = Duration::from_millis(500);
/// User data may have 16 KiB, documents have less.
const MAX_REPLY_BYTES: usize = 256 << 10;
const TOKEN_SECONDS: &str = "21600";
/// The notice comes two minutes ahead.
const WATCH_PERIOD: Duration = Duration::from_secs(5);

/// The metadata service of this instance.
pub struct Metadata {
    http: reqwest::Client,
    url: Url,
}

#[derive(Debug, thiserror::Error)]
pub enum NoMetadata {
    #[error("{0:?} is no address of a metadata service")]
    Url(String),
    #[error("cannot set up the HTTP client")]
    Http(#[source] reqwest::Error),
    #[error("the metadata service does not tell {what}: {reason}")]
    NoAnswer { what: &'static str, reason: String },
    #[error("{what} of this instance is not what it should be")]
    Malformed {
        what: &'static str,
        #[source]
        source: serde_json::Error,
    },
    #[error("the instance does not say who it is")]
    Identity(#[from] BadIdentity),
}

/// What the launch of the instance left for us.
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
    pub fn at(url: &str) -> Result<Self, NoMetadata> {
        let parsed: Url = url
            .parse()
            .ok()
            .filter(|url: &Url| url.scheme() == "http" && url.has_host())
            .ok_or_else(|| NoMetadata::Url(url.to_owned()))?;
        // The service is on this machine, whatever the environment says of proxies.
        let http = reqwest::Client::builder()
            .no_proxy()
            .tls_certs_only([])
            .redirect(reqwest::redirect::Policy::none())
            .timeout(CALL_LIMIT)
            .build()
            .map_err(NoMetadata::Http)?;
        Ok(Self { http, url: parsed })
    }

    /// The worker that this instance was launched to be.
    pub async fn identity(&self, work_dir: PathBuf) -> Result<Identity, NoMetadata> {
        let token = self
            .patiently("a token", Method::PUT, "/latest/api/token", None)
            .await?;
        let get = async |what, path| self.patiently(what, Method::GET, path, Some(&token)).await;
        let user_data = get("its user data", "/latest/user-data").await?;
        let document = get("who it is", "/latest/dynamic/instance-identity/document").await?;
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

    /// Whether a time was set at which the instance will be taken away.
    async fn is_ending(&self) -> Result<bool, String> {
        let (_, token) = self.ask(Method::PUT, "/latest/api/token", None).await?;
        let path = "/latest/meta-data/spot/termination-time";
        let (status, _) = self.ask(Method::GET, path, Some(&token)).await?;
        Ok(status.is_success())
    }

    /// The service may not be there yet when the instance has just been started.
    async fn patiently(
        &self,
        what: &'static str,
        method: Method,
        path: &str,
        token: Option<&str>,
    ) -> Result<String, NoMetadata> {
        let mut attempt = 1;
        loop {
            let reason = match self.ask(method.clone(), path, token).await {
                Ok((status, text)) if status.is_success() => return Ok(text),
                Ok((status, _)) => format!("it answers {status}"),
                Err(problem) => problem,
            };
            if attempt >= MAX_ATTEMPTS {
                return Err(NoMetadata::NoAnswer { what, reason });
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
        let told = |problem: reqwest::Error| api_client::root_cause(&problem);
        let response = request.send().await.map_err(told)?;
        let status = response.status();
        let body = read_body(response, MAX_REPLY_BYTES).await;
        let body = body.map_err(|problem| match problem {
            BodyError::Broken(problem) => told(problem),
            BodyError::TooLong(most) => format!("it answers with more than {most} bytes"),
        })?;
        let text = String::from_utf8(body).map_err(|_| "it answers with no text".to_owned())?;
        Ok((status, text))
    }
}

/// Asks to drain when the instance is about to be taken away. Without a service, waits for ever.
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
        tracing::warn!("the cloud takes this instance away");
        stops.ask(Stop::Drain);
    }
    std::future::pending().await
}

fn parse<'a, T: Deserialize<'a>>(what: &'static str, text: &'a str) -> Result<T, NoMetadata> {
    serde_json::from_str(text).map_err(|source| NoMetadata::Malformed { what, source })
}
