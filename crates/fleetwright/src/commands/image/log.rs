//! The log of a build, also while it grows, and how the build ended.

use clap::Args;
use serde_json::{Value, json};

use super::Name;
use super::status::{self, items, text};
use super::work::build_number;
use crate::client::{Call, FLEETWRIGHT};
use crate::commands::Session;
use crate::failure::{Exit, Failure};
use crate::output::{self, ForeignText};

/// Seconds that a reply about a growing log, or about the next build, may wait.
const WAIT_SECONDS: u32 = 20;
const FIRST_WAIT_SECONDS: u32 = 1;

#[derive(Args, Debug)]
pub(crate) struct Log {
    #[command(flatten)]
    image: Name,
    /// Number of the build (default: the newest)
    #[arg(value_name = "BUILD", value_parser = build_number)]
    build: Option<u64>,
    /// Continue until the build has ended
    #[arg(long, short)]
    follow: bool,
}

/// Prints the log of a build. With `follow`, until the build has ended.
pub(super) async fn print(log: &Log, session: &Session) -> Result<(), Failure> {
    let id = &log.image.id;
    let build = match log.build {
        Some(build) => build,
        None => {
            let call = status::call(id).to(format!("read the log of image {id}"));
            let newest = newest(&session.client.call(&call).await?);
            if newest.is_none() && log.follow {
                // The first build is about to begin.
                return follow(id, None, 0, session).await;
            }
            newest.ok_or_else(|| {
                Failure::new(Exit::NotFound, format!("image {id} has not been built yet"))
                    .with_hint(format!("fleetwright explain image {id}"))
            })?
        }
    };
    let reader = LogReader {
        id,
        build,
        follow: log.follow,
        session,
    };
    if !session.json {
        let mut text = ForeignText::to_stdout();
        let read = reader.read(|bytes| text.print(bytes)).await;
        text.end();
        read?;
        return output::check_written();
    }
    let mut all = Vec::new();
    let has_ended = reader.read(|bytes| all.extend_from_slice(bytes)).await?;
    let log = String::from_utf8_lossy(&all);
    output::json(&json!({"imageId": id, "build": build, "text": log, "hasEnded": has_ended}));
    Ok(())
}

struct LogReader<'a> {
    id: &'a str,
    build: u64,
    follow: bool,
    session: &'a Session,
}

impl LogReader<'_> {
    /// Passes the log to `take`. Returns whether the build has ended.
    async fn read(&self, mut take: impl FnMut(&[u8])) -> Result<bool, Failure> {
        let (id, build) = (self.id, self.build.to_string());
        let mut from = 0;
        loop {
            let call = Call::get(FLEETWRIGHT, &["image", id, "builds", &build, "log"])
                .query("from", Some(from))
                .query("wait", self.follow.then_some(WAIT_SECONDS))
                .to(format!("read the log of build {build} of image {id}"))
                .list_command(format!("fleetwright image show {id}"));
            let piece = self.session.client.call(&call).await?;
            if let Some(left_out) = piece["leftOut"].as_u64().filter(|bytes| *bytes > 0) {
                output::note(&format!(
                    "{left_out} bytes are left out here: the log is too long"
                ));
            }
            take(piece["text"].as_str().unwrap_or_default().as_bytes());
            let next = piece["next"].as_u64().unwrap_or(from);
            let is_last = piece["isLast"] == true;
            if is_last || (!self.follow && next == from) {
                return Ok(is_last);
            }
            from = next;
        }
    }
}

/// The number of the newest build.
fn newest(status: &Value) -> Option<u64> {
    status["builds"][0]["build"].as_u64()
}

/// Prints the log of a build that runs, or of the next one after `newest`, and fails if it fails. A
/// build that ends with its builder is followed by another one.
pub(super) async fn follow(
    id: &str,
    running: Option<u64>,
    newest: u64,
    session: &Session,
) -> Result<(), Failure> {
    let (mut running, mut newest) = (running, newest);
    loop {
        let build = match running {
            Some(build) => build,
            None => next_build(id, newest, session).await?,
        };
        let record = follow_build(id, build, session).await?;
        let cause = text(&record, "cause");
        if !["builder-died", "builder-stopped"].contains(&cause.as_str()) {
            return report(id, build, &record, session);
        }
        output::note(&format!(
            "build {build} of image {id} ended: {}; the next one follows",
            text(&record, "error")
        ));
        (running, newest) = (None, build);
    }
}

/// Prints the log of a build until it has ended. Returns its record.
async fn follow_build(id: &str, build: u64, session: &Session) -> Result<Value, Failure> {
    if !session.json {
        output::note(&format!("build {build} of image {id}:"));
    }
    let reader = LogReader {
        id,
        build,
        follow: true,
        session,
    };
    let is_json = session.json;
    let mut shown = ForeignText::to_stdout();
    let read = reader.read(|bytes| {
        if !is_json {
            shown.print(bytes);
        }
    });
    let read = read.await;
    shown.end();
    match read {
        // A build that could not begin has no log, but an error.
        Err(failure) if failure.exit != Exit::NotFound => return Err(failure),
        Ok(_) | Err(_) => {}
    }
    output::check_written()?;
    let status = status::read(id, session).await?;
    let record = items(&status, "builds").find(|it| it["build"].as_u64() == Some(build));
    Ok(record.cloned().unwrap_or(Value::Null))
}

fn report(id: &str, build: u64, record: &Value, session: &Session) -> Result<(), Failure> {
    if session.json {
        output::json(record);
    }
    let state = text(record, "state");
    if state == "ready" {
        if !session.json {
            output::note(&format!("build {build} of image {id} is ready"));
        }
        return Ok(());
    }
    let error = text(record, "error");
    Err(
        Failure::failed(format!("build {build} of image {id} {state}: {error}"))
            .with_hint(format!("fleetwright explain image {id}")),
    )
}

/// The number of the build after this one, as soon as it begins. Notes why it does not.
async fn next_build(id: &str, after: u64, session: &Session) -> Result<u64, Failure> {
    let mut reported = String::new();
    // The first reply comes soon, so that people read why they wait.
    let mut wait = FIRST_WAIT_SECONDS;
    loop {
        let call = status::call(id)
            .query("newerThan", Some(after))
            .query("wait", Some(wait));
        let status = session.client.call(&call).await?;
        if let Some(build) = newest(&status).filter(|build| *build > after) {
            return Ok(build);
        }
        let next = text(&status["nextBuild"], "step");
        if next != reported {
            let why = next.strip_prefix("wait: ").unwrap_or(&next);
            output::note(&format!("no build yet: {why}"));
            reported = next;
        }
        wait = WAIT_SECONDS;
    }
}
