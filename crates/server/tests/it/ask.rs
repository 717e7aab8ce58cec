//! A request: built, signed, sent in-process; and its answer.

use std::future::{Future, IntoFuture};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use access::Secret;
use access::certificate::{self, Certificate, Issuer};
use access::hawk::{RequestLine, extension, payload_hash, sign_bewit, sign_header};
use bytes::Bytes;
use domain::time::{HOUR_MS, Timestamp};
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Full};
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::Value;
use server::api::listener::Server;
use server::api::response::Response;

const JSON: &str = "application/json";
const HOST: &str = "fleet.example.com";

/// Credentials, and what they are limited to.
#[derive(Clone, Debug)]
pub(crate) struct Who {
    pub(crate) client_id: String,
    pub(crate) token: Secret,
    pub(crate) certificate: Option<Certificate>,
    pub(crate) only: Option<Vec<String>>,
}

impl Who {
    pub(crate) fn new(client_id: &str, token: &str) -> Self {
        Self {
            client_id: client_id.to_owned(),
            token: Secret::new(token),
            certificate: None,
            only: None,
        }
    }

    /// The credentials that a worker was given by a registration.
    pub(crate) fn registered(reply: &Value) -> Self {
        let credentials = &reply["credentials"];
        let text = |name: &str| credentials[name].as_str().unwrap();
        Self {
            certificate: Some(serde_json::from_str(text("certificate")).unwrap()),
            ..Self::new(text("clientId"), text("accessToken"))
        }
    }

    /// Temporary credentials in this client's name, for an hour.
    pub(crate) fn temporary(&self, name: Option<&str>, scopes: &[&str], now: Timestamp) -> Self {
        let (start, expiry) = (now.as_millis(), now.plus_millis(HOUR_MS).as_millis());
        self.temporary_between(name, scopes, start, expiry)
    }

    pub(crate) fn temporary_between(
        &self,
        name: Option<&str>,
        scopes: &[&str],
        start_ms: i64,
        expiry_ms: i64,
    ) -> Self {
        let issuer = Issuer {
            client_id: &self.client_id,
            access_token: &self.token,
        };
        let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
        let random = &mut StdRng::seed_from_u64(3);
        let made = certificate::issue(&issuer, name, scopes, start_ms, expiry_ms, random);
        Self {
            client_id: made.client_id,
            token: made.access_token,
            certificate: Some(made.certificate),
            only: None,
        }
    }

    pub(crate) fn limited_to(mut self, scopes: &[&str]) -> Self {
        self.only = Some(scopes.iter().map(|scope| (*scope).to_owned()).collect());
        self
    }

    pub(crate) fn ext(&self) -> Option<String> {
        extension(self.certificate.as_ref(), self.only.as_deref())
    }
}

/// Whose name a path of a test may begin with.
const SERVICES: [&str; 5] = ["auth", "queue", "purge-cache", "secrets", "fleetwright"];

pub(crate) struct Ask {
    server: Arc<Server>,
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    headers: Vec<(String, String)>,
    content_type: Option<String>,
    body: Bytes,
    /// Whether the signature covers the body.
    hashed: bool,
    who: Option<Who>,
    now: Timestamp,
    peer: SocketAddr,
}

impl Ask {
    pub(crate) fn new(server: Arc<Server>, method: Method, path: &str, now: Timestamp) -> Self {
        let path = match path.split_once(':') {
            Some(("root", path)) => path.to_owned(),
            Some((service, path)) if SERVICES.contains(&service) => {
                format!("/api/{service}/v1{path}")
            }
            Some(_) | None => format!("/api/worker-manager/v1{path}"),
        };
        Self {
            server,
            method,
            path,
            host: HOST.to_owned(),
            port: 80,
            headers: Vec::new(),
            content_type: None,
            body: Bytes::new(),
            hashed: true,
            who: None,
            now,
            peer: ([192, 0, 2, 7], 1234).into(),
        }
    }

    /// At another server, such as another process on the same database.
    pub(crate) fn at(mut self, server: &Arc<Server>) -> Self {
        self.server = Arc::clone(server);
        self
    }

    pub(crate) fn by(mut self, who: &Who) -> Self {
        self.who = Some(who.clone());
        self
    }

    pub(crate) fn anonymously(mut self) -> Self {
        self.who = None;
        self
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.body(JSON, body.to_string())
    }

    pub(crate) fn body(mut self, content_type: &str, body: impl Into<Bytes>) -> Self {
        self.content_type = Some(content_type.to_owned());
        self.body = body.into();
        self
    }

    /// A body that is not JSON, which signatures leave out.
    pub(crate) fn raw(mut self, body: impl Into<Bytes>) -> Self {
        self.hashed = false;
        self.body("application/octet-stream", body)
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// From this machine itself.
    pub(crate) fn locally(mut self) -> Self {
        self.peer = ([127, 0, 0, 1], 1234).into();
        "localhost".clone_into(&mut self.host);
        self.port = 8080;
        self
    }

    /// This header instead of a signature.
    pub(crate) fn authorization(self, header: &str) -> Self {
        self.anonymously().header("authorization", header)
    }

    /// The header that this request would be signed with.
    pub(crate) fn signature(&self, who: &Who) -> String {
        let hash = self.content_type.as_ref().filter(|_| self.hashed);
        let hash = hash.map(|content_type| payload_hash(content_type, &self.body));
        self.signature_with(who, self.now.as_millis() / 1_000, hash.as_deref())
    }

    pub(crate) fn signature_with(&self, who: &Who, ts: i64, hash: Option<&str>) -> String {
        let (id, token, ext) = (&who.client_id, &who.token, who.ext());
        sign_header(&self.line(), id, token, ts, "n0nce", hash, ext.as_deref())
    }

    /// Signs the URL instead of the request, until `exp` in seconds.
    pub(crate) fn by_bewit(mut self, who: &Who, exp: i64) -> Self {
        let ext = who.ext();
        let bewit = sign_bewit(
            &self.line(),
            &who.client_id,
            &who.token,
            exp,
            ext.as_deref(),
        );
        let separator = if self.path.contains('?') { '&' } else { '?' };
        self.path = format!("{}{separator}bewit={bewit}", self.path);
        self.anonymously()
    }

    fn line(&self) -> RequestLine<'_> {
        RequestLine {
            method: self.method.as_str(),
            resource: &self.path,
            host: &self.host,
            port: self.port,
        }
    }

    /// The reply's head, and a body that is still to be read.
    pub(crate) fn open(self) -> impl Future<Output = Response> + Send + 'static {
        let mut request = Request::builder().method(&self.method).uri(&self.path);
        if let Some(who) = &self.who {
            request = request.header("authorization", self.signature(who));
        }
        if let Some(content_type) = &self.content_type {
            request = request.header("content-type", content_type);
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if !self.headers.iter().any(|(name, _)| name == "host") {
            let host = match self.port {
                80 => self.host.clone(),
                port => format!("{}:{port}", self.host),
            };
            request = request.header("host", host);
        }
        let request = request.body(Full::new(self.body)).unwrap();
        let (server, peer) = (self.server, self.peer);
        // On the heap: many tests hold the future of a request.
        async move { Box::pin(server.answer(request, peer)).await }
    }

    pub(crate) fn send(self) -> impl Future<Output = Answer> + Send + 'static {
        let opened = self.open();
        async move {
            let (parts, body) = opened.await.into_parts();
            let bytes = body.collect().await.unwrap().to_bytes();
            Answer {
                status: parts.status.as_u16(),
                headers: parts.headers,
                text: String::from_utf8(bytes.to_vec()).unwrap(),
            }
        }
    }
}

impl IntoFuture for Ask {
    type Output = Answer;
    type IntoFuture = Pin<Box<dyn Future<Output = Answer> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    /// The body, if the status is this one; `Null` for an empty body.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        self.body()
    }

    pub(crate) fn body(&self) -> Value {
        if self.text.is_empty() {
            return Value::Null;
        }
        serde_json::from_str(&self.text).unwrap()
    }

    /// Asserts a refusal of the API with its complete text (without the trailer).
    #[track_caller]
    pub(crate) fn refused(self, status: u16, code: &str, text: &str) {
        assert_eq!(self.refusal(status, code), text);
    }

    /// Asserts a refusal of the API whose text contains this.
    #[track_caller]
    pub(crate) fn refused_with(self, status: u16, code: &str, part: &str) {
        let text = self.refusal(status, code);
        assert!(text.contains(part), "{text:?} does not contain {part:?}");
    }

    /// The text of a refusal, whose form is checked on the way.
    #[track_caller]
    fn refusal(self, status: u16, code: &str) -> String {
        let body = self.body();
        assert_eq!(
            (self.status, &body["code"]),
            (status, &code.into()),
            "{body:#}"
        );
        let message = body["message"].as_str().unwrap();
        let (text, trailer) = message.rsplit_once("\n\n---\n\n").unwrap();
        let info = &body["requestInfo"];
        let expected = format!(
            "* method:     {}\n* errorCode:  {code}\n* statusCode: {status}\n* time:       {}",
            info["method"].as_str().unwrap(),
            info["time"].as_str().unwrap()
        );
        assert_eq!(trailer, expected);
        text.to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }
}
