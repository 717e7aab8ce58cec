//! A proxy before a server that simulates EC2; it injects failures.
//!
//! It also implements client tokens, which the server does not: one token, one launch.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

const MAX_BODY_BYTES: usize = 1024 * 1024;

/// A failure of the next call of an action.
#[derive(Clone, Debug)]
pub(crate) enum InjectedFailure {
    /// Responds with an error and does nothing.
    Refuse { status: u16, code: &'static str },
    /// Forwards the call, and drops the response.
    LoseAnswer,
    /// Closes the connection before the server gets the call.
    LoseCall,
    /// Never responds.
    Stall,
    /// Limits the stock to this many machines.
    RunShort { stock: u32 },
    /// Forwards the call, and sends another response.
    Answer { status: u16, body: String },
}

pub(crate) struct Proxy {
    pub(crate) url: String,
    state: Arc<State>,
}

struct State {
    target: String,
    http: reqwest::Client,
    told: Mutex<ProxyState>,
}

#[derive(Default)]
struct ProxyState {
    failure: BTreeMap<&'static str, Vec<InjectedFailure>>,
    /// By client token: the call and its response.
    launches: BTreeMap<String, (String, (u16, Bytes))>,
    calls: Vec<BTreeMap<String, String>>,
}

impl Proxy {
    /// Starts a proxy before the server at this address; an empty address means no server.
    pub(crate) async fn start(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let state = Arc::new(State {
            target: target.to_owned(),
            http: reqwest::Client::new(),
            told: Mutex::default(),
        });
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Self {
            url: format!("http://{address}"),
            state,
        }
    }

    /// Adds a failure for the next call of this action that has none yet.
    pub(crate) fn next(&self, action: &'static str, failure: InjectedFailure) {
        let mut told = self.state.told.lock().unwrap();
        told.failure.entry(action).or_default().push(failure);
    }

    /// The parameters of all calls of this action so far.
    pub(crate) fn calls(&self, action: &str) -> Vec<BTreeMap<String, String>> {
        let told = self.state.told.lock().unwrap();
        let of_action = told.calls.iter().filter(|call| call["Action"] == action);
        of_action.cloned().collect()
    }

    /// The signature of the call of this action with this number.
    pub(crate) fn authorization(&self, action: &str, number: usize) -> String {
        self.calls(action)[number][AUTHORIZATION].clone()
    }
}

/// The key of the signature among the parameters of a call; no parameter has this name.
const AUTHORIZATION: &str = "(authorization)";

async fn serve(stream: TcpStream, state: Arc<State>) {
    let service = service_fn(move |request| answer(request, Arc::clone(&state)));
    // Some tests cut connections on purpose.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

#[derive(Debug, thiserror::Error)]
#[error("cut")]
struct ConnectionCut;

async fn answer(
    request: Request<Incoming>,
    state: Arc<State>,
) -> Result<Response<Full<Bytes>>, ConnectionCut> {
    let (head, body) = request.into_parts();
    let form = Limited::new(body, MAX_BODY_BYTES).collect().await.unwrap();
    let form = form.to_bytes();
    let mut call = parameters(&form);
    let signed = head.headers["authorization"].to_str().unwrap().to_owned();
    call.insert(AUTHORIZATION.to_owned(), signed);
    let action = call["Action"].clone();
    let failure = {
        let mut told = state.told.lock().unwrap();
        told.calls.push(call.clone());
        let waiting = told.failure.get_mut(action.as_str());
        waiting
            .filter(|all| !all.is_empty())
            .map(|all| all.remove(0))
    };
    match failure {
        Some(InjectedFailure::Refuse { status, code }) => Ok(refusal(status, code)),
        Some(InjectedFailure::LoseCall) => Err(ConnectionCut),
        Some(InjectedFailure::Stall) => std::future::pending().await,
        Some(InjectedFailure::LoseAnswer) => {
            state.pass_on(&head, &form, &call, None).await;
            Err(ConnectionCut)
        }
        Some(InjectedFailure::Answer { status, body }) => {
            state.pass_on(&head, &form, &call, None).await;
            Ok(response(status, body.into()))
        }
        Some(InjectedFailure::RunShort { stock }) => {
            let (status, body) = state.pass_on(&head, &form, &call, Some(stock)).await;
            Ok(response(status, body))
        }
        None => {
            let (status, body) = state.pass_on(&head, &form, &call, None).await;
            Ok(response(status, body))
        }
    }
}

impl State {
    async fn pass_on(
        &self,
        head: &hyper::http::request::Parts,
        form: &Bytes,
        call: &BTreeMap<String, String>,
        stock: Option<u32>,
    ) -> (u16, Bytes) {
        if self.target.is_empty() {
            return (200, Bytes::new());
        }
        // moto does not have this list.
        if call["Action"] == "DescribeImportSnapshotTasks" {
            let body = "<Response><importSnapshotTaskSet/></Response>";
            return (200, body.into());
        }
        let text = String::from_utf8(form.to_vec()).unwrap();
        let token = call.get("ClientToken");
        if let Some(token) = token
            && let Some((first, answer)) = self.told.lock().unwrap().launches.get(token)
        {
            return if *first == text {
                answer.clone()
            } else {
                let body = error("IdempotentParameterMismatch");
                (400, body.into())
            };
        }
        // The server makes only `MinCount` machines; EC2 makes as many as it can.
        let made = stock.map(|stock| stock.to_string());
        let made = made.as_ref().or(call.get("MaxCount"));
        let sent = match made {
            Some(made) => text.replace("&MinCount=1", &format!("&MinCount={made}")),
            None => text.clone(),
        };
        let mut request = self.http.post(&self.target).body(sent);
        for name in ["authorization", "content-type", "x-amz-date"] {
            request = request.header(name, &head.headers[name]);
        }
        let answer = request.send().await.unwrap();
        let answer = (answer.status().as_u16(), answer.bytes().await.unwrap());
        if let Some(token) = token {
            let mut told = self.told.lock().unwrap();
            told.launches.insert(token.clone(), (text, answer.clone()));
        }
        answer
    }
}

fn parameters(form: &[u8]) -> BTreeMap<String, String> {
    let decode = |text: &str| {
        let decoded = percent_encoding::percent_decode_str(text).decode_utf8();
        decoded.unwrap().into_owned()
    };
    let text = std::str::from_utf8(form).unwrap();
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap();
        (decode(name), decode(value))
    };
    text.split('&').map(pair).collect()
}

fn refusal(status: u16, code: &str) -> Response<Full<Bytes>> {
    response(status, error(code).into())
}

fn error(code: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response><Errors><Error><Code>{code}</Code>\
         <Message>made up &amp; meant</Message></Error></Errors><RequestID>r</RequestID></Response>"
    )
}

fn response(status: u16, body: Bytes) -> Response<Full<Bytes>> {
    let response = Response::builder().status(status).body(Full::new(body));
    response.unwrap()
}
