//! Sends calls, with retries.

use std::time::Duration;

use access::slugid;
use anyhow::Context as _;
use api_client::{
    CallError, Credentials, Observer, Options, Sent, Stamp, parse_root_url, root_cause,
};
use reqwest::header::LOCATION;
use reqwest::{Response, StatusCode, Url};
use serde_json::Value;

use super::refusal::{NOT_OUR_SERVER, refused, unreachable};
use super::retry::{Outcome, delay_after};
use super::{Call, Settings};
use crate::failure::Failure;
use crate::{machine, output};

const CALL_LIMIT: Duration = Duration::from_secs(60);
const MAX_REPLY_BYTES: usize = 256 << 20;
const MAX_REDIRECTS: usize = 10;
/// Says how an artifact is kept, in the reply of a queue.
const STORAGE_TYPE: &str = "x-taskcluster-artifact-storage-type";

/// Calls the API of one server with one set of credentials.
pub(crate) struct Client {
    api: api_client::Client,
    credentials: Option<Credentials>,
    verbose: bool,
}

pub(crate) enum OpenOutcome {
    Stream(Response),
    /// The stream is at another URL.
    Redirect(Redirect),
    /// The item does not exist, or the server does not know the call.
    Missing(Failure),
    /// A later attempt may succeed.
    Broken(String),
}

/// Another URL of a stream.
pub(crate) struct Redirect {
    url: Url,
    /// Whether the author of a task chose it, not the server.
    is_reference: bool,
}

/// Why a redirect did not lead to a stream.
pub(crate) enum RedirectError {
    /// The author of a task refers to this host.
    Elsewhere(String),
    Broken(String),
}

impl Client {
    pub(crate) fn new(settings: Settings, verbose: bool) -> Result<Self, Failure> {
        let root_url = parse_root_url(&settings.root_url).map_err(|error| {
            Failure::usage(error.to_string())
                .with_hint("a root URL looks like https://fleet.example.com, without a path")
        })?;
        let options = Options {
            user_agent: Some(concat!("fleetwright/", env!("CARGO_PKG_VERSION"))),
            call_limit: CALL_LIMIT,
            max_reply_bytes: MAX_REPLY_BYTES,
            stamp: Box::new(|| Stamp {
                seconds: machine::now().as_millis() / 1_000,
                nonce: slugid::nice(&mut machine::random_source()),
            }),
            observer: verbose.then(|| Box::new(note) as Observer),
        };
        Ok(Self {
            api: api_client::Client::new(root_url, options)
                .context("cannot set up the HTTP client")?,
            credentials: settings.credentials,
            verbose,
        })
    }

    /// The address of the server, without a slash at its end.
    pub(crate) fn root_url(&self) -> &str {
        self.api.root_url()
    }

    /// Whether the server is one of this machine, by its address.
    pub(crate) fn is_on_this_machine(&self) -> bool {
        let url = self.root_url().parse::<Url>();
        url.is_ok_and(|url| api_client::is_loopback(&url))
    }

    pub(crate) fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }

    /// The client id that signs calls; `None` for anonymous calls.
    pub(crate) fn client_id(&self) -> Option<&str> {
        let credentials = self.credentials.as_ref();
        credentials.map(|credentials| credentials.client_id.as_str())
    }

    /// Sends the call and returns the reply, which need not be JSON.
    pub(crate) async fn bytes(&self, call: &Call) -> Result<Vec<u8>, Failure> {
        let mut attempt = 0;
        let mut retry = |error: &CallError| {
            attempt += 1;
            let outcome = match error {
                CallError::Refused(refusal) => Outcome::Answered(refusal.status.as_u16()),
                CallError::BadReply(_) => return None,
                CallError::NoAnswer(_) if error.is_unsent() => Outcome::NotConnected,
                CallError::NoAnswer(_) => Outcome::Broken,
            };
            delay_after(attempt, call.api.is_idempotent(), outcome)
        };
        let credentials = self.credentials.as_ref();
        let outcome = self.api.exchange(&call.api, credentials, &mut retry).await;
        outcome.map_err(|error| match error {
            CallError::NoAnswer(source) => self.unreachable(call, &root_cause(&source)),
            CallError::Refused(refusal) => refused(call, &refusal, credentials.is_some()),
            CallError::BadReply(error) => Failure::failed(format!(
                "could not {}: the reply of {} is too large: {error}",
                call.purpose,
                self.root_url()
            )),
        })
    }

    /// Sends the call and returns the reply; `Null` when it has no body.
    pub(crate) async fn call(&self, call: &Call) -> Result<Value, Failure> {
        let body = self.bytes(call).await?;
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&body).map_err(|error| {
            Failure::failed(format!(
                "could not {}: the reply of {} is not JSON: {error}",
                call.purpose,
                self.root_url()
            ))
            .with_hint(NOT_OUR_SERVER)
        })
    }

    /// Sends the call once and returns the open response: a stream of events that starts after this
    /// event and lasts no longer than `limit`.
    pub(crate) async fn open(
        &self,
        call: &Call,
        last_event_id: Option<&str>,
        limit: Duration,
    ) -> Result<OpenOutcome, Failure> {
        let credentials = self.credentials.as_ref();
        let sent = call.api.clone();
        let sent = sent.header("last-event-id", last_event_id).limit(limit);
        let response = match self.api.send(&sent, credentials).await {
            Ok(response) => response,
            Err(error) => return Ok(OpenOutcome::Broken(root_cause(&error))),
        };
        let status = response.status();
        if status.is_success() {
            return Ok(OpenOutcome::Stream(response));
        }
        if status.is_server_error() {
            return Ok(OpenOutcome::Broken(format!("the server answered {status}")));
        }
        if let Some(url) = redirect(&response, &self.api.url(&sent)) {
            let storage_type = response.headers().get(STORAGE_TYPE);
            let is_stored = storage_type.is_some_and(|it| it != "reference");
            return Ok(OpenOutcome::Redirect(Redirect {
                url,
                is_reference: !is_stored,
            }));
        }
        match self.api.read(response).await {
            Err(CallError::Refused(refusal)) => {
                let failure = refused(call, &refusal, credentials.is_some());
                match status {
                    StatusCode::NOT_FOUND => Ok(OpenOutcome::Missing(failure)),
                    _ => Err(failure),
                }
            }
            Err(error) => Ok(OpenOutcome::Broken(root_cause(&error))),
            Ok(_) => Ok(OpenOutcome::Broken(format!("the server answered {status}"))),
        }
    }

    /// Opens the target of a redirect, following further redirects. No credentials are sent: the
    /// URL suffices. A reference leads to another host only with `any_host`.
    pub(crate) async fn open_redirect(
        &self,
        Redirect {
            mut url,
            is_reference,
        }: Redirect,
        any_host: bool,
        limit: Duration,
    ) -> Result<Response, RedirectError> {
        let own = self.root_url().parse::<Url>().ok();
        let own = own.map(|url| url.origin());
        for _ in 0..=MAX_REDIRECTS {
            let place = place_of(&url);
            if is_reference && !any_host && own.as_ref() != Some(&url.origin()) {
                return Err(RedirectError::Elsewhere(place));
            }
            let broken = |error| RedirectError::Broken(format!("{place}: {}", root_cause(&error)));
            let http = self.api.http_for(&url).map_err(broken)?;
            let sent = http.get(url.clone()).timeout(limit).send().await;
            let response = sent.map_err(broken)?;
            let status = response.status();
            if self.verbose {
                output::note(&format!("GET {place} -> {status}"));
            }
            if status.is_success() {
                return Ok(response);
            }
            let next = redirect(&response, &url);
            let refused = || RedirectError::Broken(format!("{place} answered {status}"));
            url = next.ok_or_else(refused)?;
        }
        let text = format!("more than {MAX_REDIRECTS} redirects");
        Err(RedirectError::Broken(text))
    }

    pub(crate) fn unreachable(&self, call: &Call, reason: &str) -> Failure {
        unreachable(call, self.root_url(), reason)
    }
}

/// Prints an attempt, for `--verbose`.
fn note(sent: &Sent<'_>) {
    let what = match sent.outcome {
        Ok(status) => status.to_string(),
        Err(error) => root_cause(error),
    };
    let elapsed = sent.elapsed.as_millis();
    output::note(&format!(
        "{} {} -> {what} ({elapsed} ms)",
        sent.method, sent.url
    ));
}

/// The HTTP or HTTPS URL that a reply redirects to.
fn redirect(response: &Response, base: &Url) -> Option<Url> {
    if !response.status().is_redirection() {
        return None;
    }
    let location = response.headers().get(LOCATION)?.to_str().ok()?;
    let url = base.join(location).ok()?;
    (matches!(url.scheme(), "http" | "https") && url.has_host()).then_some(url)
}

/// Host and port of a URL: the rest may contain secrets.
fn place_of(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
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
    fn an_invalid_root_url_is_refused_before_any_request() {
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
            let url: Url = format!("http://{address}/{wanted}").parse().unwrap();
            let redirect = |url| Redirect {
                url,
                is_reference: true,
            };
            let refused = client.open_redirect(redirect(url.clone()), false, CALL_LIMIT);
            let elsewhere = refused.await.err();
            assert!(matches!(elsewhere, Some(RedirectError::Elsewhere(place))
                if place == address.to_string()));
            let opened = client.open_redirect(redirect(url), true, CALL_LIMIT).await;
            assert_eq!(opened.is_ok(), wanted <= MAX_REDIRECTS, "{wanted}");
            // A connection that says nothing ends the service.
            drop(tokio::net::TcpStream::connect(address).await.unwrap());
            let heads = serving.await.unwrap();
            assert_eq!(heads.len(), wanted.min(MAX_REDIRECTS) + 1);
            assert!(heads.iter().all(|head| !head.contains("authorization")));
        }
    }
}
