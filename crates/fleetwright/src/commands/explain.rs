//! Why a pool has the workers that it has, and why a worker came and went.

use clap::Subcommand;
use domain::time::Timestamp;
use serde_json::Value;

use super::{Session, name};
use crate::client::{Call, FLEETWRIGHT};
use crate::failure::Failure;
use crate::output;

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// Say what would be decided about a pool now, and what was decided before
    Pool {
        /// The worker pool, such as demo/linux
        #[arg(value_name = "POOL", value_parser = name::pool)]
        pool: String,
    },
    /// Say why a worker was launched, what happened to it, and why it ended
    Worker {
        /// The worker pool, such as demo/linux
        #[arg(value_name = "POOL", value_parser = name::pool)]
        pool: String,
        /// Its worker group, if there are workers of this name in several
        #[arg(value_name = "GROUP", value_parser = name::worker)]
        group: String,
        /// Its id
        #[arg(value_name = "WORKER", value_parser = name::worker)]
        id: String,
    },
}

pub(crate) async fn run(verb: Verb, session: &Session) -> Result<(), Failure> {
    let call = match &verb {
        Verb::Pool { pool } => Call::get(FLEETWRIGHT, &["explain", "pool", pool])
            .to(format!("explain pool {pool}"))
            .look_with("fleetwright pool list"),
        Verb::Worker { pool, group, id } => {
            Call::get(FLEETWRIGHT, &["explain", "worker", pool, group, id])
                .to(format!("explain worker {group}/{id} of pool {pool}"))
                .look_with("fleetwright worker list POOL")
        }
    };
    let reply = session.client.call(&call).await?;
    if session.json {
        output::json(&reply);
        return Ok(());
    }
    let text = match &verb {
        Verb::Pool { .. } => pool_text(&reply),
        Verb::Worker { .. } => worker_text(&reply),
    };
    output::out(text.trim_end());
    Ok(())
}

fn pool_text(reply: &Value) -> String {
    let mut text = format!("Now ({})\n", clock(&reply["time"]));
    text.push_str(&indented(&reply["now"]["text"]));
    let plans = reply["plans"].as_array().map_or(&[][..], Vec::as_slice);
    if plans.is_empty() {
        text.push_str("\nNothing was decided yet.\n");
    }
    for plan in plans {
        let number = &plan["number"];
        text.push_str(&format!("\nPlan {number} ({})\n", clock(&plan["created"])));
        text.push_str(&indented(&plan["text"]));
        for launch in launches_of(reply, number) {
            text.push_str(&format!("  {}\n", launch_line(launch)));
        }
    }
    text
}

fn launches_of<'a>(reply: &'a Value, plan: &'a Value) -> impl Iterator<Item = &'a Value> {
    let launches = reply["launches"].as_array().into_iter().flatten();
    launches.filter(move |launch| launch["plan"] == *plan)
}

fn launch_line(launch: &Value) -> String {
    let word = |key: &str| launch[key].as_str().unwrap_or_default().to_owned();
    let mut line = format!(
        "launch {}: {} of {} machines of {}, {}",
        word("launch"),
        launch["made"],
        launch["machines"],
        word("launchConfigId"),
        word("state"),
    );
    if let Some(problem) = launch["problem"].as_str() {
        line.push_str(&format!(": {problem}"));
    }
    line
}

fn worker_text(reply: &Value) -> String {
    let lines = reply["story"].as_array().into_iter().flatten();
    let lines = lines.map(|line| {
        let at = match &line["time"] {
            Value::String(_) => clock(&line["time"]),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => " ".repeat(MOMENT_LENGTH),
        };
        format!("{at}  {}\n", line["text"].as_str().unwrap_or_default())
    });
    lines.collect()
}

/// As in `2026-11-21 06:19:13`.
const MOMENT_LENGTH: usize = 19;

/// A moment to the second, as people write it.
fn clock(moment: &Value) -> String {
    let parsed = moment
        .as_str()
        .and_then(|text| text.parse::<Timestamp>().ok());
    let text = parsed.map_or_else(String::new, |moment| moment.to_string());
    text.replace('T', " ").chars().take(MOMENT_LENGTH).collect()
}

fn indented(text: &Value) -> String {
    let lines = text.as_str().unwrap_or_default().lines();
    lines.map(|line| format!("  {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pool_is_explained_from_now_to_the_past_with_what_was_launched() {
        let reply = json!({
            "time": "2026-11-21T06:19:13.123Z",
            "now": {"text": "nothing to do\nbecause nothing waits\n"},
            "plans": [{"number": 7, "created": "2026-11-21T06:00:00.000Z", "text": "launch lc-1 x1"}],
            "launches": [
                {"launch": "tok", "plan": 7, "made": 1, "machines": 1, "launchConfigId": "lc-1",
                    "state": "accepted", "problem": null},
                {"launch": "other", "plan": 6, "made": 0, "machines": 1, "launchConfigId": "lc-1",
                    "state": "refused", "problem": "no stock"},
            ],
        });
        insta::assert_snapshot!(pool_text(&reply), @r"
        Now (2026-11-21 06:19:13)
          nothing to do
          because nothing waits

        Plan 7 (2026-11-21 06:00:00)
          launch lc-1 x1
          launch tok: 1 of 1 machines of lc-1, accepted
        ");
    }

    #[test]
    fn a_worker_is_told_as_a_story() {
        let reply = json!({"story": [
            {"time": "2026-11-21T06:00:00.000Z", "text": "requested"},
            {"time": null, "text": "now it is running"},
        ]});
        insta::assert_snapshot!(worker_text(&reply), @r"
        2026-11-21 06:00:00  requested
                             now it is running
        ");
    }

    #[test]
    fn a_pool_without_plans_says_so() {
        let reply = json!({"time": "2026-11-21T06:19:13.123Z", "now": {"text": ""}, "plans": [], "launches": []});
        assert!(pool_text(&reply).contains("Nothing was decided yet."));
    }
}
