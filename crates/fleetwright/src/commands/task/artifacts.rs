//! Artifacts of a task: lists and downloads them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use flate2::write::MultiGzDecoder;
use reqwest::Response;
use reqwest::header::CONTENT_ENCODING;
use tokio::time::timeout;

use crate::client::{Call, OpenOutcome, QUEUE, RedirectError};
use crate::commands::name::{TASK_LIST, Task as Name};
use crate::failure::{Exit, Failure};
use crate::output::{self, Column, Progress};
use crate::session::{Limit, Session};

/// Maximum duration of a download.
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);
/// A download without data for this long is broken.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);

#[derive(Args, Debug)]
pub(crate) struct Artifacts {
    #[command(flatten)]
    name: Name,
    /// Run number (default: the last run)
    #[arg(long, value_name = "N")]
    run: Option<u64>,
    #[command(flatten)]
    limit: Limit,
}

#[derive(Args, Debug)]
pub(crate) struct Download {
    #[command(flatten)]
    name: Name,
    /// Name of the artifact, such as public/build.tgz
    #[arg(value_name = "NAME")]
    artifact: String,
    /// File to write (`-`: standard output; default: the last part of NAME, in this folder)
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Run number (default: the last run)
    #[arg(long, value_name = "N")]
    run: Option<u64>,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
    /// Read an artifact on any host that the task refers to
    #[arg(long)]
    any_host: bool,
}

const LIST: &[Column] = &[
    Column::text("NAME", "name"),
    Column::text("STORED AS", "storageType"),
    Column::text("CONTENT TYPE", "contentType"),
    Column::age("EXPIRES", "expires"),
];

pub(super) async fn list(arguments: &Artifacts, session: &Session) -> Result<(), Failure> {
    let task = &arguments.name.task;
    let run = arguments.run.map(|run| run.to_string());
    let call = Call::get(QUEUE, &segments(task, run.as_deref()))
        .to(format!("list the artifacts of task {task}"))
        .list_command(TASK_LIST);
    session
        .list(&call, "artifacts", LIST, &arguments.limit)
        .await
}

fn segments<'a>(task: &'a str, run: Option<&'a str>) -> Vec<&'a str> {
    match run {
        None => vec!["task", task, "artifacts"],
        Some(run) => vec!["task", task, "runs", run, "artifacts"],
    }
}

pub(super) async fn download(arguments: &Download, session: &Session) -> Result<(), Failure> {
    let (task, name) = (&arguments.name.task, &arguments.artifact);
    let run = arguments.run.map(|run| run.to_string());
    let mut segments = segments(task, run.as_deref());
    segments.push(name);
    let call = Call::get(QUEUE, &segments)
        .to(format!("download {name} of task {task}"))
        .list_command(format!("fleetwright task artifacts {task}"));
    let to = arguments.path()?;
    let response = open(&call, arguments.any_host, session).await?;
    let Some(path) = to else {
        return copy(response, io::stdout(), &call.purpose).await.map(drop);
    };
    // Complete or not at all: a reader never sees half of a file.
    let unfinished = unfinished(&path);
    let file = create(&unfinished)?;
    let copied = copy(response, file, &call.purpose).await;
    let moved = copied.and_then(|n_bytes| {
        fs::rename(&unfinished, &path)
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(n_bytes)
    });
    match moved {
        Ok(n_bytes) => {
            output::note(&format!("wrote {} ({n_bytes} bytes)", path.display()));
            Ok(())
        }
        Err(failure) => {
            let _gone_already = fs::remove_file(&unfinished);
            Err(failure)
        }
    }
}

impl Download {
    /// The file to write; `None`: standard output.
    fn path(&self) -> Result<Option<PathBuf>, Failure> {
        let path = match &self.out {
            Some(path) if path == Path::new("-") => return Ok(None),
            Some(path) => path.clone(),
            None => match self.artifact.rsplit('/').next() {
                // The author of the task chose the name.
                Some(last) if !last.is_empty() && last != "." && last != ".." => {
                    PathBuf::from(last)
                }
                Some(_) | None => {
                    return Err(Failure::usage(format!(
                        "no file can have the last part of {:?} as its name: set --out",
                        self.artifact
                    )));
                }
            },
        };
        let path = match path.is_dir() {
            true => path.join(self.artifact.rsplit('/').next().unwrap_or_default()),
            false => path,
        };
        if path.exists() && !self.force {
            return Err(
                Failure::new(Exit::Conflict, format!("{} exists", path.display()))
                    .with_hint("replace it with --force, or select another file with --out"),
            );
        }
        Ok(Some(path))
    }
}

fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    path.with_file_name(name)
}

fn create(path: &Path) -> Result<File, Failure> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).open(path);
    Ok(file.with_context(|| format!("cannot write {}", path.display()))?)
}

async fn open(call: &Call, any_host: bool, session: &Session) -> Result<Response, Failure> {
    let unreachable = |reason: &str| session.client.unreachable(call, reason);
    match session.client.open(call, None, DOWNLOAD_LIMIT).await? {
        OpenOutcome::Stream(response) => Ok(response),
        OpenOutcome::Missing(failure) => Err(failure),
        OpenOutcome::Broken(reason) => Err(unreachable(&reason)),
        OpenOutcome::Redirect(redirect) => {
            let client = &session.client;
            let opened = client.open_redirect(redirect, any_host, DOWNLOAD_LIMIT);
            opened.await.map_err(|error| match error {
                RedirectError::Elsewhere(place) => Failure::new(
                    Exit::Unreachable,
                    format!("could not {}: the task refers to {place}", call.purpose),
                )
                .with_hint("--any-host reads it there, without credentials"),
                RedirectError::Broken(reason) => unreachable(&reason),
            })
        }
    }
}

/// Writes the content of a response, and returns the number of its bytes.
async fn copy(mut response: Response, to: impl Write, purpose: &str) -> Result<u64, Failure> {
    let encoding = response.headers().get(CONTENT_ENCODING);
    let is_packed = encoding.is_some_and(|encoding| encoding.as_bytes() == b"gzip");
    let (mut n_read, length) = (0, response.content_length());
    let mut to = Sink::new(to, is_packed);
    let mut progress = Progress::start();
    let failed = |reason: String| Failure::failed(format!("could not {purpose}: {reason}"));
    loop {
        let chunk = timeout(SILENCE_LIMIT, response.chunk()).await;
        let chunk = chunk.map_err(|_| failed("no data for a minute".to_owned()))?;
        let chunk = chunk.map_err(|error| failed(error.without_url().to_string()))?;
        let Some(bytes) = chunk else { break };
        n_read += bytes.len() as u64;
        progress.report(|| match length {
            Some(length) => format!("{purpose}: {n_read} of {length} bytes"),
            None => format!("{purpose}: {n_read} bytes"),
        });
        to.write(&bytes)
            .map_err(|error| failed(error.to_string()))?;
    }
    to.finish().map_err(|error| failed(error.to_string()))
}

/// Counts and unpacks what is written.
enum Sink<W: Write> {
    Plain(Counting<W>),
    Packed(Box<MultiGzDecoder<Counting<W>>>),
}

struct Counting<W> {
    to: W,
    n_bytes: u64,
}

impl<W: Write> Write for Counting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n_written = self.to.write(bytes)?;
        self.n_bytes += n_written as u64;
        Ok(n_written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

impl<W: Write> Sink<W> {
    fn new(to: W, is_packed: bool) -> Self {
        let to = Counting { to, n_bytes: 0 };
        match is_packed {
            true => Self::Packed(Box::new(MultiGzDecoder::new(to))),
            false => Self::Plain(to),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(to) => to.write_all(bytes),
            Self::Packed(to) => to.write_all(bytes),
        }
    }

    fn finish(self) -> io::Result<u64> {
        let mut to = match self {
            Self::Plain(to) => to,
            Self::Packed(to) => to.finish()?,
        };
        to.flush()?;
        Ok(to.n_bytes)
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn written(is_packed: bool, bytes: &[u8]) -> io::Result<(u64, Vec<u8>)> {
        let mut content = Vec::new();
        let mut sink = Sink::new(&mut content, is_packed);
        for piece in bytes.chunks(3) {
            sink.write(piece)?;
        }
        let n_bytes = sink.finish()?;
        Ok((n_bytes, content))
    }

    #[test]
    fn packed_content_is_unpacked_and_plain_content_is_kept() {
        let text = b"a text of some length".as_slice();
        let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
        packer.write_all(text).unwrap();
        let packed = packer.finish().unwrap();
        let expected = (text.len() as u64, text.to_vec());
        assert_eq!(written(false, text).unwrap(), expected);
        assert_eq!(written(true, &packed).unwrap(), expected);
        assert!(written(true, &packed[..packed.len() - 4]).is_err());
    }

    #[test]
    fn a_file_is_chosen_by_the_name_of_the_artifact_and_none_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = |artifact: &str, out: Option<&str>, force: bool| {
            let download = Download {
                name: Name {
                    task: String::new(),
                },
                artifact: artifact.to_owned(),
                out: out.map(|out| folder.path().join(out)),
                run: None,
                force,
                any_host: false,
            };
            download.path().map_err(|failure| failure.exit)
        };
        let last = path("public/a-name-that-does-not-exist", None, false);
        assert_eq!(last, Ok(Some(PathBuf::from("a-name-that-does-not-exist"))));
        for odd in ["public/", "public/..", "."] {
            assert_eq!(path(odd, None, false), Err(Exit::Usage), "{odd}");
        }
        fs::write(folder.path().join("there"), "x").unwrap();
        assert_eq!(path("a", Some("there"), false), Err(Exit::Conflict));
        let there = Ok(Some(folder.path().join("there")));
        assert_eq!(path("a", Some("there"), true), there);
        // Into a folder.
        assert_eq!(
            path("x/a", Some(""), false),
            Ok(Some(folder.path().join("a")))
        );
        assert_eq!(
            unfinished(Path::new("/x/a.tgz")),
            Path::new("/x/a.tgz.part")
        );
    }
}
