//! A strategy service for tests: keeps the requests, checks their form, and answers as configured.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use access::Secret;
use bytes::Bytes;
use cloud::StrategySettings;
use contract::Schemas;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use server::config::Config;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

pub(crate) const SECRET: &str = "a-secret-of-more-than-22-characters";

/// How the service answers.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Answer(Value),
    Says(u16, String),
    /// Never.
    Silence,
}

pub(crate) struct TestStrategy {
    pub(crate) url: String,
    state: Arc<State>,
    serving: JoinHandle<()>,
}

struct State {
    reply: Mutex<Reply>,
    requests: Mutex<Vec<Value>>,
    /// Each answer takes a permit.
    permits: Semaphore,
}

impl TestStrategy {
    /// Changes nothing until its reply is set.
    pub(crate) async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State {
            reply: Mutex::new(Reply::Answer(json!({"version": 1}))),
            requests: Mutex::default(),
            permits: Semaphore::new(1_000_000),
        });
        let shared = Arc::clone(&state);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                let service = service_fn(move |request| answer(Arc::clone(&state), request));
                let served = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(served);
            }
        });
        Self {
            url: format!("http://127.0.0.1:{port}/brain"),
            state,
            serving,
        }
    }

    /// Adds the service to a configuration under this name.
    pub(crate) fn add_to(&self, config: &mut Config, name: &str, time_limit_seconds: u64) {
        let settings = StrategySettings {
            url: self.url.clone(),
            secret: Some(Secret::new(SECRET)),
            secret_file: None,
            time_limit_seconds,
            max_answer_bytes: 10_000,
        };
        config.strategies.insert(name.parse().unwrap(), settings);
    }

    pub(crate) fn set(&self, reply: Reply) {
        *self.state.reply.lock().unwrap() = reply;
    }

    /// Starts this many machines of the launch config `a` at each request.
    pub(crate) fn start(&self, machines: u64) {
        let launches = json!([{"launchConfigId": "a", "machines": machines}]);
        let answer = json!({"version": 1, "launches": launches, "reasons": ["a push is coming"]});
        self.set(Reply::Answer(answer));
    }

    /// Requests stay unanswered until `let_go`.
    pub(crate) fn hold(&self) {
        let taken = self.state.permits.try_acquire_many(1_000_000).unwrap();
        taken.forget();
    }

    pub(crate) fn let_go(&self) {
        self.state.permits.add_permits(1_000_000);
    }

    /// Connections are refused from now on.
    pub(crate) async fn stop(&self) {
        self.serving.abort();
        while !self.serving.is_finished() {
            tokio::task::yield_now().await;
        }
    }

    pub(crate) fn n_requests(&self) -> usize {
        self.state.requests.lock().unwrap().len()
    }

    pub(crate) fn last_request(&self) -> Value {
        self.state.requests.lock().unwrap().last().unwrap().clone()
    }
}

impl Drop for TestStrategy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn answer(
    state: Arc<State>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let checked = Schemas::new().check("fleetwright/v1/strategy-request.json", &body);
    state.requests.lock().unwrap().push(body);
    let _permit = state.permits.acquire().await.unwrap();
    if let Err(invalid) = checked {
        return Ok(reply(400, &invalid.to_string()));
    }
    if path != "/brain/v1/plan" {
        return Ok(reply(404, &path));
    }
    let told = state.reply.lock().unwrap().clone();
    match told {
        Reply::Answer(answer) => Ok(reply(200, &answer.to_string())),
        Reply::Says(status, text) => Ok(reply(status, &text)),
        Reply::Silence => std::future::pending().await,
    }
}

fn reply(status: u16, text: &str) -> Response<Full<Bytes>> {
    let response = Response::builder()
        .status(status)
        .header("location", "/elsewhere");
    response
        .body(Full::new(Bytes::from(text.to_owned())))
        .unwrap()
}
