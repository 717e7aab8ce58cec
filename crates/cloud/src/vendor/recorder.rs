//! A server for tests: it records requests, and sends the answers that a test queued.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use reqwest::Method;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::error::Vendor;
use domain::launch::Cause;

const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;

/// A vendor whose errors are `{"code": …, "message": …}`.
pub(crate) static TEST_VENDOR: Vendor = Vendor {
    name: "Test",
    read_error: |body| {
        let text = |key: &str| body[key].as_str().map(str::to_owned);
        Some((text("code")?, text("message")?))
    },
    causes: &[("NO_STOCK", Some(Cause::Capacity)), ("MAYBE", None)],
};

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Recorded {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// An answer; `None`: the connection is closed without one.
type Queued = Option<(u16, Vec<(&'static str, String)>, Bytes)>;

#[derive(Default)]
struct State {
    calls: Vec<Recorded>,
    answers: VecDeque<Queued>,
}

pub(crate) struct Recorder {
    pub(crate) url: String,
    state: Arc<Mutex<State>>,
}

impl Recorder {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let state = Arc::clone(&shared);
                let service = service_fn(move |request| serve(request, Arc::clone(&state)));
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                // Some tests cut connections on purpose.
                tokio::spawn(async move { drop(connection.await) });
            }
        });
        Self { url, state }
    }

    /// Queues an answer. Without one, a request gets status 500.
    pub(crate) fn answer(&self, status: u16, body: Value) {
        self.answer_with(status, &[], body);
    }

    pub(crate) fn answer_with(&self, status: u16, headers: &[(&'static str, &str)], body: Value) {
        let body = if body.is_null() {
            Bytes::new()
        } else {
            body.to_string().into()
        };
        let headers = headers
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        self.queue(Some((status, headers.collect(), body)));
    }

    pub(crate) fn answer_text(&self, status: u16, body: &str) {
        self.answer_text_with(status, &[], body);
    }

    pub(crate) fn answer_text_with(
        &self,
        status: u16,
        headers: &[(&'static str, &str)],
        body: &str,
    ) {
        let headers = headers
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        self.queue(Some((status, headers.collect(), body.to_owned().into())));
    }

    /// Queues the end of the connection without an answer.
    pub(crate) fn cut(&self) {
        self.queue(None);
    }

    fn queue(&self, answer: Queued) {
        self.state.lock().unwrap().answers.push_back(answer);
    }

    pub(crate) fn calls(&self) -> Vec<Recorded> {
        self.state.lock().unwrap().calls.clone()
    }
}

#[derive(Debug, thiserror::Error)]
#[error("cut")]
struct ConnectionCut;

async fn serve(
    request: Request<Incoming>,
    state: Arc<Mutex<State>>,
) -> Result<Response<Full<Bytes>>, ConnectionCut> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, MAX_BODY_BYTES).collect().await.unwrap();
    let answer = {
        let mut state = state.lock().unwrap();
        state.calls.push(Recorded {
            method: head.method,
            target: head.uri.to_string(),
            headers: head.headers,
            body: body.to_bytes(),
        });
        state.answers.pop_front()
    };
    let nothing = || json!({"code": "", "message": "no answer is queued"}).to_string();
    let (status, headers, body) = match answer {
        Some(Some(answer)) => answer,
        Some(None) => return Err(ConnectionCut),
        None => (500, Vec::new(), nothing().into()),
    };
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(name, value);
    }
    Ok(response.body(Full::new(body)).unwrap())
}
