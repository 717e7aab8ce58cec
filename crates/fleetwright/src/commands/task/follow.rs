//! Follows a task: the log of each run as it grows, and its state until it is resolved.

use std::time::Duration;

use serde_json::Value;

use super::log::Reading;
use super::status;
use crate::failure::{Exit, Failure};
use crate::session::Session;
use crate::{machine, output};

/// How often a task is looked at while there is no log to listen to.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Waits until the task is resolved, and returns where it stands then. With `shows_log` its log is printed.
pub(super) async fn until_resolved(
    task: &str,
    shows_log: bool,
    session: &Session,
) -> Result<Value, Failure> {
    let mut following: Option<Following> = None;
    loop {
        let status = status(task, session).await?;
        let run = last_run(&status).filter(|_| shows_log);
        if let Some(run) = run
            && following.as_ref().is_none_or(|it| it.reading.run != run)
        {
            if following.is_some() {
                output::note(&format!("the task is tried again: run {run}"));
            }
            following = Some(Following::new(task, run));
        }
        match &mut following {
            Some(following) if !following.is_done => {
                following.go_on(has_ended(&status), session).await?;
                if following.is_done {
                    continue;
                }
            }
            Some(_) | None => {}
        }
        if is_resolved(&status) {
            return Ok(status);
        }
        machine::pause(LOOK_AGAIN).await;
    }
}

/// The log of a run that is shown as it grows.
struct Following {
    reading: Reading,
    /// It cannot be reached while it is written: what it became in the end is shown.
    waits_for_end: bool,
    is_done: bool,
}

impl Following {
    fn new(task: &str, run: u64) -> Self {
        Self {
            reading: Reading::of(task, run),
            waits_for_end: false,
            is_done: false,
        }
    }

    /// Shows what there is. `has_ended` is what was known of the run before.
    async fn go_on(&mut self, has_ended: bool, session: &Session) -> Result<(), Failure> {
        if self.waits_for_end && !has_ended {
            return Ok(());
        }
        match self.reading.print(true, session).await {
            Ok(()) => self.is_done = true,
            // Some runs end before they have a log; before that, one may still come.
            Err(failure) if failure.exit == Exit::NotFound => {
                self.is_done = has_ended;
                if has_ended {
                    output::note("there is no log here");
                }
            }
            Err(failure) if failure.exit == Exit::Unreachable && !has_ended => {
                output::note(&format!(
                    "{}; the log is shown when the run has ended",
                    failure.message
                ));
                self.waits_for_end = true;
            }
            Err(failure) => return Err(failure),
        }
        Ok(())
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

/// Whether the last run has ended.
fn has_ended(status: &Value) -> bool {
    let last = status["runs"].as_array().and_then(|runs| runs.last());
    last.is_some_and(|run| run.get("resolved").is_some())
}

fn is_resolved(status: &Value) -> bool {
    matches!(
        status["state"].as_str(),
        Some("completed" | "failed" | "exception")
    )
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
