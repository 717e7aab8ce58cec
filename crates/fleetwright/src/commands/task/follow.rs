//! Follows a task: its status, and the log of each run, until it is resolved.

use std::time::Duration;

use serde_json::Value;

use super::log::Reading;
use super::{status, waits};
use crate::failure::{Exit, Failure};
use crate::session::Session;
use crate::{machine, output};

/// The interval of reading the status while no log is available.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Whether to print the log of a task.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ShownLog {
    None,
    /// From the server and its stores.
    OfServer,
    /// And from hosts that the task refers to.
    OfAnyHost,
}

/// Waits until the task is resolved, and returns its status. Meanwhile, says why it waits.
pub(super) async fn until_resolved(
    task: &str,
    shown: ShownLog,
    session: &Session,
) -> Result<Value, Failure> {
    let following = follow(task, shown, session);
    if session.json {
        return following.await;
    }
    tokio::select! {
        biased;
        resolved = following => resolved,
        never = waits::report(task, session) => match never {},
    }
}

/// The same, without a word about the wait.
pub(super) async fn follow(
    task: &str,
    shown: ShownLog,
    session: &Session,
) -> Result<Value, Failure> {
    let mut following: Option<Following> = None;
    loop {
        let status = status(task, session).await?;
        let run = last_run(&status).filter(|_| shown != ShownLog::None);
        if let Some(run) = run
            && following.as_ref().is_none_or(|it| it.reading.run != run)
        {
            if following.is_some() {
                output::note(&format!("the task is retried: run {run}"));
            }
            let any_host = shown == ShownLog::OfAnyHost;
            following = Some(Following::new(task, run, any_host));
        }
        match &mut following {
            Some(following) if !following.is_done => {
                following.print_more(has_ended(&status), session).await?;
                if following.is_done {
                    continue;
                }
            }
            Some(_) | None => {}
        }
        if is_resolved(&status) {
            return Ok(status);
        }
        machine::pause(POLL_INTERVAL).await;
    }
}

/// The log of a run that is followed.
struct Following {
    reading: Reading,
    /// Whether the log is printed only after the run, because it is unreachable before.
    waits_for_end: bool,
    is_done: bool,
}

impl Following {
    fn new(task: &str, run: u64, any_host: bool) -> Self {
        Self {
            reading: Reading::of(task, run, any_host),
            waits_for_end: false,
            is_done: false,
        }
    }

    /// Prints more of the log. `has_ended`: whether the run had ended before.
    async fn print_more(&mut self, has_ended: bool, session: &Session) -> Result<(), Failure> {
        if self.waits_for_end && !has_ended {
            return Ok(());
        }
        match self.reading.print(true, session).await {
            Ok(()) => self.is_done = true,
            // A run may end without a log; until it ends, a log may still appear.
            Err(failure) if failure.exit == Exit::NotFound => {
                self.is_done = has_ended;
                if has_ended {
                    output::note("this run has no log");
                }
            }
            Err(failure) if failure.exit == Exit::Unreachable && !has_ended => {
                output::note(&format!(
                    "{}; the log is printed after the run ends",
                    failure.message
                ));
                self.waits_for_end = true;
            }
            Err(failure) => return Err(failure),
        }
        Ok(())
    }
}

fn last(status: &Value) -> Option<&Value> {
    status["runs"].as_array()?.last()
}

pub(super) fn last_run(status: &Value) -> Option<u64> {
    last(status)?["runId"].as_u64()
}

/// The reason why the last run ended, if it ended.
pub(super) fn reason(status: &Value) -> Option<&str> {
    last(status)?["reasonResolved"].as_str()
}

fn has_ended(status: &Value) -> bool {
    last(status).is_some_and(|run| run.get("resolved").is_some())
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
    fn the_last_run_counts() {
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
