//! The log of a run, wherever its worker keeps it: at the server, behind a reference or a link, or as an uploaded file.

use std::io::Write as _;
use std::time::Duration;

use flate2::write::MultiGzDecoder;
use reqwest::Response;
use reqwest::header::CONTENT_ENCODING;
use serde_json::Value;
use tokio::time::timeout;

use super::LOOK;
use crate::client::{Call, FLEETWRIGHT, Opened, QUEUE};
use crate::failure::{Exit, Failure};
use crate::session::Session;
use crate::{machine, output};

/// A log that is silent for this long may have been lost on the way: it is opened again where it stopped.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);
/// No connection is older.
const STREAM_LIMIT: Duration = Duration::from_secs(60 * 60);
/// How often in a row a log is opened in vain.
const MAX_TRIES: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The folder of logs, and the names that workers give them, best first.
const LOGS: &str = "public/logs/";
const KNOWN_LOGS: [&str; 2] = ["public/logs/live.log", "public/logs/live_backing.log"];
/// How many artifacts of a run are searched for a log.
const MAX_ARTIFACTS: usize = 10_000;

/// The log of a run, and how much of it was printed.
pub(super) struct Reading {
    pub(super) task: String,
    pub(super) run: u64,
    printed: u64,
}

/// A log that was opened.
enum Source {
    Open {
        response: Response,
        /// How much of it was printed before.
        skip: u64,
    },
    Broken(Failure),
}

/// How a part of a log ended.
enum Ended {
    /// There is no more of it.
    Whole,
    Silent,
    Lost(String),
}

impl Reading {
    pub(super) fn of(task: &str, run: u64) -> Self {
        Self {
            task: task.to_owned(),
            run,
            printed: 0,
        }
    }

    /// Prints what was not printed before. With `follow` it goes on until the run has ended.
    pub(super) async fn print(&mut self, follow: bool, session: &Session) -> Result<(), Failure> {
        let mut tries = 0;
        loop {
            let failure = match self.open(follow, session).await? {
                Source::Open { response, skip } => {
                    let before = self.printed;
                    match self.print_part(response, skip).await {
                        Ended::Whole => return Ok(()),
                        Ended::Silent => continue,
                        Ended::Lost(reason) => {
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
        .look_with(LOOK);
        match session.client.open(&call, None, STREAM_LIMIT).await? {
            Opened::Stream(response) => Ok(Source::Open { response, skip: 0 }),
            Opened::Missing(failure) => self.open_artifact(failure, session).await,
            other @ (Opened::Elsewhere(_) | Opened::Broken(_)) => {
                self.opened(&call, other, session).await
            }
        }
    }

    /// The log as an artifact: of a worker that gives it another name, or on a server that knows artifacts only.
    async fn open_artifact(&self, missing: Failure, session: &Session) -> Result<Source, Failure> {
        let number = self.number();
        let list = Call::get(QUEUE, &["task", &self.task, "runs", &number, "artifacts"])
            .to(self.purpose())
            .look_with(LOOK);
        let listed = session
            .client
            .pages(&list, "artifacts", Some(MAX_ARTIFACTS));
        let listed = listed.await?;
        let Some(name) = log_among(&listed) else {
            let failure = Failure {
                exit: Exit::NotFound,
                ..missing
            };
            // There may be more, of which this list does not tell.
            if listed["artifacts"][MAX_ARTIFACTS - 1].is_null() {
                return Err(failure);
            }
            let hint =
                format!("the first {MAX_ARTIFACTS} of its artifacts were searched for a log");
            return Err(failure.advise(hint));
        };
        let segments = ["task", &self.task, "runs", &number, "artifacts", &name];
        let call = Call::get(QUEUE, &segments).to(self.purpose());
        let opened = session.client.open(&call, None, STREAM_LIMIT).await?;
        self.opened(&call, opened, session).await
    }

    async fn opened(
        &self,
        call: &Call,
        opened: Opened,
        session: &Session,
    ) -> Result<Source, Failure> {
        let skip = self.printed;
        match opened {
            // Neither an artifact nor a redirect can begin at an offset.
            Opened::Stream(response) => Ok(Source::Open { response, skip }),
            Opened::Elsewhere(url) => {
                match session.client.open_elsewhere(url, STREAM_LIMIT).await {
                    Ok(response) => Ok(Source::Open { response, skip }),
                    Err(reason) => Ok(Source::Broken(self.unreachable(&reason))),
                }
            }
            Opened::Missing(failure) => Err(failure),
            Opened::Broken(reason) => Ok(Source::Broken(session.client.unreachable(call, &reason))),
        }
    }

    fn number(&self) -> String {
        self.run.to_string()
    }

    fn purpose(&self) -> String {
        format!("show the log of run {} of task {}", self.run, self.task)
    }

    /// The server answered, and the log is not where it should be.
    fn unreachable(&self, reason: &str) -> Failure {
        let text = format!("could not {}: {reason}", self.purpose());
        Failure::new(Exit::Unreachable, text).advise(
            "the worker keeps the log of a running task itself: can it be reached from here?",
        )
    }

    async fn print_part(&mut self, mut response: Response, skip: u64) -> Ended {
        let mut text = Text::of(&response, skip);
        loop {
            match timeout(SILENCE_LIMIT, response.chunk()).await {
                Ok(Ok(Some(bytes))) => match text.take(&bytes) {
                    Ok(news) => {
                        self.printed += news.len() as u64;
                        output::out_raw(&news);
                    }
                    Err(problem) => return Ended::Lost(format!("it is damaged: {problem}")),
                },
                Ok(Ok(None)) => return Ended::Whole,
                Ok(Err(problem)) => return Ended::Lost(problem.without_url().to_string()),
                Err(_) => return Ended::Silent,
            }
        }
    }
}

/// The text of a log, piece by piece: unpacked, and without what was printed before.
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

/// The name of the best log in a list of artifacts.
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
    fn what_was_printed_is_skipped_whatever_the_pieces_are() {
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

    /// Serves a run without a log link whose last artifact is a log. A connection that sends nothing ends it; then it
    /// returns how many pages of artifacts were asked for.
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
                    let artifact = |at: usize| match at + 1 == n_artifacts {
                        true => json!({"name": KNOWN_LOGS[0]}),
                        false => json!({"name": format!("public/{at}")}),
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
    async fn so_many_artifacts_are_searched_for_a_log_and_who_has_more_is_told() {
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
            match Reading::of("t", 0).open(false, &session).await {
                Ok(Source::Open { .. }) => assert!((1..=limit).contains(&count), "{count}"),
                Ok(Source::Broken(failure)) => panic!("{count}: {}", failure.message),
                Err(missing) => {
                    assert!(count == 0 || count > limit, "{count}: {}", missing.message);
                    assert_eq!(missing.exit, Exit::NotFound);
                    let hint = missing.advice.unwrap_or_default();
                    assert_eq!(
                        hint.contains("the first 10000 of its artifacts"),
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
