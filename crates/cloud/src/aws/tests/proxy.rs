//! Stands between us and a server that plays EC2, and makes trouble.
//!
//! It also keeps the promise about client tokens that the server does not: one token, one launch.

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

/// What goes wrong with the next call of an action.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// An error, and nothing is done.
    Refuse { status: u16, code: &'static str },
    /// The server does it, but the answer never arrives.
    LoseAnswer,
    /// The connection ends before the server hears of it.
    LoseCall,
    /// Nothing happens, ever.
    Stall,
    /// There is stock for so many machines.
    RunShort { stock: u32 },
    /// The server does it, and something else answers.
    Answer { status: u16, body: String },
}

pub(crate) struct Proxy {
    pub(crate) url: String,
    state: Arc<State>,
}

struct State {
    target: String,
    http: reqwest::Client,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    trouble: BTreeMap<&'static str, Vec<Trouble>>,
    /// By client token: the call, and its answer.
    launches: BTreeMap<String, (String, (u16, Bytes))>,
    calls: Vec<BTreeMap<String, String>>,
}

impl Proxy {
    /// In front of the server at this address; an empty one is in front of nothing.
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

    /// The next call of this action that has no trouble yet gets this one.
    pub(crate) fn next(&self, action: &'static str, trouble: Trouble) {
        let mut told = self.state.told.lock().unwrap();
        told.trouble.entry(action).or_default().push(trouble);
    }

    /// The parameters of all calls of this action so far.
    pub(crate) fn calls(&self, action: &str) -> Vec<BTreeMap<String, String>> {
        let told = self.state.told.lock().unwrap();
        let of_action = told.calls.iter().filter(|call| call["Action"] == action);
        of_action.cloned().collect()
    }

    /// How the call of this action with this number was signed.
    pub(crate) fn authorization(&self, action: &str, number: usize) -> String {
        self.calls(action)[number][AUTHORIZATION].clone()
    }
}

/// Beside the parameters of a call, where no parameter can be.
const AUTHORIZATION: &str = "(authorization)";

async fn serve(stream: TcpStream, state: Arc<State>) {
    let service = service_fn(move |request| answer(request, Arc::clone(&state)));
    // A connection that is cut is what some tests want.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

#[derive(Debug, thiserror::Error)]
#[error("cut")]
struct Cut;

async fn answer(
    request: Request<Incoming>,
    state: Arc<State>,
) -> Result<Response<Full<Bytes>>, Cut> {
    let (head, body) = request.into_parts();
    let form = Limited::new(body, MAX_BODY_BYTES).collect().await.unwrap();
    let form = form.to_bytes();
    let mut call = parameters(&form);
    let signed = head.headers["authorization"].to_str().unwrap().to_owned();
    call.insert(AUTHORIZATION.to_owned(), signed);
    let action = call["Action"].clone();
    let trouble = {
        let mut told = state.told.lock().unwrap();
        told.calls.push(call.clone());
        let waiting = told.trouble.get_mut(action.as_str());
        waiting
            .filter(|all| !all.is_empty())
            .map(|all| all.remove(0))
    };
    match trouble {
        Some(Trouble::Refuse { status, code }) => Ok(refusal(status, code)),
        Some(Trouble::LoseCall) => Err(Cut),
        Some(Trouble::Stall) => std::future::pending().await,
        Some(Trouble::LoseAnswer) => {
            state.pass_on(&head, &form, &call, None).await;
            Err(Cut)
        }
        Some(Trouble::Answer { status, body }) => {
            state.pass_on(&head, &form, &call, None).await;
            Ok(response(status, body.into()))
        }
        Some(Trouble::RunShort { stock }) => {
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
        // The server makes as many as the least that is asked for; EC2 makes as many as it can.
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
