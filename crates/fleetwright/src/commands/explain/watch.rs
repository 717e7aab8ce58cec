//! Shows an explanation once, or again whenever it changes.

use std::time::Duration;

use clap::Args;
use serde_json::Value;

use crate::client::Call;
use crate::failure::Failure;
use crate::session::Session;
use crate::{machine, output};

/// The interval of asking again.
const INTERVAL: Duration = Duration::from_secs(2);
/// Moves to the top of the screen, and clears it.
const CLEAR: &str = "\x1b[H\x1b[2J";

#[derive(Args, Debug)]
pub(crate) struct Watch {
    /// Show it again whenever it changes, until the task or the worker has ended
    #[arg(short, long)]
    watch: bool,
}

impl Watch {
    pub(super) const ONCE: Self = Self { watch: false };

    pub(super) async fn show(
        &self,
        call: &Call,
        session: &Session,
        text: impl Fn(&Value) -> String,
    ) -> Result<(), Failure> {
        let mut before = Value::Null;
        loop {
            let reply = session.client.call(call).await?;
            let present = without_time(&reply);
            if present != before {
                print(&reply, session, self.watch, &text);
                before = present;
            }
            if !self.watch || has_ended(&reply) {
                return Ok(());
            }
            machine::pause(INTERVAL).await;
        }
    }
}

fn print(reply: &Value, session: &Session, watches: bool, text: &impl Fn(&Value) -> String) {
    if session.json && watches {
        // One line for each change, for programs.
        output::out(&reply.to_string());
    } else if session.json {
        output::json(reply);
    } else {
        let clear = if watches && output::to_terminal() {
            CLEAR
        } else {
            ""
        };
        output::out(&format!("{clear}{}", text(reply).trim_end()));
    }
}

/// The reply without what changes with each second.
fn without_time(reply: &Value) -> Value {
    let mut reply = reply.clone();
    for key in ["time", "waitedMs", "totalMs", "causes", "waits"] {
        if let Some(reply) = reply.as_object_mut() {
            reply.remove(key);
        }
    }
    if let Some(now) = reply.get_mut("now").and_then(Value::as_object_mut) {
        now.remove("snapshot");
    }
    reply
}

/// Whether the task or the worker changes no more.
fn has_ended(reply: &Value) -> bool {
    let is_task = reply["taskId"].is_string();
    match reply["state"].as_str() {
        Some("stopped" | "completed" | "failed" | "exception") => true,
        Some("running") => is_task,
        Some(_) | None => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_changes_are_shown_again() {
        let reply = |ms: u64, reason: &str| {
            json!({"time": ms, "waitedMs": ms, "reason": reason,
                "now": {"text": "t", "snapshot": {"now": ms}}})
        };
        assert_eq!(without_time(&reply(1, "a")), without_time(&reply(2, "a")));
        assert_ne!(without_time(&reply(1, "a")), without_time(&reply(1, "b")));
    }

    #[test]
    fn watching_ends_with_the_wait_or_the_worker() {
        let is_over = |state: &str, id: &str| has_ended(&json!({"state": state, id: "x"}));
        assert!(!is_over("pending", "taskId"));
        assert!(is_over("running", "taskId"));
        assert!(!is_over("running", "workerId"));
        assert!(is_over("stopped", "workerId"));
    }
}
