//! A server for tests that keeps files in memory, or passes requests on to a real one, and injects
//! failures.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::http::request::Parts;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

use super::super::CHECKSUM;

/// A failure of the next request that fits.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    Answer(u16, &'static str),
    /// The connection is closed before the server gets the request.
    LoseCall,
    /// The request is passed on, and the response is dropped.
    LoseAnswer,
    Stall,
    /// The connection is closed after this many bytes of the response.
    CutAfter(usize),
    /// The first byte of the response's body is changed.
    Corrupt,
    /// The response has this entity tag.
    Tag(&'static str),
}

pub(super) struct Peer {
    pub(super) url: String,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    target: Option<String>,
    http: reqwest::Client,
    /// Files, and whether their checksums are stated.
    files: Mutex<BTreeMap<String, Bytes>>,
    states_checksums: bool,
    faults: Mutex<Vec<(Method, &'static str, Fault)>>,
    calls: Mutex<Vec<String>>,
}

#[derive(Debug, thiserror::Error)]
#[error("cut")]
struct Cut;

type Answer = Response<BoxBody<Bytes, Cut>>;

impl Peer {
    pub(super) async fn in_memory(states_checksums: bool) -> Self {
        Self::start(State {
            states_checksums,
            ..State::default()
        })
        .await
    }

    pub(super) async fn before(target: String) -> Self {
        Self::start(State {
            target: Some(target),
            ..State::default()
        })
        .await
    }

    async fn start(state: State) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(state);
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Self { url, state }
    }

    /// Injects a failure into the next request with this method and this text in its URL.
    pub(super) fn next(&self, method: Method, part: &'static str, fault: Fault) {
        self.state
            .faults
            .lock()
            .unwrap()
            .push((method, part, fault));
    }

    /// The requests so far that contain this text, like `PUT /a/b?c`.
    pub(super) fn calls(&self, part: &str) -> Vec<String> {
        let calls = self.state.calls.lock().unwrap();
        calls
            .iter()
            .filter(|call| call.contains(part))
            .cloned()
            .collect()
    }

    pub(super) fn files(&self) -> BTreeMap<String, Bytes> {
        self.state.files.lock().unwrap().clone()
    }

    pub(super) fn set_file(&self, path: &str, content: &[u8]) {
        let content = Bytes::copy_from_slice(content);
        self.state
            .files
            .lock()
            .unwrap()
            .insert(path.to_owned(), content);
    }
}

async fn serve(stream: TcpStream, state: Arc<State>) {
    let service = service_fn(move |request| answer(request, Arc::clone(&state)));
    // Some tests cut connections on purpose.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer(request: Request<Incoming>, state: Arc<State>) -> Result<Answer, Cut> {
    let (head, body) = request.into_parts();
    let call = format!("{} {}", head.method, head.uri);
    let fault = {
        state.calls.lock().unwrap().push(call.clone());
        let mut faults = state.faults.lock().unwrap();
        let fits = |(method, part, _): &(Method, &str, Fault)| {
            *method == head.method && call.contains(part)
        };
        let found = faults.iter().position(fits);
        found.map(|index| faults.remove(index).2)
    };
    match fault {
        Some(Fault::LoseCall) => return Err(Cut),
        Some(Fault::Stall) => std::future::pending().await,
        Some(Fault::Answer(status, text)) => {
            let _ = body.collect().await;
            let response = Response::builder().status(status);
            return Ok(response
                .body(whole(Bytes::from_static(text.as_bytes())))
                .unwrap());
        }
        _ => {}
    }
    // A client may go away in the middle of its request.
    let body = body.collect().await.map_err(|_| Cut)?.to_bytes();
    let (mut response, mut body) = match &state.target {
        Some(target) => state.pass_on(target, &head, body).await,
        None => state.keep(&head, body),
    };
    match fault {
        Some(Fault::LoseAnswer) => return Err(Cut),
        Some(Fault::CutAfter(length)) => {
            let pieces = [Ok(Frame::data(body.slice(..length))), Err(Cut)];
            let body = StreamBody::new(futures_util::stream::iter(pieces));
            return Ok(response.body(body.boxed()).unwrap());
        }
        Some(Fault::Corrupt) => {
            let mut bytes = body.to_vec();
            bytes[0] ^= 1;
            body = bytes.into();
        }
        Some(Fault::Tag(tag)) => {
            response
                .headers_mut()
                .unwrap()
                .insert("etag", tag.parse().unwrap());
        }
        _ => {}
    }
    Ok(response.body(whole(body)).unwrap())
}

fn whole(bytes: Bytes) -> BoxBody<Bytes, Cut> {
    Full::new(bytes).map_err(|never| match never {}).boxed()
}

type Built = (hyper::http::response::Builder, Bytes);

impl State {
    async fn pass_on(&self, target: &str, head: &Parts, body: Bytes) -> Built {
        let url = format!("{target}{}", head.uri);
        let mut request = self.http.request(head.method.clone(), url).body(body);
        for (name, value) in &head.headers {
            if name != "host" && name != "content-length" {
                request = request.header(name, value);
            }
        }
        let answer = request.send().await.unwrap();
        let mut response = Response::builder().status(answer.status());
        for (name, value) in answer.headers() {
            let is_of_connection = ["transfer-encoding", "connection"].contains(&name.as_str());
            if !is_of_connection {
                response = response.header(name, value);
            }
        }
        (response, answer.bytes().await.unwrap())
    }

    fn keep(&self, head: &Parts, body: Bytes) -> Built {
        let mut files = self.files.lock().unwrap();
        let path = head.uri.path().to_owned();
        let response = Response::builder();
        let file = files.get(&path).cloned();
        match (head.method.as_str(), file) {
            ("PUT", _) => {
                files.insert(path, body);
                (response.status(201), Bytes::new())
            }
            ("DELETE", Some(_)) => {
                files.remove(&path);
                (response.status(204), Bytes::new())
            }
            ("GET" | "HEAD", Some(file)) => {
                let mut response = response.header("content-length", file.len());
                if self.states_checksums {
                    let sha256 = crate::image::output::sha256_of(&file);
                    response = response.header(CHECKSUM, sha256);
                }
                let range = head.headers.get("range").map(|it| it.to_str().unwrap());
                match range.and_then(|it| it.strip_prefix("bytes=")?.strip_suffix('-')) {
                    Some(from) => {
                        let rest = file.slice(from.parse::<usize>().unwrap()..);
                        let response = Response::builder().status(206);
                        (response.header("content-length", rest.len()), rest)
                    }
                    None if head.method == Method::HEAD => (response, Bytes::new()),
                    None => (response, file),
                }
            }
            _ => (response.status(404), Bytes::new()),
        }
    }
}
