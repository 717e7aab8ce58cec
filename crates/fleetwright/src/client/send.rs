//! Signs a call, sends it, and tries again where that is right.

use std::time::Duration;

use access::hawk::{RequestLine, payload_hash, sign_header};
use access::slugid;
use anyhow::Context as _;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, LOCATION};
use reqwest::{Response, StatusCode, Url};
use serde_json::Value;

use super::problem::{NOT_OUR_SERVER, refused, unreachable};
use super::retry::{Outcome, delay_after};
use super::{Call, Credentials, Settings};
use crate::failure::Failure;
use crate::{machine, output};

const CONNECT_LIMIT: Duration = Duration::from_secs(5);
const CALL_LIMIT: Duration = Duration::from_secs(60);
/// No reply of the API is larger; what is will not be read to its end.
const MAX_REPLY_BYTES: usize = 256 << 20;
/// No chain of redirects is longer.
const MAX_REDIRECTS: usize = 10;
pub(crate) const JSON: &str = "application/json";
const BYTES: &str = "application/octet-stream";

/// Calls the API of one server, as one client.
pub(crate) struct Client {
    http: reqwest::Client,
    root_url: Url,
    credentials: Option<Credentials>,
    verbose: bool,
}

/// What a stream of events needs beside its call.
#[derive(Default)]
struct Further<'a> {
    last_event_id: Option<&'a str>,
    limit: Option<Duration>,
}

/// What became of opening a stream.
pub(crate) enum Opened {
    Stream(Response),
    /// The server says where it is instead.
    Elsewhere(Url),
    /// There is no such thing, or the server does not know the call.
    Missing(Failure),
    /// It may work a moment later.
    Broken(String),
}

struct Answer {
    status: StatusCode,
    body: Vec<u8>,
}

impl Client {
    pub(crate) fn new(settings: Settings, verbose: bool) -> Result<Self, Failure> {
        let root_url = root_url(&settings.root_url).map_err(|why| {
            Failure::usage(format!("{:?} is no root URL{why}", settings.root_url))
                .advise("a root URL looks like https://fleet.example.com, without a path")
        })?;
        let mut http = reqwest::Client::builder()
            .connect_timeout(CONNECT_LIMIT)
            .timeout(CALL_LIMIT)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("fleetwright/", env!("CARGO_PKG_VERSION")));
        if is_loopback(&root_url) {
            http = http.no_proxy();
        }
        Ok(Self {
            http: http.build().context("cannot set up the HTTP client")?,
            root_url,
            credentials: settings.credentials,
            verbose,
        })
    }

    /// The address of the server, without a slash at its end.
    pub(crate) fn root_url(&self) -> &str {
        self.root_url.as_str().trim_end_matches('/')
    }

    /// As whom calls are made, if as anybody.
    pub(crate) fn client_id(&self) -> Option<&str> {
        let credentials = self.credentials.as_ref();
        credentials.map(|credentials| credentials.client_id.as_str())
    }

    /// Sends the call and returns the reply, which need not be JSON.
    pub(crate) async fn bytes(&self, call: &Call) -> Result<Vec<u8>, Failure> {
        let Answer { status, body } = self.answer(call).await?;
        if status.is_success() {
            return Ok(body);
        }
        Err(refused(call, status, &body, self.credentials.is_some()))
    }

    /// Sends the call and returns the reply; `Null` when it has no body.
    pub(crate) async fn call(&self, call: &Call) -> Result<Value, Failure> {
        let body = self.bytes(call).await?;
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&body).map_err(|problem| {
            Failure::failed(format!(
                "could not {}: the reply of {} is not JSON: {problem}",
                call.purpose,
                self.root_url()
            ))
            .advise(NOT_OUR_SERVER)
        })
    }

    /// Sends the call once, and returns the reply while it is still coming: a stream of events, from
    /// this place on, for at most so long.
    pub(crate) async fn open(
        &self,
        call: &Call,
        last_event_id: Option<&str>,
        limit: Duration,
    ) -> Result<Opened, Failure> {
        let more = Further {
            last_event_id,
            limit: Some(limit),
        };
        let response = match self.send(call, more).await {
            Ok(response) => response,
            Err(problem) => return Ok(Opened::Broken(innermost(&problem))),
        };
        let status = response.status();
        if status.is_success() {
            return Ok(Opened::Stream(response));
        }
        if status.is_server_error() {
            return Ok(Opened::Broken(format!("the server answered {status}")));
        }
        if let Some(url) = redirect(&response, &self.root_url) {
            return Ok(Opened::Elsewhere(url));
        }
        let answer = match read(response).await {
            Ok(answer) => answer,
            Err(problem) => return Ok(Opened::Broken(innermost(&problem))),
        };
        let failure = refused(call, status, &answer.body, self.credentials.is_some());
        match status {
            StatusCode::NOT_FOUND => Ok(Opened::Missing(failure)),
            _ => Err(failure),
        }
    }

    /// Opens what a redirect led to, over further redirects. No credentials are sent: the URL is all that it takes, and it
    /// may lead to anybody.
    pub(crate) async fn open_elsewhere(
        &self,
        mut url: Url,
        limit: Duration,
    ) -> Result<Response, String> {
        for _ in 0..=MAX_REDIRECTS {
            let place = place_of(&url);
            let sent = self.http.get(url.clone()).timeout(limit).send().await;
            let response = sent.map_err(|problem| format!("{place}: {}", innermost(&problem)))?;
            let status = response.status();
            if self.verbose {
                output::note(&format!("GET {place} -> {status}"));
            }
            if status.is_success() {
                return Ok(response);
            }
            let next = redirect(&response, &url);
            url = next.ok_or_else(|| format!("{place} answered {status}"))?;
        }
        Err(format!("more than {MAX_REDIRECTS} redirects"))
    }

    /// The failure of a call that never got an answer.
    pub(crate) fn unreachable(&self, call: &Call, reason: &str) -> Failure {
        unreachable(call, self.root_url(), reason)
    }

    async fn answer(&self, call: &Call) -> Result<Answer, Failure> {
        let mut attempt = 1;
        loop {
            let result = self.attempt(call).await;
            let outcome = match &result {
                Ok(answer) => Outcome::Answered(answer.status.as_u16()),
                Err(problem) if problem.is_connect() => Outcome::NotConnected,
                Err(_) => Outcome::Broken,
            };
            match (delay_after(attempt, call.is_idempotent(), outcome), result) {
                (None, Ok(answer)) => return Ok(answer),
                (None, Err(problem)) => {
                    return Err(unreachable(call, self.root_url(), &innermost(&problem)));
                }
                (Some(delay), _) => machine::pause(delay).await,
            }
            attempt += 1;
        }
    }

    /// Sends the call once; its reply is still to be read.
    async fn send(&self, call: &Call, more: Further<'_>) -> Result<Response, reqwest::Error> {
        let body = call.body.as_ref().map(|body| body.to_string().into_bytes());
        let mut url = self.root_url.clone();
        let resource = call.resource();
        let (path, query) = resource.split_once('?').unwrap_or((&resource, ""));
        url.set_path(path);
        url.set_query((!query.is_empty()).then_some(query));

        let mut request = self.http.request(call.method.clone(), url.clone());
        if let Some(credentials) = &self.credentials {
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
            let header = match &call.raw {
                // Signatures leave bodies out that are not JSON.
                Some(_) => sign(credentials, &line, None),
                None => signature(credentials, &line, body.as_deref()),
            };
            request = request.header(AUTHORIZATION, header);
        }
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, JSON).body(body);
        }
        if let Some(raw) = &call.raw {
            request = request.header(CONTENT_TYPE, BYTES).body(raw.clone());
        }
        if let Some(place) = more.last_event_id {
            request = request.header("last-event-id", place);
        }
        if let Some(limit) = more.limit {
            request = request.timeout(limit);
        }
        let watch = machine::Stopwatch::start();
        let result = request.send().await;
        if self.verbose {
            let what = match &result {
                Ok(response) => response.status().to_string(),
                Err(problem) => innermost(problem),
            };
            let elapsed = watch.elapsed().as_millis();
            output::note(&format!("{} {url} -> {what} ({elapsed} ms)", call.method));
        }
        result
    }

    async fn attempt(&self, call: &Call) -> Result<Answer, reqwest::Error> {
        let response = self.send(call, Further::default()).await?;
        read(response).await
    }
}

/// The URL below which all calls are, or why it is none.
fn root_url(text: &str) -> Result<Url, String> {
    let url = text.parse().ok();
    let url = url.filter(|url: &Url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let url = url.ok_or_else(String::new)?;
    let has = |what: String| Err(format!(": it has the {what}"));
    match (url.path().trim_matches('/'), url.query(), url.fragment()) {
        ("", None, None) => Ok(url),
        ("", None, Some(fragment)) => has(format!("fragment #{fragment}")),
        ("", Some(query), _) => has(format!("query ?{query}")),
        (_, _, _) => has(format!("path {}", url.path())),
    }
}

/// Where a reply sends its reader, if that is somewhere on the web.
fn redirect(response: &Response, base: &Url) -> Option<Url> {
    if !response.status().is_redirection() {
        return None;
    }
    let location = response.headers().get(LOCATION)?.to_str().ok()?;
    let url = base.join(location).ok()?;
    (matches!(url.scheme(), "http" | "https") && url.has_host()).then_some(url)
}

/// Host and port of a URL, without what may be a secret.
fn place_of(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

async fn read(mut response: Response) -> Result<Answer, reqwest::Error> {
    let status = response.status();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        // What is cut here fails as JSON, which is as much as can be said about it.
        if body.len() + chunk.len() > MAX_REPLY_BYTES {
            break;
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Answer { status, body })
}

/// The `Authorization` header of a request.
pub(crate) fn signature(
    credentials: &Credentials,
    line: &RequestLine<'_>,
    body: Option<&[u8]>,
) -> String {
    let hash = match body {
        Some(body) => payload_hash(JSON, body),
        None => payload_hash("", b""),
    };
    sign(credentials, line, Some(&hash))
}

fn sign(credentials: &Credentials, line: &RequestLine<'_>, hash: Option<&str>) -> String {
    let nonce = slugid::nice(&mut machine::chance());
    sign_header(
        line,
        &credentials.client_id,
        &credentials.access_token,
        machine::now().as_millis() / 1_000,
        &nonce,
        hash,
        credentials.extension.as_deref(),
    )
}

/// Whether a URL leads to this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    host == "localhost"
        || host
            .trim_matches(['[', ']'])
            .parse()
            .is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

/// The cause at the bottom: "Connection refused", not "error sending request".
fn innermost(problem: &reqwest::Error) -> String {
    if problem.is_timeout() {
        return "it took too long".to_owned();
    }
    let mut cause: &dyn std::error::Error = problem;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(root_url: &str) -> Result<Client, Failure> {
        let settings = Settings {
            root_url: root_url.to_owned(),
            credentials: None,
        };
        Client::new(settings, false)
    }

    #[test]
    fn what_is_no_root_url_is_refused_before_anything_is_sent() {
        for text in ["", "fleet.example.com", "ftp://x", "http://"] {
            assert!(client(text).is_err(), "{text}");
        }
        for (text, part) in [
            ("http://127.0.0.1:1/y/z", "it has the path /y/z"),
            ("http://127.0.0.1:1/?a=b", "it has the query ?a=b"),
            ("http://127.0.0.1:1#f", "it has the fragment #f"),
        ] {
            let refused = client(text).err().unwrap().message;
            assert!(refused.ends_with(part), "{text}: {refused}");
        }
        assert_eq!(
            client("http://127.0.0.1:8080/").unwrap().root_url(),
            "http://127.0.0.1:8080"
        );
    }

    /// `/n` leads to `/n-1`, and `/0` is the end; returns the heads of all requests.
    async fn chain(listener: tokio::net::TcpListener) -> Vec<String> {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut heads = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                if stream.read_buf(&mut head).await.unwrap() == 0 {
                    return heads;
                }
            }
            let head = String::from_utf8(head).unwrap().to_lowercase();
            let number = head.split(['/', ' ']).nth(2).unwrap().to_owned();
            heads.push(head);
            let answer = match number.parse::<u32>().unwrap() {
                0 => "200 OK\r\n".to_owned(),
                number => format!("303 See Other\r\nlocation: /{}\r\n", number - 1),
            };
            let text = format!("HTTP/1.1 {answer}content-length: 0\r\nconnection: close\r\n\r\n");
            stream.write_all(text.as_bytes()).await.unwrap();
        }
    }

    #[tokio::test]
    async fn redirects_are_followed_without_credentials_up_to_a_limit() {
        let settings = Settings {
            root_url: "http://127.0.0.1:1".to_owned(),
            credentials: Some(Credentials {
                client_id: "me".to_owned(),
                access_token: access::Secret::new("t".repeat(44)),
                extension: None,
            }),
        };
        let client = Client::new(settings, false).unwrap();
        for wanted in [
            0,
            1,
            MAX_REDIRECTS - 1,
            MAX_REDIRECTS,
            MAX_REDIRECTS + 1,
            10 * MAX_REDIRECTS,
        ] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let serving = tokio::spawn(chain(listener));
            let url = format!("http://{address}/{wanted}").parse().unwrap();
            let opened = client.open_elsewhere(url, CALL_LIMIT).await;
            assert_eq!(opened.is_ok(), wanted <= MAX_REDIRECTS, "{wanted}");
            // A connection that says nothing ends the service.
            drop(tokio::net::TcpStream::connect(address).await.unwrap());
            let heads = serving.await.unwrap();
            assert_eq!(heads.len(), wanted.min(MAX_REDIRECTS) + 1);
            assert!(heads.iter().all(|head| !head.contains("authorization")));
        }
    }

    #[test]
    fn proxies_are_not_asked_about_this_machine() {
        for (url, expected) in [
            ("http://localhost:1", true),
            ("http://127.0.0.1", true),
            ("http://[::1]:8", true),
            ("https://example.com", false),
        ] {
            assert_eq!(is_loopback(&url.parse().unwrap()), expected, "{url}");
        }
    }
}
