//! Says why a followed task waits, as long as it waits.

use std::convert::Infallible;
use std::time::Duration;

use serde_json::Value;

use crate::client::{Call, FLEETWRIGHT};
use crate::session::Session;
use crate::{machine, output};

/// A task that starts sooner is not worth a word.
const FIRST: Duration = Duration::from_secs(3);
/// The interval of asking again while the task waits.
const INTERVAL: Duration = Duration::from_secs(2);
/// The interval while it runs: its worker may be lost, and then it waits again.
const INTERVAL_OF_RUN: Duration = Duration::from_secs(15);

/// Prints the cause of the wait, and each change of it.
pub(super) async fn report(task: &str, session: &Session) -> Infallible {
    let call =
        Call::get(FLEETWRIGHT, &["explain", "task", task]).to(format!("explain task {task}"));
    let mut wait = Wait::default();
    let mut interval = FIRST;
    loop {
        machine::pause(interval).await;
        // The client may lack the scope for this, and other servers have no explanations.
        let Ok(reply) = session.client.call(&call).await else {
            return std::future::pending().await;
        };
        if let Some(text) = wait.news(&reply) {
            output::note(&text);
        }
        interval = match is_waiting(&reply) {
            true => INTERVAL,
            false => INTERVAL_OF_RUN,
        };
    }
}

fn is_waiting(reply: &Value) -> bool {
    reply["cause"].is_string()
}

/// The wait as it was last printed.
#[derive(Default)]
struct Wait {
    printed: Option<String>,
}

impl Wait {
    fn news(&mut self, reply: &Value) -> Option<String> {
        if !is_waiting(reply) {
            self.printed = None;
            return None;
        }
        let text = |key: &str| output::printable(reply[key].as_str().unwrap_or_default());
        let (cause, reason) = (text("cause"), text("reason"));
        let steady = match cause.as_str() {
            // Its reason says how long the machine has been booting.
            "booting" => cause,
            // Counts and times change with every answer.
            _ => reason.replace(|c: char| c.is_ascii_digit(), ""),
        };
        if self.printed.as_ref() == Some(&steady) {
            return None;
        }
        let is_first = self.printed.replace(steady).is_none();
        let line = format!("it waits because {reason}");
        Some(match is_first {
            true => {
                let task = text("taskId");
                format!("{line}\n  `fleetwright explain task {task}` shows what would change this")
            }
            false => line,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn waiting(cause: &str, reason: &str) -> Value {
        json!({"taskId": "t", "state": "pending", "cause": cause, "reason": reason})
    }

    #[test]
    fn each_cause_is_said_once() {
        let mut wait = Wait::default();
        let said = wait
            .news(&waiting("deciding", "the next decision is due"))
            .unwrap();
        assert_eq!(
            said,
            "it waits because the next decision is due\n  `fleetwright explain task t` shows what \
             would change this"
        );
        for (reply, expected) in [
            (waiting("deciding", "the next decision is due"), None),
            (
                waiting("busy", "all 3 places are busy"),
                Some("it waits because all 3 places are busy"),
            ),
            (waiting("busy", "all 4 places are busy"), None),
            (
                waiting("booting", "it boots: 5 s"),
                Some("it waits because it boots: 5 s"),
            ),
            (waiting("booting", "it boots: 1 min 2 s"), None),
            (json!({"state": "running", "cause": null}), None),
        ] {
            assert_eq!(wait.news(&reply).as_deref(), expected, "{reply}");
        }
        // It lost its worker.
        assert!(
            wait.news(&waiting("busy", "all 4 places are busy"))
                .is_some()
        );
    }
}
