//! Sends calls to a server: signed, with limits, and repeated if the caller wants.

use std::net::IpAddr;
use std::sync::OnceLock;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use reqwest::redirect::Policy;
use reqwest::{Method, Response, StatusCode, Url};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::body::{BodyError, read_body};
use super::call::Call;
use super::credentials::{Credentials, Stamp, authorization};
use super::error::{CallError, Refusal};

/// The header of a refusal with the next step.
const ADVICE: &str = "fleetwright-advice";
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

pub struct Options {
    pub user_agent: Option<&'static str>,
    /// Maximum time for a reply and its body; a call may set another.
    pub call_limit: Duration,
    pub max_reply_bytes: usize,
    /// Makes the time and nonce of each signature.
    pub stamp: Box<dyn Fn() -> Stamp + Send + Sync>,
    pub observer: Option<Observer>,
}

/// Receives each attempt.
pub type Observer = Box<dyn Fn(&Sent<'_>) + Send + Sync>;

/// An attempt at a call, up to the head of the reply.
pub struct Sent<'a> {
    pub method: &'a Method,
    pub url: &'a Url,
    pub outcome: Result<StatusCode, &'a reqwest::Error>,
    pub elapsed: Duration,
}

pub struct Client {
    http: reqwest::Client,
    /// A client for other servers, made when needed.
    elsewhere: OnceLock<reqwest::Client>,
    root_url: Url,
    options: Options,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a root URL{reason}")]
pub struct BadRootUrl {
    text: String,
    reason: String,
}

/// Decides after an error how long to wait before the next attempt; `None` ends the call.
pub type Retry<'a> = dyn FnMut(&CallError) -> Option<Duration> + Send + 'a;

impl Client {
    pub fn new(root_url: Url, options: Options) -> Result<Self, reqwest::Error> {
        Ok(Self {
            http: http_for(&root_url, &options)?,
            elsewhere: OnceLock::new(),
            root_url,
            options,
        })
    }

    /// The URL of the server, without a slash at its end.
    pub fn root_url(&self) -> &str {
        self.root_url.as_str().trim_end_matches('/')
    }

    pub fn url(&self, call: &Call) -> Url {
        let (path, query) = match call.resource.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (call.resource.as_str(), None),
        };
        let mut url = self.root_url.clone();
        url.set_path(&format!("{}{path}", url.path().trim_end_matches('/')));
        url.set_query(query);
        url
    }

    /// An HTTP client for plain requests to any URL.
    pub fn http_for(&self, url: &Url) -> Result<reqwest::Client, reqwest::Error> {
        if url.origin() == self.root_url.origin() {
            return Ok(self.http.clone());
        }
        if is_loopback(url) {
            return http_for(url, &self.options);
        }
        if let Some(http) = self.elsewhere.get() {
            return Ok(http.clone());
        }
        let http = http_builder(&self.options).build()?;
        Ok(self.elsewhere.get_or_init(|| http).clone())
    }

    /// Sends a call once, without reading the body of the reply.
    pub async fn send(
        &self,
        call: &Call,
        credentials: Option<&Credentials>,
    ) -> Result<Response, CallError> {
        let url = self.url(call);
        let mut request = self.http.request(call.method.clone(), url.clone());
        if let Some(credentials) = credentials {
            let stamp = (self.options.stamp)();
            let header = authorization(credentials, &call.method, &url, &call.body, &stamp);
            request = request.header(AUTHORIZATION, header);
        }
        if let Some((content_type, body)) = call.body.content() {
            request = request.header(CONTENT_TYPE, content_type).body(body);
        }
        for (name, value) in &call.headers {
            request = request.header(*name, value);
        }
        if let Some(limit) = call.limit {
            request = request.timeout(limit);
        }
        let started = Instant::now();
        let outcome = request.send().await;
        if let Some(observer) = &self.options.observer {
            observer(&Sent {
                method: &call.method,
                url: &url,
                outcome: outcome.as_ref().map(Response::status),
                elapsed: started.elapsed(),
            });
        }
        outcome.map_err(CallError::NoAnswer)
    }

    /// Reads the body of a reply, and returns an error for a refusal.
    pub async fn read(&self, response: Response) -> Result<Vec<u8>, CallError> {
        let status = response.status();
        let advice = response.headers().get(ADVICE);
        let advice = advice.and_then(|it| it.to_str().ok()).map(str::to_owned);
        let body = match read_body(response, self.options.max_reply_bytes).await {
            Err(BodyError::Broken(source)) => return Err(CallError::NoAnswer(source)),
            Err(too_long @ BodyError::TooLong(_)) => Err(too_long),
            Ok(body) => Ok(body),
        };
        if !status.is_success() {
            let body = body.unwrap_or_default();
            return Err(CallError::Refused(Refusal {
                status,
                body,
                advice,
            }));
        }
        body.map_err(|problem| CallError::BadReply(problem.to_string()))
    }

    /// Sends a call and reads the reply, and repeats both until they succeed or `retry` ends the
    /// call.
    pub async fn exchange(
        &self,
        call: &Call,
        credentials: Option<&Credentials>,
        retry: &mut Retry<'_>,
    ) -> Result<Vec<u8>, CallError> {
        loop {
            let outcome = match self.send(call, credentials).await {
                Ok(response) => self.read(response).await,
                Err(problem) => Err(problem),
            };
            match &outcome {
                Ok(_) => return outcome,
                Err(problem) => match retry(problem) {
                    Some(delay) => pause(delay).await,
                    None => return outcome,
                },
            }
        }
    }

    /// Like `exchange`, for a reply in JSON.
    pub async fn call<T: DeserializeOwned>(
        &self,
        call: &Call,
        credentials: Option<&Credentials>,
        retry: &mut Retry<'_>,
    ) -> Result<T, CallError> {
        let body = self.exchange(call, credentials, retry).await?;
        serde_json::from_slice(&body).map_err(|problem| CallError::BadReply(problem.to_string()))
    }
}

/// Does not load the system's certificates if nothing will be encrypted: loading takes longer than
/// the rest of a worker's start.
fn http_for(url: &Url, options: &Options) -> Result<reqwest::Client, reqwest::Error> {
    let mut builder = http_builder(options);
    if url.scheme() == "http" {
        builder = builder.tls_certs_only([]);
    }
    if is_loopback(url) {
        builder = builder.no_proxy();
    }
    builder.build()
}

fn http_builder(options: &Options) -> reqwest::ClientBuilder {
    let builder = reqwest::Client::builder()
        .connect_timeout(CONNECT_LIMIT)
        .timeout(options.call_limit)
        .redirect(Policy::none());
    match options.user_agent {
        Some(name) => builder.user_agent(name),
        None => builder,
    }
}

/// Parses the URL of a server.
pub fn parse_root_url(text: &str) -> Result<Url, BadRootUrl> {
    let url = parse_base_url(text)?;
    let bad = |reason: String| {
        Err(BadRootUrl {
            text: text.to_owned(),
            reason,
        })
    };
    match (url.path().trim_matches('/'), url.query(), url.fragment()) {
        ("", None, None) => Ok(url),
        ("", None, Some(fragment)) => bad(format!(": it has the fragment #{fragment}")),
        ("", Some(query), _) => bad(format!(": it has the query ?{query}")),
        (_, _, _) => bad(format!(": it has the path {}", url.path())),
    }
}

/// Parses the URL of a server that may be below a path.
pub fn parse_base_url(text: &str) -> Result<Url, BadRootUrl> {
    let url = text.parse().ok();
    let url = url.filter(|url: &Url| matches!(url.scheme(), "http" | "https") && url.has_host());
    url.ok_or_else(|| BadRootUrl {
        text: text.to_owned(),
        reason: String::new(),
    })
}

/// Whether the URL is on this machine.
pub fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse();
    host == "localhost" || address.is_ok_and(|address: IpAddr| address.is_loopback())
}

pub async fn pause(length: Duration) {
    // The future never ends, so this waits for the time limit.
    let nothing = tokio::time::timeout(length, std::future::pending::<()>()).await;
    debug_assert!(nothing.is_err(), "a pending future is never ready");
}

#[cfg(test)]
mod tests;
