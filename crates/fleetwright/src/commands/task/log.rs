//! Reads the log of a run: from the server, through a reference or a link, or as an artifact.

use std::io::Write as _;
use std::time::Duration;

use flate2::write::MultiGzDecoder;
use reqwest::Response;
use reqwest::header::CONTENT_ENCODING;
use serde_json::Value;
use tokio::time::timeout;

use crate::client::{Call, FLEETWRIGHT, OpenOutcome, QUEUE, RedirectError};
use crate::commands::name::TASK_LIST;
use crate::failure::{Exit, Failure};
use crate::machine;
use crate::output::ForeignText;
use crate::session::Session;

/// A log without data for this long may be broken: it is opened again at the same offset.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);
/// Maximum duration of a connection.
const STREAM_LIMIT: Duration = Duration::from_secs(60 * 60);
/// Maximum number of failed attempts in a row to open a log.
const MAX_TRIES: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The folder of logs, and their usual names, best first.
const LOGS: &str = "public/logs/";
const KNOWN_LOGS: [&str; 2] = ["public/logs/live.log", "public/logs/live_backing.log"];
/// Maximum number of artifacts to search for a log.
const MAX_ARTIFACTS: usize = 10_000;

/// The log of a run, and the number of bytes already printed.
pub(super) struct Reading {
    pub(super) task: String,
    pub(super) run: u64,
    /// Whether a reference to any host is followed.
    any_host: bool,
    printed: u64,
    text: ForeignText,
}

enum Source {
    Open {
        response: Response,
        /// The number of bytes that were already printed.
        skip: u64,
    },
    Broken(Failure),
}

/// How a part of a log ended.
enum PartEnd {
    /// The log is complete.
    Complete,
    Silent,
    Lost(String),
}

impl Reading {
    pub(super) fn of(task: &str, run: u64, any_host: bool) -> Self {
        Self {
            task: task.to_owned(),
            run,
            any_host,
            printed: 0,
            text: ForeignText::to_stdout(),
        }
    }

    /// Prints the rest of the log. With `follow`, continues until the run ends.
    pub(super) async fn print(&mut self, follow: bool, session: &Session) -> Result<(), Failure> {
        let mut tries = 0;
        loop {
            let failure = match self.open(follow, session).await? {
                Source::Open { response, skip } => {
                    let before = self.printed;
                    match self.print_part(response, skip).await {
                        PartEnd::Complete => {
                            self.text.end();
                            return Ok(());
                        }
                        PartEnd::Silent => continue,
                        PartEnd::Lost(reason) => {
                            if self.printed > before {
                                tries = 0;
                            }
                            self.unreachable(&reason)
                        }
                    }
                }
                Source::Broken(failure) => failure,
            };
            tries += 1;
            if tries >= MAX_TRIES {
                return Err(failure);
            }
            machine::pause(FIRST_PAUSE * 2_u32.pow(tries.min(5) - 1)).await;
        }
    }

    async fn open(&self, follow: bool, session: &Session) -> Result<Source, Failure> {
        let call = Call::get(
            FLEETWRIGHT,
            &["task", &self.task, "runs", &self.number(), "log"],
        )
        .query("offset", Some(self.printed))
        .query("follow", follow.then_some("true"))
        .to(self.purpose())
        .list_command(TASK_LIST);
        match session.client.open(&call, None, STREAM_LIMIT).await? {
            OpenOutcome::Stream(response) => Ok(Source::Open { response, skip: 0 }),
            OpenOutcome::Missing(failure) => self.open_artifact(failure, session).await,
            other @ (OpenOutcome::Redirect(_) | OpenOutcome::Broken(_)) => {
                self.opened(&call, other, session).await
            }
        }
    }

    /// Opens the log as an artifact: its name may be unusual, or the server may only have
    /// artifacts.
    async fn open_artifact(&self, missing: Failure, session: &Session) -> Result<Source, Failure> {
        let number = self.number();
        let list = Call::get(QUEUE, &["task", &self.task, "runs", &number, "artifacts"])
            .to(self.purpose())
            .list_command(TASK_LIST);
        let listed = session
            .client
            .pages(&list, "artifacts", Some(MAX_ARTIFACTS));
        let listed = listed.await?;
        let Some(name) = log_among(&listed) else {
            let failure = Failure {
                exit: Exit::NotFound,
                ..missing
            };
            // There may be more artifacts than the list has.
            if listed["artifacts"][MAX_ARTIFACTS - 1].is_null() {
                return Err(failure);
            }
            let hint = format!("only the first {MAX_ARTIFACTS} artifacts were searched for a log");
            return Err(failure.with_hint(hint));
        };
        let segments = ["task", &self.task, "runs", &number, "artifacts", &name];
        let call = Call::get(QUEUE, &segments).to(self.purpose());
        let opened = session.client.open(&call, None, STREAM_LIMIT).await?;
        self.opened(&call, opened, session).await
    }

    async fn opened(
        &self,
        call: &Call,
        opened: OpenOutcome,
        session: &Session,
    ) -> Result<Source, Failure> {
        let skip = self.printed;
        match opened {
            // Artifacts and redirects do not support offsets.
            OpenOutcome::Stream(response) => Ok(Source::Open { response, skip }),
            OpenOutcome::Redirect(redirect) => {
                let client = &session.client;
                let opened = client.open_redirect(redirect, self.any_host, STREAM_LIMIT);
                match opened.await {
                    Ok(response) => Ok(Source::Open { response, skip }),
                    Err(RedirectError::Elsewhere(place)) => Err(self.elsewhere(&place)),
                    Err(RedirectError::Broken(reason)) => {
                        Ok(Source::Broken(self.unreachable(&reason)))
                    }
                }
            }
            OpenOutcome::Missing(failure) => Err(failure),
            OpenOutcome::Broken(reason) => {
                Ok(Source::Broken(session.client.unreachable(call, &reason)))
            }
        }
    }

    fn number(&self) -> String {
        self.run.to_string()
    }

    fn purpose(&self) -> String {
        format!("show the log of run {} of task {}", self.run, self.task)
    }

    /// The failure for a log that cannot be read, although the server responded.
    fn unreachable(&self, reason: &str) -> Failure {
        let text = format!("could not {}: {reason}", self.purpose());
        Failure::new(Exit::Unreachable, text).with_hint(
            "the worker serves the log of a running task: check that this machine can reach it",
        )
    }

    /// The failure for a log on a host that the task's author chose.
    fn elsewhere(&self, place: &str) -> Failure {
        let text = format!(
            "could not {}: the task refers to {place}, not to a log of the server",
            self.purpose()
        );
        let hint = format!(
            "`fleetwright task log --any-host {}` reads it there, without credentials",
            self.task
        );
        Failure::new(Exit::Unreachable, text).with_hint(hint)
    }

    async fn print_part(&mut self, mut response: Response, skip: u64) -> PartEnd {
        let mut text = Text::of(&response, skip);
        loop {
            match timeout(SILENCE_LIMIT, response.chunk()).await {
                Ok(Ok(Some(bytes))) => match text.take(&bytes) {
                    Ok(news) => {
                        self.printed += news.len() as u64;
                        self.text.print(&news);
                    }
                    Err(error) => return PartEnd::Lost(format!("the log is damaged: {error}")),
                },
                Ok(Ok(None)) => return PartEnd::Complete,
                Ok(Err(error)) => return PartEnd::Lost(error.without_url().to_string()),
                Err(_) => return PartEnd::Silent,
            }
        }
    }
}

/// Decodes a log piece by piece, and skips the part that was already printed.
struct Text {
    unpacker: Option<MultiGzDecoder<Vec<u8>>>,
    skip: u64,
}

impl Text {
    fn of(response: &Response, skip: u64) -> Self {
        let encoding = response.headers().get(CONTENT_ENCODING);
        let is_packed = encoding.is_some_and(|encoding| encoding.as_bytes() == b"gzip");
        Self {
            unpacker: is_packed.then(|| MultiGzDecoder::new(Vec::new())),
            skip,
        }
    }

    fn take(&mut self, piece: &[u8]) -> std::io::Result<Vec<u8>> {
        let mut text = match &mut self.unpacker {
            None => piece.to_vec(),
            Some(unpacker) => {
                unpacker.write_all(piece)?;
                unpacker.flush()?;
                std::mem::take(unpacker.get_mut())
            }
        };
        let known = usize::try_from(self.skip).map_or(text.len(), |skip| skip.min(text.len()));
        self.skip -= known as u64;
        text.drain(..known);
        Ok(text)
    }
}

/// The name of the log in a list of artifacts.
fn log_among(listed: &Value) -> Option<String> {
    let artifacts = listed["artifacts"].as_array().into_iter().flatten();
    let names: Vec<&str> = artifacts
        .filter(|artifact| artifact["storageType"] != "error")
        .filter_map(|artifact| artifact["name"].as_str())
        .filter(|name| name.starts_with(LOGS))
        .collect();
    let known = KNOWN_LOGS.iter().find(|known| names.contains(known));
    let any = || {
        names
            .iter()
            .find(|name| name.ends_with(".log"))
            .or(names.first())
    };
    known.or_else(any).map(|name| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use domain::time::Timestamp;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use serde_json::json;
    use testing::sizes_around;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::client::{Client, Settings};

    fn among(names: &[&str]) -> Option<String> {
        let artifacts: Vec<Value> = names
            .iter()
            .map(|name| json!({"name": name, "storageType": "s3"}))
            .collect();
        log_among(&json!({ "artifacts": artifacts }))
    }

    #[test]
    fn the_best_log_is_taken() {
        for (names, expected) in [
            (&["public/a.log"][..], None),
            (
                &["public/logs/x", "public/logs/y.log"],
                Some("public/logs/y.log"),
            ),
            (&["public/logs/x", "public/z"], Some("public/logs/x")),
            (
                &["public/logs/a.log", "public/logs/live_backing.log"],
                Some("public/logs/live_backing.log"),
            ),
            (
                &["public/logs/live_backing.log", "public/logs/live.log"],
                Some("public/logs/live.log"),
            ),
        ] {
            assert_eq!(among(names).as_deref(), expected, "{names:?}");
        }
        let broken = json!({"artifacts": [{"name": "public/logs/a.log", "storageType": "error"}]});
        assert_eq!(log_among(&broken), None);
    }

    fn text(is_packed: bool, skip: u64) -> Text {
        Text {
            unpacker: is_packed.then(|| MultiGzDecoder::new(Vec::new())),
            skip,
        }
    }

    fn read(mut text: Text, bytes: &[u8], size: usize) -> String {
        let pieces = bytes.chunks(size).map(|piece| text.take(piece).unwrap());
        String::from_utf8(pieces.flatten().collect()).unwrap()
    }

    #[test]
    fn printed_bytes_are_skipped_for_all_sizes_of_pieces() {
        let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
        packer.write_all(b"one\ntwo\n").unwrap();
        let packed = packer.finish().unwrap();
        for size in [1, 3, 4, 5, 100] {
            for (skip, expected) in [(0, "one\ntwo\n"), (4, "two\n"), (8, ""), (100, "")] {
                assert_eq!(read(text(false, skip), b"one\ntwo\n", size), expected);
                assert_eq!(read(text(true, skip), &packed, size), expected);
            }
        }
        assert!(text(true, 0).take(b"not packed at all").is_err());
    }

    /// Serves a run without a log link whose last artifact is a log. A connection that sends
    /// nothing ends it; then it returns how many pages of artifacts were asked for.
    async fn serve(listener: TcpListener, n_artifacts: usize) -> usize {
        let mut n_lists = 0;
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                if stream.read_buf(&mut head).await.unwrap() == 0 {
                    return n_lists;
                }
            }
            let head = String::from_utf8(head).unwrap();
            let resource = head.split(' ').nth(1).unwrap();
            let number = |name: &str| {
                let (_, value) = resource.split_once(name)?;
                value.split('&').next()?.parse::<usize>().ok()
            };
            let (status, body) = match resource {
                _ if resource.contains("/log?") => ("404 Not Found", json!({"message": "no"})),
                _ if resource.contains("live.log") => ("200 OK", json!("the log")),
                _ => {
                    n_lists += 1;
                    let first = number("continuationToken=").unwrap_or(0);
                    let end = n_artifacts.min(first + number("limit=").unwrap());
                    let artifact = |at: usize| {
                        if at + 1 == n_artifacts {
                            json!({"name": KNOWN_LOGS[0]})
                        } else {
                            json!({"name": format!("public/{at}")})
                        }
                    };
                    let mut page =
                        json!({"artifacts": (first..end).map(artifact).collect::<Vec<_>>()});
                    if end < n_artifacts {
                        page["continuationToken"] = json!(end.to_string());
                    }
                    ("200 OK", page)
                }
            };
            let body = body.to_string();
            let text = format!(
                "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(text.as_bytes()).await.unwrap();
        }
    }

    #[tokio::test]
    async fn the_number_of_searched_artifacts_is_limited_and_reported() {
        let limit = MAX_ARTIFACTS;
        for count in sizes_around("fleetwright::commands::task::log::MAX_ARTIFACTS", limit) {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let serving = tokio::spawn(serve(listener, count));
            let settings = Settings {
                root_url: format!("http://{address}"),
                credentials: None,
            };
            let session = Session {
                client: Client::new(settings, false).unwrap(),
                json: false,
                now: Timestamp::from_millis(0),
            };
            match Reading::of("t", 0, false).open(false, &session).await {
                Ok(Source::Open { .. }) => assert!((1..=limit).contains(&count), "{count}"),
                Ok(Source::Broken(failure)) => panic!("{count}: {}", failure.message),
                Err(missing) => {
                    assert!(count == 0 || count > limit, "{count}: {}", missing.message);
                    assert_eq!(missing.exit, Exit::NotFound);
                    let hint = missing.hint.unwrap_or_default();
                    assert_eq!(
                        hint.contains("only the first 10000 artifacts"),
                        count > limit,
                        "{hint}"
                    );
                }
            }
            // A connection that says nothing ends the service.
            drop(TcpStream::connect(address).await.unwrap());
            let n_lists = count.min(limit).div_ceil(1_000).max(1);
            assert_eq!(serving.await.unwrap(), n_lists, "{count}");
        }
    }
}
