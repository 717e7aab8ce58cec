//! Logs of running builds between processes: a builder answers the questions of servers.
//!
//! A connection carries one question and its answer. Each is a line, sealed with the keys that servers
//! and builders share. The answer is bound to its question.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use access::Secret;
use access::seal::Keyring;
use backplane::tree::local_host;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cloud::image::ArtifactStore;
use engine::random::Random;
use images::{BuilderNode, ImageTree, LiveBuilds, LogError, LogPage, LogQuery, read_build_log};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::app::App;

const QUESTION_PURPOSE: &str = "a question for a log of a build";
const MAX_QUESTION_BYTES: u64 = 8 * 1024;
const MAX_ANSWER_BYTES: u64 = 16 * 1024 * 1024;
/// Answers that a builder prepares at once; further connections wait.
const MAX_ANSWERS: usize = 64;
/// A process that does not answer a connection or send its question within this time is given up.
const IO_LIMIT: Duration = Duration::from_secs(10);

/// Seals questions and answers.
#[derive(Clone)]
pub(crate) struct LogSeal {
    pub(crate) keyring: Arc<Keyring>,
    pub(crate) random: Arc<Random>,
}

/// The logs that a builder has, for servers.
pub(crate) struct LogSource {
    pub(crate) images: Arc<ImageTree>,
    pub(crate) live: LiveBuilds,
    pub(crate) artifacts: Arc<dyn ArtifactStore>,
    pub(crate) seal: LogSeal,
}

/// Why a builder did not answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    #[error("{0}")]
    NotFound(String),
    #[error("builder {builder} on {host} has the log, and {problem}")]
    Unreachable {
        builder: String,
        host: String,
        problem: String,
    },
}

#[derive(Serialize, Deserialize)]
struct Question {
    image: String,
    build: u64,
    from: u64,
    at_most: u64,
    wait_ms: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    Page {
        base64: String,
        left_out: u64,
        next: u64,
        is_last: bool,
    },
    NotFound(String),
    Failed(String),
}

impl LogSeal {
    pub(crate) fn of(app: &App) -> Self {
        Self {
            keyring: Arc::clone(&app.builder_keys),
            random: Arc::clone(&app.engine.random),
        }
    }

    fn seal(&self, purpose: &str, message: &impl Serialize) -> Option<String> {
        let text = Secret::new(serde_json::to_string(message).ok()?);
        let sealed = self
            .random
            .with(|random| self.keyring.seal(purpose, &text, random));
        Some(format!("{sealed}\n"))
    }

    fn open<T: for<'a> Deserialize<'a>>(&self, purpose: &str, line: &str) -> Option<T> {
        let text = self.keyring.open(purpose, line.trim_end()).ok()?;
        serde_json::from_str(text.expose()).ok()
    }
}

fn answer_purpose(question: &str) -> String {
    format!("the answer to {}", question.trim_end())
}

/// The address that servers read in the tree.
pub(crate) fn published_address(bound: SocketAddr, configured: Option<&str>) -> String {
    match configured {
        Some(address) => address.to_owned(),
        None if bound.ip().is_unspecified() => format!("{}:{}", local_host(), bound.port()),
        None => bound.to_string(),
    }
}

impl LogSource {
    /// Answers until it is stopped.
    pub(crate) async fn serve(self: Arc<Self>, listener: TcpListener, stop: CancellationToken) {
        let room = Arc::new(Semaphore::new(MAX_ANSWERS));
        while let Some(Ok(permit)) = stop
            .run_until_cancelled(Arc::clone(&room).acquire_owned())
            .await
        {
            let stream = match stop.run_until_cancelled(listener.accept()).await {
                None => return,
                Some(Ok((stream, _))) => stream,
                Some(Err(error)) => {
                    tracing::warn!(%error, "cannot accept a connection for logs of builds: {error}");
                    let _ = timeout(IO_LIMIT, stop.cancelled()).await;
                    continue;
                }
            };
            let (source, stop) = (Arc::clone(&self), stop.clone());
            tokio::spawn(async move {
                // A connection that breaks is the problem of the server that asked.
                let _ = stop.run_until_cancelled(source.answer(stream)).await;
                drop(permit);
            });
        }
    }

    async fn answer(&self, mut stream: TcpStream) -> Option<()> {
        let (from_server, mut to_server) = stream.split();
        let line = read_line(from_server, MAX_QUESTION_BYTES);
        let line = timeout(IO_LIMIT, line).await.ok()?.ok()?;
        let Some(question) = self.seal.open::<Question>(QUESTION_PURPOSE, &line) else {
            tracing::warn!(
                "refused a question for a log of a build: it was not sealed with our `keys`"
            );
            return None;
        };
        let answer = self.find(question).await;
        let answer = self.seal.seal(&answer_purpose(&line), &answer)?;
        let sent = to_server.write_all(answer.as_bytes());
        timeout(IO_LIMIT, sent).await.ok()?.ok()
    }

    async fn find(&self, question: Question) -> Answer {
        let (Ok(image), Ok(build)) = (question.image.parse(), question.build.to_string().parse())
        else {
            return Answer::NotFound("no such build".to_owned());
        };
        let query = LogQuery {
            image,
            build,
            from: question.from,
            at_most: question.at_most,
            wait: Duration::from_millis(question.wait_ms),
        };
        let artifacts = Some(self.artifacts.as_ref());
        match read_build_log(&self.images, &self.live, artifacts, &query).await {
            Ok(page) => Answer::Page {
                base64: STANDARD.encode(&page.bytes),
                left_out: page.left_out,
                next: page.next,
                is_last: page.is_last,
            },
            Err(error) => {
                let text = error.to_string();
                match error {
                    LogError::NoBuild { .. } | LogError::Elsewhere(_) | LogError::NotKept(_) => {
                        Answer::NotFound(text)
                    }
                    LogError::Io(_) | LogError::Store(_) => Answer::Failed(text),
                }
            }
        }
    }
}

/// Asks a builder for a piece of a log.
pub(crate) async fn ask(
    name: &str,
    builder: &BuilderNode,
    seal: &LogSeal,
    query: &LogQuery,
) -> Result<LogPage, AskError> {
    let unreachable = |problem: String| AskError::Unreachable {
        builder: name.to_owned(),
        host: builder.host.clone(),
        problem,
    };
    check_address(builder).map_err(unreachable)?;
    let asked = exchange(&builder.address, seal, query).await;
    match asked.map_err(|problem| {
        unreachable(format!("does not answer at {}: {problem}", builder.address))
    })? {
        Answer::Page {
            base64,
            left_out,
            next,
            is_last,
        } => {
            let bytes = STANDARD.decode(base64);
            let bytes =
                bytes.map_err(|error| unreachable(format!("its answer is invalid: {error}")))?;
            Ok(LogPage {
                bytes,
                left_out,
                next,
                is_last,
            })
        }
        Answer::NotFound(text) => Err(AskError::NotFound(text)),
        Answer::Failed(text) => Err(unreachable(format!("cannot read it: {text}"))),
    }
}

fn check_address(builder: &BuilderNode) -> Result<(), String> {
    if builder.address.is_empty() {
        return Err("answers no questions for logs".to_owned());
    }
    let address: Option<SocketAddr> = builder.address.parse().ok();
    let is_loopback = address
        .map(|it| it.ip())
        .as_ref()
        .is_some_and(IpAddr::is_loopback);
    if is_loopback && builder.host != local_host() {
        return Err(
            "answers questions for it on its own machine only: set `images.listen` there"
                .to_owned(),
        );
    }
    Ok(())
}

async fn exchange(address: &str, seal: &LogSeal, query: &LogQuery) -> Result<Answer, String> {
    let question = Question {
        image: query.image.to_string(),
        build: query.build.0,
        from: query.from,
        at_most: query.at_most,
        wait_ms: u64::try_from(query.wait.as_millis()).unwrap_or(u64::MAX),
    };
    let question = seal.seal(QUESTION_PURPOSE, &question);
    let question = question.ok_or_else(|| "the question cannot be written".to_owned())?;
    let late = |_| "no answer in time".to_owned();
    let text = |error: std::io::Error| error.to_string();
    let connected = timeout(IO_LIMIT, TcpStream::connect(address)).await;
    let mut stream = connected.map_err(late)?.map_err(text)?;
    let (from_builder, mut to_builder) = stream.split();
    let answered = async {
        to_builder.write_all(question.as_bytes()).await?;
        read_line(from_builder, MAX_ANSWER_BYTES).await
    };
    let line = timeout(query.wait + IO_LIMIT, answered).await;
    let line = line.map_err(late)?.map_err(text)?;
    if line.is_empty() {
        return Err("it closed the connection; does it have the same `keys`?".to_owned());
    }
    let answer = seal.open(&answer_purpose(&question), &line);
    answer.ok_or_else(|| "its answer was not sealed with our `keys`".to_owned())
}

async fn read_line(
    stream: impl tokio::io::AsyncRead + Unpin,
    max_bytes: u64,
) -> std::io::Result<String> {
    let mut line = String::new();
    let mut limited = BufReader::new(stream.take(max_bytes));
    limited.read_line(&mut line).await?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn builder(host: &str, address: &str) -> BuilderNode {
        BuilderNode {
            host: host.to_owned(),
            builder_id: "b".to_owned(),
            labels: BTreeSet::new(),
            slots: 1,
            artifacts: BTreeSet::new(),
            providers: BTreeSet::new(),
            address: address.to_owned(),
            version: String::new(),
        }
    }

    #[test]
    fn a_builder_of_another_machine_is_not_asked_on_our_loopback() {
        let here = local_host();
        assert_eq!(check_address(&builder(&here, "127.0.0.1:80")), Ok(()));
        assert_eq!(check_address(&builder("moon", "moon:80")), Ok(()));
        for (node, part) in [
            (builder("moon", "127.0.0.1:80"), "`images.listen`"),
            (builder("moon", "[::1]:80"), "`images.listen`"),
            (builder(&here, ""), "answers no questions"),
        ] {
            assert!(check_address(&node).unwrap_err().contains(part));
        }
    }

    #[test]
    fn the_published_address_can_be_reached_from_other_machines() {
        let bound = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert_eq!(published_address(bound("10.0.0.1:80"), None), "10.0.0.1:80");
        let any = published_address(bound("0.0.0.0:80"), None);
        assert_eq!(any, format!("{}:80", local_host()));
        assert_eq!(
            published_address(bound("0.0.0.0:80"), Some("b1:8080")),
            "b1:8080"
        );
    }
}
