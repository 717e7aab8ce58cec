//! Receivers of notices: an HTTP server that keeps requests, and an SMTP server.
//!
//! Both are real servers on loopback, and follow a script before they accept everything again.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A request that the HTTP server received.
#[derive(Clone, Debug)]
pub(crate) struct Posted {
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
    pub(crate) body: Value,
}

impl Posted {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }
}

/// A reply other than success.
#[derive(Clone, Debug)]
pub(crate) enum Reaction {
    Status(u16),
    Redirect(String),
    /// Keeps the request and never answers.
    Silence,
}

/// An HTTP server that keeps the requests that it receives.
pub(crate) struct Inbox {
    pub(crate) address: SocketAddr,
    posted: Arc<Mutex<Vec<Posted>>>,
    reactions: Arc<Mutex<VecDeque<Reaction>>>,
    serving: JoinHandle<()>,
}

impl Inbox {
    pub(crate) async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let posted = Arc::new(Mutex::new(Vec::new()));
        let reactions = Arc::new(Mutex::new(VecDeque::new()));
        let (kept, script) = (Arc::clone(&posted), Arc::clone(&reactions));
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (kept, script) = (Arc::clone(&kept), Arc::clone(&script));
                let service = service_fn(move |request| {
                    keep(request, Arc::clone(&kept), Arc::clone(&script))
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        Self {
            address,
            posted,
            reactions,
            serving,
        }
    }

    pub(crate) fn react(&self, reactions: impl IntoIterator<Item = Reaction>) {
        self.reactions.lock().unwrap().extend(reactions);
    }

    /// The next request, once it is there.
    pub(crate) async fn next(&self) -> Posted {
        loop {
            if let Some(posted) = self.posted.lock().unwrap().pop() {
                return posted;
            }
            tokio::task::yield_now().await;
        }
    }

    /// The requests since the last call.
    pub(crate) fn take(&self) -> Vec<Posted> {
        std::mem::take(&mut self.posted.lock().unwrap())
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn keep(
    request: Request<Incoming>,
    kept: Arc<Mutex<Vec<Posted>>>,
    script: Arc<Mutex<VecDeque<Reaction>>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    kept.lock().unwrap().push(Posted {
        headers: head.headers,
        body: serde_json::from_str(&text).unwrap(),
        text,
    });
    let reaction = script.lock().unwrap().pop_front();
    let mut response = Response::new(Full::default());
    match reaction {
        None => {}
        Some(Reaction::Status(status)) => *response.status_mut() = status.try_into().unwrap(),
        Some(Reaction::Redirect(to)) => {
            *response.status_mut() = http::StatusCode::TEMPORARY_REDIRECT;
            response
                .headers_mut()
                .insert("location", to.parse().unwrap());
        }
        Some(Reaction::Silence) => std::future::pending().await,
    }
    Ok(response)
}

/// A mail as it was delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mail {
    pub(crate) to: Vec<String>,
    pub(crate) text: String,
}

impl Mail {
    pub(crate) fn subject(&self) -> &str {
        let line = self.text.lines().find(|line| line.starts_with("Subject: "));
        line.unwrap().trim_start_matches("Subject: ")
    }
}

/// The refusals of the mail server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moods {
    /// Recipients that it does not know.
    pub(crate) refused: Vec<String>,
    /// It accepts no login.
    pub(crate) is_closed: bool,
    /// It accepts connections and sends nothing.
    pub(crate) is_silent: bool,
    /// It demands a login and takes only `PLAIN` with this text.
    pub(crate) login: Option<String>,
}

/// An SMTP server without encryption.
pub(crate) struct MailRoom {
    pub(crate) address: SocketAddr,
    mails: Arc<Mutex<Vec<Mail>>>,
    moods: Arc<Mutex<Moods>>,
    /// Every line that a client sent.
    said: Arc<Mutex<Vec<String>>>,
    serving: JoinHandle<()>,
}

impl MailRoom {
    pub(crate) async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mails = Arc::new(Mutex::new(Vec::new()));
        let moods = Arc::new(Mutex::new(Moods::default()));
        let said = Arc::new(Mutex::new(Vec::new()));
        let (kept, feels, heard) = (Arc::clone(&mails), Arc::clone(&moods), Arc::clone(&said));
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let moods = feels.lock().unwrap().clone();
                tokio::spawn(converse(
                    stream,
                    moods,
                    Arc::clone(&kept),
                    Arc::clone(&heard),
                ));
            }
        });
        Self {
            address,
            mails,
            moods,
            said,
            serving,
        }
    }

    pub(crate) fn feel(&self, moods: Moods) {
        *self.moods.lock().unwrap() = moods;
    }

    /// The mails since the last call.
    pub(crate) fn take(&self) -> Vec<Mail> {
        std::mem::take(&mut self.mails.lock().unwrap())
    }

    pub(crate) fn said(&self) -> Vec<String> {
        self.said.lock().unwrap().clone()
    }
}

impl Drop for MailRoom {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// One connection, until the client has had enough. An error is a client that hung up.
async fn converse(
    stream: TcpStream,
    moods: Moods,
    mails: Arc<Mutex<Vec<Mail>>>,
    said: Arc<Mutex<Vec<String>>>,
) -> std::io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read).lines();
    if moods.is_silent {
        std::future::pending::<()>().await;
    }
    if moods.is_closed {
        return write.write_all(b"421 closed for today\r\n").await;
    }
    write.write_all(b"220 mail room\r\n").await?;
    let (mut to, mut is_known) = (Vec::new(), moods.login.is_none());
    while let Some(line) = lines.next_line().await? {
        said.lock().unwrap().push(line.clone());
        let word = line.split([' ', ':']).next().unwrap_or_default();
        let reply = match word.to_ascii_uppercase().as_str() {
            "EHLO" if moods.login.is_some() => "250-mail room\r\n250 AUTH PLAIN".to_owned(),
            "EHLO" => "250 mail room".to_owned(),
            "AUTH" => {
                is_known = line.rsplit(' ').next() == moods.login.as_deref();
                if is_known {
                    "235 come in"
                } else {
                    "535 who are you?"
                }
                .to_owned()
            }
            "MAIL" | "RCPT" if !is_known => "530 log in first".to_owned(),
            "MAIL" => "250 go on".to_owned(),
            "RCPT" => {
                let address = line.split(['<', '>']).nth(1).unwrap_or_default().to_owned();
                if moods.refused.contains(&address) {
                    "550 nobody of that name".to_owned()
                } else {
                    to.push(address);
                    "250 go on".to_owned()
                }
            }
            "DATA" => {
                write.write_all(b"354 go on\r\n").await?;
                let mut text = String::new();
                while let Some(line) = lines.next_line().await? {
                    if line == "." {
                        break;
                    }
                    text.push_str(line.strip_prefix('.').unwrap_or(&line));
                    text.push('\n');
                }
                let to = std::mem::take(&mut to);
                mails.lock().unwrap().push(Mail { to, text });
                "250 delivered".to_owned()
            }
            "QUIT" => {
                write.write_all(b"221 bye\r\n").await?;
                return Ok(());
            }
            "RSET" | "NOOP" => "250 go on".to_owned(),
            _ => "502 what?".to_owned(),
        };
        write.write_all(format!("{reply}\r\n").as_bytes()).await?;
    }
    Ok(())
}
