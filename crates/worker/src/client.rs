//! A small client of the HTTP API: signs a call, sends it, and reads a bounded reply.
//!
//! It sends each call once. Who calls knows until when a repetition makes sense, and `retried`
//! repeats until then what may still work.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use access::hawk::{RequestLine, payload_hash, sign_header};
use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use reqwest::{Method, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;

use crate::credentials::Credentials;
use crate::machine::{Backoff, Machine};

const CONNECT_LIMIT: Duration = Duration::from_secs(5);
const CALL_LIMIT: Duration = Duration::from_secs(20);
/// The server holds a claim for 20 s when there is no work.
const CLAIM_LIMIT: Duration = Duration::from_secs(45);
/// A reply with the most claims (32), each with the largest task (1 MiB) and its credentials.
const MAX_REPLY_BYTES: usize = 48 << 20;
/// As much of a refusal as is worth showing.
const MAX_MESSAGE_CHARACTERS: usize = 1_000;
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LONGEST_RETRY: Duration = Duration::from_secs(15);
pub(crate) const JSON: &str = "application/json";
pub(crate) const BYTES: &str = "application/octet-stream";

/// What stays as it is in a path; a `/` inside a name does not.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

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
    method: Method,
    path: String,
    body: Body,
    limit: Duration,
}

enum Body {
    Nothing,
    Json(Bytes),
    Raw(Bytes),
}

/// Sends calls to one server.
pub(crate) struct Client {
    http: reqwest::Client,
    /// For other servers, made when it is needed.
    elsewhere: OnceLock<reqwest::Client>,
    root_url: Url,
    pub(crate) machine: Arc<Machine>,
    /// When a call last succeeded.
    last_success: Mutex<Instant>,
}

#[derive(Debug, thiserror::Error)]
pub enum BadRootUrl {
    #[error("{0:?} is no root URL: one looks like https://fleet.example.com, without a path")]
    Malformed(String),
    #[error("cannot set up the HTTP client")]
    Http(#[source] reqwest::Error),
}

impl CallError {
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
        let mut path = format!("/api/{service}/v1");
        for segment in segments {
            path.push('/');
            path.extend(utf8_percent_encode(segment, ESCAPED));
        }
        Self {
            name,
            method,
            path,
            body: Body::Nothing,
            limit: CALL_LIMIT,
        }
    }

    pub(crate) fn query(mut self, query: &str) -> Self {
        self.path.push('?');
        self.path.push_str(query);
        self
    }

    pub(crate) fn json(mut self, body: &Value) -> Self {
        self.body = Body::Json(Bytes::from(body.to_string()));
        self
    }

    pub(crate) fn raw(mut self, body: Bytes) -> Self {
        self.body = Body::Raw(body);
        self
    }

    /// Waits as long as the server holds a claim.
    pub(crate) fn long(mut self) -> Self {
        self.limit = CLAIM_LIMIT;
        self
    }
}

impl Client {
    pub(crate) fn new(root_url: &str, machine: Arc<Machine>) -> Result<Self, BadRootUrl> {
        let root_url = parse_root_url(root_url)?;
        let http = http_client(&root_url).map_err(BadRootUrl::Http)?;
        Ok(Self {
            http,
            elsewhere: OnceLock::new(),
            root_url,
            machine,
            last_success: Mutex::new(Instant::now()),
        })
    }

    /// The address of the server, without a slash at its end.
    pub(crate) fn root_url(&self) -> &str {
        self.root_url.as_str().trim_end_matches('/')
    }

    /// What to send plain requests to this address with.
    pub(crate) fn http_for(&self, url: &Url) -> Result<reqwest::Client, reqwest::Error> {
        if url.origin() == self.root_url.origin() {
            return Ok(self.http.clone());
        }
        if let Some(http) = self.elsewhere.get() {
            return Ok(http.clone());
        }
        let http = http_builder().build()?;
        Ok(self.elsewhere.get_or_init(|| http).clone())
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
        let (status, body) = tokio::time::timeout(call.limit, self.exchange(call, credentials))
            .await
            .map_err(|_| "it took too long".to_owned())
            .and_then(|outcome| outcome.map_err(|problem| innermost(&problem)))
            .map_err(|reason| CallError::NoAnswer {
                call: call.name,
                reason,
            })?;
        if !(200..300).contains(&status) {
            return Err(CallError::Refused {
                call: call.name,
                status,
                message: message_of(&body.unwrap_or_default()),
            });
        }
        *self.lock() = Instant::now();
        let body = body.ok_or_else(|| CallError::BadReply {
            call: call.name,
            reason: format!("it is longer than {} MiB", MAX_REPLY_BYTES >> 20),
        })?;
        serde_json::from_slice(&body).map_err(|problem| CallError::BadReply {
            call: call.name,
            reason: problem.to_string(),
        })
    }

    /// Sends a call again and again until it is answered for good, or `limit` has come.
    pub(crate) async fn retried<T: DeserializeOwned>(
        &self,
        call: &Call,
        credentials: Option<&Credentials>,
        limit: Instant,
    ) -> Result<T, CallError> {
        let mut backoff = Backoff::new(FIRST_RETRY, LONGEST_RETRY);
        loop {
            match self.send(call, credentials).await {
                Err(problem) if problem.may_pass() => {
                    if !backoff.wait(&self.machine, limit).await {
                        return Err(problem);
                    }
                }
                outcome => return outcome,
            }
        }
    }

    /// The status and the body, unless that is too long.
    async fn exchange(
        &self,
        call: &Call,
        credentials: Option<&Credentials>,
    ) -> Result<(u16, Option<Vec<u8>>), reqwest::Error> {
        let (path, query) = match call.path.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (call.path.as_str(), None),
        };
        let mut url = self.root_url.clone();
        url.set_path(path);
        url.set_query(query);
        let mut request = self.http.request(call.method.clone(), url.clone());
        if let Some(credentials) = credentials {
            request = request.header(AUTHORIZATION, self.signature(call, &url, credentials));
        }
        request = match &call.body {
            Body::Nothing => request,
            Body::Json(body) => request.header(CONTENT_TYPE, JSON).body(body.clone()),
            Body::Raw(body) => request.header(CONTENT_TYPE, BYTES).body(body.clone()),
        };
        let mut response = request.send().await?;
        let status = response.status().as_u16();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            if body.len() + chunk.len() > MAX_REPLY_BYTES {
                return Ok((status, None));
            }
            body.extend_from_slice(&chunk);
        }
        Ok((status, Some(body)))
    }

    fn signature(&self, call: &Call, url: &Url, credentials: &Credentials) -> String {
        // The server does not hash what it streams to a file.
        let hash = match &call.body {
            Body::Nothing => Some(payload_hash("", b"")),
            Body::Json(body) => Some(payload_hash(JSON, body)),
            Body::Raw(_) => None,
        };
        let resource = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        let line = RequestLine {
            method: call.method.as_str(),
            resource: &resource,
            host: url.host_str().unwrap_or_default(),
            port: url.port_or_known_default().unwrap_or_default(),
        };
        sign_header(
            &line,
            &credentials.client_id,
            &credentials.access_token,
            self.machine.now().as_millis() / 1_000,
            &self.machine.nonce(),
            hash.as_deref(),
            credentials.extension.as_deref(),
        )
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Instant> {
        // A moment is never half written.
        self.last_success
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn parse_root_url(text: &str) -> Result<Url, BadRootUrl> {
    let url: Option<Url> = text.parse().ok();
    url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
        .ok_or_else(|| BadRootUrl::Malformed(text.to_owned()))
}

/// Does not load the system's certificates where nothing will be encrypted: that costs more time
/// than all the rest of a worker's start.
fn http_client(root_url: &Url) -> Result<reqwest::Client, reqwest::Error> {
    let mut builder = http_builder();
    if root_url.scheme() == "http" {
        builder = builder.tls_certs_only([]);
    }
    if is_loopback(root_url) {
        builder = builder.no_proxy();
    }
    builder.build()
}

fn http_builder() -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .connect_timeout(CONNECT_LIMIT)
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("fleetwright-worker/", env!("CARGO_PKG_VERSION")))
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    host == "localhost"
        || host
            .trim_matches(['[', ']'])
            .parse()
            .is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

/// The cause at the bottom: "Connection refused", not "error sending request".
pub(crate) fn innermost(problem: &dyn std::error::Error) -> String {
    let mut cause = problem;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

/// An error and its causes, in one line.
pub(crate) fn chain(problem: &dyn std::error::Error) -> String {
    let mut text = problem.to_string();
    let mut next = problem.source();
    while let Some(cause) = next {
        text.push_str(&format!(": {cause}"));
        next = cause.source();
    }
    text
}

/// What a refusal says, without the trailer that repeats the request.
fn message_of(body: &[u8]) -> String {
    let reply: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    let message = reply["message"].as_str().unwrap_or("no reason was given");
    let message = message.split("\n---\n").next().unwrap_or(message).trim();
    message.chars().take(MAX_MESSAGE_CHARACTERS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_root_url_is_refused() {
        for text in ["", "fleet.example.com", "ftp://x", "http://", "x y"] {
            let problem = parse_root_url(text).unwrap_err().to_string();
            assert!(problem.contains("is no root URL"), "{problem}");
        }
        assert!(parse_root_url("http://127.0.0.1:8080/").is_ok());
    }

    #[test]
    fn names_are_escaped_in_paths() {
        let call = Call::new("x", Method::GET, "queue", &["claim-work", "a/b"]).query("offset=1");
        assert_eq!(call.path, "/api/queue/v1/claim-work/a%2Fb?offset=1");
    }

    #[test]
    fn a_refusal_is_shown_without_its_trailer_and_bounded() {
        let body = br#"{"message": "Bad proof\n\n---\n\n* method: registerWorker"}"#;
        assert_eq!(message_of(body), "Bad proof");
        for odd in [&b""[..], b"<html>", b"[]", b"{\"message\": 5}"] {
            assert_eq!(message_of(odd), "no reason was given");
        }
        let long = format!("{{\"message\": \"{}\"}}", "é".repeat(5_000));
        assert_eq!(message_of(long.as_bytes()).chars().count(), 1_000);
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
