//! Explains decisions about pools, and the history of workers.

use clap::Subcommand;
use domain::time::Timestamp;
use serde_json::Value;

use super::{Session, name};
use crate::client::{Call, FLEETWRIGHT, WORKER_MANAGER};
use crate::failure::{Exit, Failure};
use crate::output;

const LIST_COMMAND: &str = "fleetwright worker list POOL";

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// Explain the current and recent decisions about a pool
    Pool(name::Pool),
    /// Explain why a worker was launched, what happened to it, and why it ended
    #[command(override_usage = "fleetwright explain worker [OPTIONS] <POOL> [GROUP] <WORKER>")]
    Worker {
        /// Pool id, such as demo/linux
        #[arg(value_name = "POOL", value_parser = name::pool)]
        pool: String,
        /// Worker id, after its worker group if several groups have this id
        #[arg(value_name = "WORKER", value_parser = name::worker, required = true, num_args = 1..=2)]
        worker: Vec<String>,
    },
}

pub(crate) async fn run(verb: Verb, session: &Session) -> Result<(), Failure> {
    let call = match &verb {
        Verb::Pool(name::Pool { pool }) => Call::get(FLEETWRIGHT, &["explain", "pool", pool])
            .to(format!("explain pool {pool}"))
            .list_command("fleetwright pool list"),
        Verb::Worker { pool, worker } => {
            let (group, id) = match worker.as_slice() {
                [group, id] => (group.clone(), id),
                [id] => (group_of(pool, id, session).await?, id),
                _ => return Err(Failure::usage("expected one worker")),
            };
            Call::get(FLEETWRIGHT, &["explain", "worker", pool, &group, id])
                .to(format!("explain worker {group}/{id} of pool {pool}"))
                .list_command(LIST_COMMAND)
        }
    };
    let reply = session.client.call(&call).await?;
    if session.json {
        output::json(&reply);
        return Ok(());
    }
    let text = match &verb {
        Verb::Pool(_) => pool_text(&reply),
        Verb::Worker { .. } => worker_text(&reply),
    };
    output::out(text.trim_end());
    Ok(())
}

/// The worker group of the only worker of this id.
async fn group_of(pool: &str, id: &str, session: &Session) -> Result<String, Failure> {
    let call = Call::get(WORKER_MANAGER, &["workers", pool])
        .to(format!("look for worker {id} of pool {pool}"))
        .list_command("fleetwright pool list");
    let reply = session.client.pages(&call, "workers", None).await?;
    match groups_of(&reply, id).as_slice() {
        [group] => Ok((*group).to_owned()),
        [] => Err(
            Failure::new(Exit::NotFound, format!("pool {pool} has no worker {id}")).with_hint(
                format!("`fleetwright worker list {pool}` lists what exists"),
            ),
        ),
        groups => Err(Failure::usage(format!(
            "pool {pool} has workers with the id {id} in the groups {}",
            groups.join(", ")
        ))
        .with_hint(format!(
            "select one with `fleetwright explain worker {pool} GROUP {id}`"
        ))),
    }
}

fn groups_of<'a>(reply: &'a Value, id: &str) -> Vec<&'a str> {
    let workers = reply["workers"].as_array().into_iter().flatten();
    let mut groups: Vec<&str> = workers
        .filter(|worker| worker["workerId"] == id)
        .filter_map(|worker| worker["workerGroup"].as_str())
        .collect();
    groups.sort_unstable();
    groups
}

fn pool_text(reply: &Value) -> String {
    let mut text = format!("Now ({})\n", clock(&reply["time"]));
    for error in reply["problems"].as_array().into_iter().flatten() {
        let error = error.as_str().unwrap_or_default();
        text.push_str(&format!("  error: {}\n", output::printable(error)));
    }
    text.push_str(&indented(&reply["now"]["text"]));
    for worker in reply["silent"].as_array().into_iter().flatten() {
        text.push_str(&format!("  {}\n", silent_line(worker)));
    }
    let plans = reply["plans"].as_array().map_or(&[][..], Vec::as_slice);
    if plans.is_empty() {
        text.push_str("\nNo decisions yet.\n");
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

/// A running worker that does not request work.
fn silent_line(worker: &Value) -> String {
    let word = |key: &str| worker[key].as_str().unwrap_or_default();
    let asked = match worker["lastAsked"].as_str() {
        Some(_) => format!("last asked for work {}", clock(&worker["lastAsked"])),
        None => "never asked for work".to_owned(),
    };
    let (group, id, provider) = (word("workerGroup"), word("workerId"), word("providerId"));
    format!("silent: {group}/{id} of {provider}, {asked}")
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
    if let Some(error) = launch["problem"].as_str() {
        line.push_str(&format!(": {error}"));
    }
    line
}

fn worker_text(reply: &Value) -> String {
    let lines = reply["story"].as_array().into_iter().flatten();
    let lines = lines.map(|line| {
        let at = if line["time"].is_string() {
            clock(&line["time"])
        } else {
            " ".repeat(MOMENT_LENGTH)
        };
        format!("{at}  {}\n", line["text"].as_str().unwrap_or_default())
    });
    lines.collect()
}

/// The length of `2026-11-21 06:19:13`.
const MOMENT_LENGTH: usize = 19;

/// A time to the second.
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
    fn a_pool_is_explained_from_now_to_the_past_with_launches() {
        let reply = json!({
            "time": "2026-11-21T06:19:13.123Z",
            "problems": ["provider racks failed to start: no network"],
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
          error: provider racks failed to start: no network
          nothing to do
          because nothing waits

        Plan 7 (2026-11-21 06:00:00)
          launch lc-1 x1
          launch tok: 1 of 1 machines of lc-1, accepted
        ");
    }

    #[test]
    fn the_history_of_a_worker_is_a_list_of_lines() {
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
    fn a_worker_is_found_in_every_group_that_has_one_of_its_id() {
        let reply = json!({"workers": [{"workerGroup": "h", "workerId": "w"},
            {"workerGroup": "g", "workerId": "v"}, {"workerGroup": "g", "workerId": "w"}]});
        assert_eq!(groups_of(&reply, "w"), ["g", "h"]);
        assert_eq!(groups_of(&reply, "x"), [""; 0]);
    }

    #[test]
    fn a_pool_without_plans_says_so() {
        let reply = json!({"time": "2026-11-21T06:19:13.123Z", "now": {"text": ""}, "plans": [], "launches": []});
        assert!(pool_text(&reply).contains("No decisions yet."));
    }
}
