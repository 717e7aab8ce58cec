//! Follows a task: its log as it grows, run after run, and its state until it is resolved.

use std::time::Duration;

use reqwest::Response;
use serde_json::Value;
use tokio::time::timeout;

use super::{LOOK, Session, status};
use crate::client::{Call, FLEETWRIGHT, Opened};
use crate::failure::{Exit, Failure};
use crate::{machine, output};

/// How often a task is looked at while there is no log to listen to.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// A log that is silent for so long may have been lost on the way: it is opened again where it stopped.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);
/// No connection is older.
const STREAM_LIMIT: Duration = Duration::from_secs(60 * 60);
/// So often in a row a log is opened in vain.
const MAX_TRIES: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// Waits until the task is resolved, and returns where it stands then. With `shows_log` its log is printed.
pub(super) async fn until_resolved(
    task: &str,
    shows_log: bool,
    session: &Session,
) -> Result<Value, Failure> {
    let mut shown = None;
    let mut has_log = shows_log;
    loop {
        let status = status(task, session).await?;
        let run = last_run(&status);
        if let Some(run) = run
            && has_log
            && shown != Some(run)
        {
            if shown.is_some() {
                output::note(&format!("the task is tried again: run {run}"));
            }
            match log(task, run, true, session).await {
                Ok(()) => shown = Some(run),
                // Other workers keep logs elsewhere, and some runs end before they have one.
                Err(failure) if failure.exit == Exit::NotFound => {
                    output::note("there is no log here");
                    has_log = false;
                }
                Err(failure) => return Err(failure),
            }
            continue;
        }
        if is_resolved(&status) {
            return Ok(status);
        }
        machine::pause(LOOK_AGAIN).await;
    }
}

/// Prints the log of a run. With `follow` it goes on until the run has ended.
pub(super) async fn log(
    task: &str,
    run: u64,
    follow: bool,
    session: &Session,
) -> Result<(), Failure> {
    let number = run.to_string();
    let mut offset: u64 = 0;
    let mut tries = 0;
    loop {
        let call = Call::get(FLEETWRIGHT, &["task", task, "runs", &number, "log"])
            .query("offset", Some(offset))
            .query("follow", follow.then_some("true"))
            .to(format!("show the log of run {run} of task {task}"))
            .look_with(LOOK);
        let opened = session.client.open(&call, None, STREAM_LIMIT).await?;
        let reason = match opened {
            Opened::Stream(response) => {
                let before = offset;
                match print(response, &mut offset).await {
                    Ended::Whole => return Ok(()),
                    Ended::Silent => continue,
                    Ended::Lost(reason) => {
                        if offset > before {
                            tries = 0;
                        }
                        reason
                    }
                }
            }
            Opened::Broken(reason) => reason,
        };
        tries += 1;
        if tries >= MAX_TRIES {
            return Err(session.client.unreachable(&call, &reason));
        }
        machine::pause(FIRST_PAUSE * 2_u32.pow(tries.min(5) - 1)).await;
    }
}

/// The number of the run that counts, if there is one.
pub(super) fn last_run(status: &Value) -> Option<u64> {
    status["runs"].as_array()?.last()?["runId"].as_u64()
}

/// Why the last run ended, if it has.
pub(super) fn reason(status: &Value) -> Option<&str> {
    status["runs"].as_array()?.last()?["reasonResolved"].as_str()
}

fn is_resolved(status: &Value) -> bool {
    matches!(
        status["state"].as_str(),
        Some("completed" | "failed" | "exception")
    )
}

/// How a part of a log ended.
enum Ended {
    /// There is no more of it.
    Whole,
    Silent,
    Lost(String),
}

async fn print(mut response: Response, offset: &mut u64) -> Ended {
    loop {
        match timeout(SILENCE_LIMIT, response.chunk()).await {
            Ok(Ok(Some(bytes))) => {
                *offset += bytes.len() as u64;
                output::out_raw(&bytes);
            }
            Ok(Ok(None)) => return Ended::Whole,
            Ok(Err(problem)) => return Ended::Lost(problem.without_url().to_string()),
            Err(_) => return Ended::Silent,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_run_is_the_one_that_counts() {
        let status = json!({"state": "pending", "runs": [
            {"runId": 0, "reasonResolved": "worker-shutdown"}, {"runId": 1}]});
        assert_eq!((last_run(&status), reason(&status)), (Some(1), None));
        let status = json!({"state": "unscheduled", "runs": []});
        assert_eq!((last_run(&status), reason(&status)), (None, None));
    }

    #[test]
    fn a_task_is_resolved_in_three_ways() {
        for (state, expected) in [
            ("unscheduled", false),
            ("pending", false),
            ("running", false),
            ("completed", true),
            ("failed", true),
            ("exception", true),
        ] {
            assert_eq!(is_resolved(&json!({ "state": state })), expected, "{state}");
        }
    }
}
