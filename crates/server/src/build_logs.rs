//! Logs of running builds between processes: a builder answers the questions of servers.
//!
//! A builder greets each connection with a fresh random line. The connection then carries one
//! question and its answer. Each is a line, sealed with the keys that servers and builders share.
//! The question is bound to the greeting, so that it cannot be sent again, and the answer to its
//! question.

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
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::config::Limits;
use crate::limits::{Connection, Connections};

const QUESTION_PURPOSE: &str = "a question for a log of a build";
const MAX_QUESTION_BYTES: u64 = 8 * 1024;
const MAX_ANSWER_BYTES: u64 = 16 * 1024 * 1024;
/// Connections that a builder serves at once. A further one replaces one without a question.
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

fn question_purpose(greeting: &str) -> String {
    format!("{QUESTION_PURPOSE} after {}", greeting.trim_end())
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
        let connections = Connections::new(&Limits {
            max_connections: MAX_ANSWERS,
            ..Limits::default()
        });
        loop {
            let accepted = async {
                let (stream, peer) = listener.accept().await?;
                Ok::<_, std::io::Error>((stream, connections.enter(peer.ip()).await))
            };
            let (stream, place) = match stop.run_until_cancelled(accepted).await {
                None => return,
                Some(Ok(accepted)) => accepted,
                Some(Err(error)) => {
                    tracing::warn!(%error, "cannot accept a connection for logs of builds: {error}");
                    let _ = timeout(IO_LIMIT, stop.cancelled()).await;
                    continue;
                }
            };
            let (source, stop) = (Arc::clone(&self), stop.clone());
            tokio::spawn(async move {
                let connection = place.connection();
                tokio::select! {
                    // A connection that breaks is the problem of the server that asked.
                    _ = source.answer(stream, connection) => {}
                    () = connection.closing().cancelled() => {}
                    () = stop.cancelled() => {}
                }
            });
        }
    }

    async fn answer(&self, mut stream: TcpStream, connection: &Connection) -> Option<()> {
        let (from_server, mut to_server) = stream.split();
        let greeting = format!("{}\n", self.seal.random.slugid());
        let asked = async {
            to_server.write_all(greeting.as_bytes()).await?;
            read_line(from_server, MAX_QUESTION_BYTES).await
        };
        let line = timeout(IO_LIMIT, asked).await.ok()?.ok()?;
        let purpose = question_purpose(&greeting);
        let Some(question) = self.seal.open::<Question>(&purpose, &line) else {
            tracing::warn!(
                "refused a question for a log of a build: it was not sealed with our `keys` for \
                 this connection"
            );
            return None;
        };
        let answer = match connection.identify() {
            Ok(()) => self.find(question).await,
            Err(_) => Answer::Failed(format!("it answers {MAX_ANSWERS} questions: try again")),
        };
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
    let late = |_| "no answer in time".to_owned();
    let text = |error: std::io::Error| error.to_string();
    let connected = timeout(IO_LIMIT, TcpStream::connect(address)).await;
    let mut stream = connected.map_err(late)?.map_err(text)?;
    let (from_builder, mut to_builder) = stream.split();
    let mut from_builder = BufReader::new(from_builder.take(MAX_ANSWER_BYTES));
    let mut greeting = String::new();
    let greeted = timeout(IO_LIMIT, from_builder.read_line(&mut greeting)).await;
    greeted.map_err(late)?.map_err(text)?;
    let question = seal.seal(&question_purpose(&greeting), &question);
    let question = question.ok_or_else(|| "the question cannot be written".to_owned())?;
    let answered = async {
        to_builder.write_all(question.as_bytes()).await?;
        let mut line = String::new();
        from_builder.read_line(&mut line).await?;
        Ok::<_, std::io::Error>(line)
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

    use access::seal::Key;
    use backplane::tree::{CallLimits, EmbeddedTree, MemoryStorage, TreeLimits};
    use cloud::image::FolderStore;
    use engine::clock::SystemClock;
    use rand::SeedableRng as _;
    use rand::rngs::StdRng;
    use testing::sizes_around;

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

    /// Knows no build.
    async fn source() -> (Arc<LogSource>, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let tree = EmbeddedTree::open(
            Arc::new(MemoryStorage::default()),
            Arc::new(SystemClock),
            TreeLimits::default(),
            CallLimits::default(),
        );
        let tree = tree.await.unwrap().session();
        let key = Key {
            id: "k".to_owned(),
            secret: Secret::new(STANDARD.encode([7; 32])),
        };
        let seal = LogSeal {
            keyring: Arc::new(Keyring::new(vec![key]).unwrap()),
            random: Arc::new(Random::new(StdRng::seed_from_u64(7))),
        };
        let trusted = cloud::image::TrustedKeys::new(&seal.keyring);
        let source = LogSource {
            images: ImageTree::new(Arc::new(tree), trusted),
            live: LiveBuilds::default(),
            artifacts: Arc::new(FolderStore::new(folder.path().to_owned())),
            seal,
        };
        (Arc::new(source), folder)
    }

    async fn served(source: &Arc<LogSource>) -> (SocketAddr, CancellationToken) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        tokio::spawn(Arc::clone(source).serve(listener, stop.clone()));
        (address, stop)
    }

    fn query() -> LogQuery {
        LogQuery {
            image: "tiny".parse().unwrap(),
            build: "1".parse().unwrap(),
            from: 0,
            at_most: 1,
            wait: Duration::ZERO,
        }
    }

    async fn is_answered(address: SocketAddr, seal: &LogSeal) -> bool {
        let answer = exchange(&address.to_string(), seal, &query()).await;
        matches!(answer.unwrap(), Answer::NotFound(_))
    }

    /// A new connection, and its greeting.
    async fn greeted(address: SocketAddr) -> (BufReader<TcpStream>, String) {
        let mut stream = BufReader::new(TcpStream::connect(address).await.unwrap());
        let mut greeting = String::new();
        stream.read_line(&mut greeting).await.unwrap();
        (stream, greeting)
    }

    /// The answer to this line; empty if there is none.
    async fn answer_to(stream: &mut BufReader<TcpStream>, line: &str) -> String {
        let mut answer = String::new();
        stream.get_mut().write_all(line.as_bytes()).await.unwrap();
        let _ = stream.read_line(&mut answer).await;
        answer
    }

    #[tokio::test]
    async fn a_recorded_question_cannot_be_sent_again() {
        let (source, _folder) = source().await;
        let (address, _stop) = served(&source).await;
        let (mut stream, greeting) = greeted(address).await;
        let question = Question {
            image: "tiny".to_owned(),
            build: 1,
            from: 0,
            at_most: 1,
            wait_ms: 0,
        };
        let question = source.seal.seal(&question_purpose(&greeting), &question);
        let question = question.unwrap();
        assert_ne!(answer_to(&mut stream, &question).await, "");
        let (mut stream, again) = greeted(address).await;
        assert_ne!(greeting, again);
        assert_eq!(answer_to(&mut stream, &question).await, "");
        assert!(is_answered(address, &source.seal).await);
    }

    #[tokio::test]
    async fn connections_without_a_question_keep_no_server_out() {
        for n in sizes_around("server::build_logs::MAX_ANSWERS", MAX_ANSWERS) {
            let (source, _folder) = source().await;
            let (address, _stop) = served(&source).await;
            let mut silent = Vec::new();
            for _ in 0..n {
                silent.push(greeted(address).await);
            }
            assert!(is_answered(address, &source.seal).await, "{n}");
            // The first ones have left.
            let n_closed = (n + 1).saturating_sub(MAX_ANSWERS);
            for (stream, _) in &mut silent[..n_closed] {
                let mut rest = String::new();
                assert_eq!(stream.read_line(&mut rest).await.unwrap_or(0), 0, "{n}");
            }
        }
    }
}
