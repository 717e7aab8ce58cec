//! One call of the queue's API: signed, sent, limited, read.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use access::Secret;
use access::hawk::{RequestLine, payload_hash, sign_header};
use access::slugid;
use domain::time::Clock;
use rand::Rng;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::DemandError;

const CONNECT_LIMIT: Duration = Duration::from_secs(5);
const CALL_LIMIT: Duration = Duration::from_secs(20);
/// An answer that is larger is none.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;
/// So much of a refusal goes into the error.
const MAX_MESSAGE: usize = 500;
const JSON: &str = "application/json";

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
    http: reqwest::Client,
    base: String,
    client_id: String,
    access_token: Secret,
    clock: Arc<dyn Clock>,
    random: Mutex<Box<dyn Rng + Send>>,
}

impl Caller {
    pub(super) fn new(access: QueueAccess) -> Result<Self, DemandError> {
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT_LIMIT)
            .timeout(CALL_LIMIT)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(DemandError::Client)?;
        Ok(Self {
            http,
            base: format!("{}/api/queue/v1", access.root_url.trim_end_matches('/')),
            client_id: access.client_id,
            access_token: access.access_token,
            clock: access.clock,
            random: Mutex::new(access.random),
        })
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, DemandError> {
        self.call("GET", path, None).await
    }

    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<T, DemandError> {
        self.call("POST", path, Some(body.to_string())).await
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: Option<String>,
    ) -> Result<T, DemandError> {
        let url = self.url(path);
        let no_answer = |problem: String| DemandError::NoAnswer {
            url: url.clone(),
            problem,
        };
        let unreachable = |source: reqwest::Error| DemandError::Unreachable {
            url: url.clone(),
            source: source.without_url(),
        };
        let parsed: Url = url.parse().map_err(|_| no_answer("no URL".to_owned()))?;
        let header = self.signature(method, &parsed, body.as_deref());
        let mut request = match method {
            "POST" => self.http.post(parsed),
            _ => self.http.get(parsed),
        };
        request = request.header(AUTHORIZATION, header);
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, JSON).body(body);
        }
        let mut reply = request.send().await.map_err(unreachable)?;
        let status = reply.status();
        let mut answer = Vec::new();
        while let Some(chunk) = reply.chunk().await.map_err(unreachable)? {
            if answer.len() + chunk.len() > MAX_ANSWER_BYTES {
                return Err(no_answer(format!("more than {MAX_ANSWER_BYTES} bytes")));
            }
            answer.extend_from_slice(&chunk);
        }
        if !status.is_success() {
            return Err(DemandError::Refused {
                url,
                status: status.as_u16(),
                message: message_of(&answer),
            });
        }
        serde_json::from_slice(&answer).map_err(|problem| no_answer(problem.to_string()))
    }

    fn signature(&self, method: &str, url: &Url, body: Option<&str>) -> String {
        let resource = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        let line = RequestLine {
            method,
            resource: &resource,
            host: url.host_str().unwrap_or_default(),
            port: url.port_or_known_default().unwrap_or_default(),
        };
        let hash = match body {
            Some(body) => payload_hash(JSON, body.as_bytes()),
            None => payload_hash("", b""),
        };
        let nonce = {
            let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
            slugid::nice(&mut **random)
        };
        let seconds = self.clock.now().as_millis() / 1_000;
        let (id, token) = (&self.client_id, &self.access_token);
        sign_header(&line, id, token, seconds, &nonce, Some(&hash), None)
    }
}

/// What a refusal says, in one line and without the trailer that repeats the question.
fn message_of(answer: &[u8]) -> String {
    let reply: Value = serde_json::from_slice(answer).unwrap_or_default();
    let text = reply["message"].as_str().or(reply["error"].as_str());
    let text = text.unwrap_or("without a word");
    let text = text.split("\n---\n").next().unwrap_or(text);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(MAX_MESSAGE).collect()
}
