//! The log of a build, also while it grows, and how the build ended.

use clap::Args;
use serde_json::{Value, json};

use super::Name;
use super::status::{self, items, text};
use crate::client::{Call, FLEETWRIGHT};
use crate::commands::Session;
use crate::failure::{Exit, Failure};
use crate::output::{self, ForeignText};

/// Seconds that a reply about a growing log, or about the next build, may wait.
const WAIT_SECONDS: u32 = 20;

#[derive(Args, Debug)]
pub(crate) struct Log {
    #[command(flatten)]
    image: Name,
    /// Number of the build (default: the newest)
    #[arg(value_name = "BUILD")]
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
            let newest = newest(&status::read(id, session).await?);
            if newest.is_none() && log.follow {
                // The first build is about to begin.
                return follow(id, 0, session).await;
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
                .list_command("fleetwright image show IMAGE");
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
pub(super) fn newest(status: &Value) -> Option<u64> {
    status["builds"][0]["build"].as_u64()
}

/// Waits for the build after this one, prints its log, and fails if it fails.
pub(super) async fn follow(id: &str, newest_before: u64, session: &Session) -> Result<(), Failure> {
    let build = next_build(id, newest_before, session).await?;
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
    let record = record.cloned().unwrap_or(Value::Null);
    if session.json {
        output::json(&record);
    }
    let state = text(&record, "state");
    if state == "ready" {
        if !session.json {
            output::note(&format!("build {build} of image {id} is ready"));
        }
        return Ok(());
    }
    let error = text(&record, "error");
    Err(
        Failure::failed(format!("build {build} of image {id} {state}: {error}"))
            .with_hint(format!("fleetwright explain image {id}")),
    )
}

/// The number of the build after this one, as soon as it begins. Notes why it does not.
async fn next_build(id: &str, after: u64, session: &Session) -> Result<u64, Failure> {
    let mut reported = String::new();
    loop {
        let call = status::call(id)
            .query("newerThan", Some(after))
            .query("wait", Some(WAIT_SECONDS));
        let status = session.client.call(&call).await?;
        if let Some(build) = newest(&status).filter(|build| *build > after) {
            return Ok(build);
        }
        let next = text(&status["nextSteps"][0], "step");
        if next != reported {
            output::note(&format!("no build yet: {next}"));
            reported = next;
        }
    }
}
