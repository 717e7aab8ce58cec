//! Explains objects and decisions.

mod launch_config;
mod shadow;
mod task;
mod watch;

use clap::{Args, Subcommand};
use domain::time::Timestamp;
use serde_json::Value;

use self::shadow::shadow_text;
use self::task::task_text;
use self::watch::Watch;
use super::worker_name::{self, LIST_COMMAND};
use super::{Session, name};
use crate::client::{Call, FLEETWRIGHT, WORKER_MANAGER};
use crate::failure::{Exit, Failure};
use crate::output::{self, Kind};

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// Explain the current and recent decisions about a pool
    Pool(Decisions),
    /// Explain why a task still waits, what would change it, and where its waiting time went
    Task {
        /// Task id
        #[arg(value_name = "TASK", value_parser = name::task)]
        task: String,
        #[command(flatten)]
        watch: Watch,
    },
    /// Explain why a worker was launched, what happened to it, and why it ended
    #[command(
        override_usage = "fleetwright explain worker [OPTIONS] <POOL/GROUP/WORKER>\n       \
                                fleetwright explain worker [OPTIONS] <POOL> [GROUP] <WORKER>"
    )]
    Worker {
        /// Worker: POOL/GROUP/WORKER, or pool and worker id, with the group if several have this id
        #[arg(value_name = "WORKER", required = true, num_args = 1..=3)]
        worker: Vec<String>,
        #[command(flatten)]
        watch: Watch,
    },
    /// Explain whether a launch config is used, and how long its machines take to start
    LaunchConfig {
        #[command(flatten)]
        name: super::launch_config::Name,
        #[command(flatten)]
        watch: Watch,
    },
    /// Explain what is done next about an image, and why other things wait
    Image {
        /// Image
        #[arg(value_name = "IMAGE", value_parser = name::image)]
        image: String,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Decisions {
    #[command(flatten)]
    name: name::Pool,
    /// Show what each launch config offered in this plan (default: the newest)
    #[arg(long, value_name = "NUMBER")]
    plan: Option<u32>,
    /// Show the decisions up to then: a duration before now such as 2h, or a time
    #[arg(long, value_name = "TIME", conflicts_with = "shadow")]
    at: Option<String>,
    /// Compare with the shadow strategy of the pool: what it would have done
    #[arg(long, conflicts_with = "plan")]
    shadow: bool,
    #[command(flatten)]
    watch: Watch,
}

pub(crate) async fn run(verb: Verb, session: &Session) -> Result<(), Failure> {
    let call = match &verb {
        Verb::Image { image } => return super::image::explain(image, session).await,
        Verb::LaunchConfig { name, .. } => launch_config::call(name),
        Verb::Pool(Decisions {
            name: name::Pool { pool },
            shadow: true,
            ..
        }) => Call::get(FLEETWRIGHT, &["explain", "shadow", pool])
            .to(format!("explain the shadow of pool {pool}"))
            .list_command("fleetwright pool list"),
        Verb::Pool(Decisions {
            name: name::Pool { pool },
            plan,
            at,
            shadow: false,
            ..
        }) => Call::get(FLEETWRIGHT, &["explain", "pool", pool])
            .query("plan", plan.map(|number| number.to_string()))
            .query("at", past_moment(at.as_deref(), session)?)
            .to(format!("explain pool {pool}"))
            .list_command("fleetwright pool list"),
        Verb::Task { task, .. } => Call::get(FLEETWRIGHT, &["explain", "task", task])
            .to(format!("explain task {task}"))
            .list_command(name::TASK_LIST),
        Verb::Worker { worker, .. } => {
            let name = match worker.as_slice() {
                [pool, id] => {
                    let pool = name::pool(pool).map_err(Failure::usage)?;
                    let id = name::worker(id).map_err(Failure::usage)?;
                    let group = group_of(&pool, &id, session).await?;
                    worker_name::Name { pool, group, id }
                }
                _ => worker_name::Name::of(worker)?,
            };
            name.explain().list_command(LIST_COMMAND)
        }
    };
    let text = |reply: &Value| match &verb {
        Verb::Pool(Decisions { shadow: true, .. }) => shadow_text(reply),
        Verb::Pool(Decisions { shadow: false, .. }) => pool_text(reply),
        Verb::Task { .. } => task_text(reply),
        Verb::LaunchConfig { .. } => launch_config::text(reply),
        Verb::Worker { .. } | Verb::Image { .. } => worker_text(reply),
    };
    let watch = match &verb {
        Verb::Pool(Decisions { watch, .. })
        | Verb::Task { watch, .. }
        | Verb::LaunchConfig { watch, .. }
        | Verb::Worker { watch, .. } => watch,
        Verb::Image { .. } => &Watch::ONCE,
    };
    watch.show(&call, session, text).await
}

/// The worker group of the only worker of this id.
fn past_moment(text: Option<&str>, session: &Session) -> Result<Option<Timestamp>, Failure> {
    let parse = |text| output::parse_past_moment(text, session.now).map_err(Failure::usage);
    text.map(parse).transpose()
}

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

/// The strategies of the pool, and what chose them.
fn strategies_text(reply: &Value) -> String {
    let mut text = String::new();
    for (key, title) in [("strategy", "strategy"), ("shadow", "shadow strategy")] {
        let chosen = &reply[key];
        if let Some(problem) = chosen["problem"].as_str() {
            let problem = output::printable(problem);
            text.push_str(&format!("  error: no {title}: {problem}\n"));
        } else if let Some(chosen) = chosen["text"].as_str() {
            text.push_str(&format!("  {title}: {}\n", output::printable(chosen)));
        }
    }
    text
}

pub(super) fn pool_text(reply: &Value) -> String {
    let mut text = format!("Now ({})\n", clock(&reply["time"]));
    text.push_str(&strategies_text(reply));
    for error in reply["problems"].as_array().into_iter().flatten() {
        let error = error.as_str().unwrap_or_default();
        text.push_str(&format!("  error: {}\n", output::printable(error)));
    }
    for budget in reply["budgets"].as_array().into_iter().flatten() {
        let budget = budget["text"].as_str().unwrap_or_default();
        text.push_str(&format!("  {}\n", output::printable(budget)));
    }
    text.push_str(&indented(&reply["now"]["text"]));
    text.push_str(&offers_table(&reply["now"]["offers"]));
    for worker in reply["silent"].as_array().into_iter().flatten() {
        text.push_str(&format!("  {}\n", silent_line(worker)));
    }
    let plans = reply["plans"].as_array().map_or(&[][..], Vec::as_slice);
    if plans.is_empty() {
        text.push_str("\nNo decisions yet.\n");
    }
    for plan in plans {
        let number = &plan["number"];
        let strategy = plan["strategy"].as_str();
        let by = strategy.map_or_else(String::new, |strategy| format!(", by {strategy}"));
        text.push_str(&format!(
            "\nPlan {number} ({}){by}\n",
            clock(&plan["created"])
        ));
        text.push_str(&indented(&plan["text"]));
        text.push_str(&offers_table(&plan["offers"]));
        for launch in launches_of(reply, number) {
            text.push_str(&format!("  {}\n", launch_line(launch)));
        }
    }
    text
}

/// The offers of the launch configs; empty if they are not known.
fn offers_table(offers: &Value) -> String {
    let Some(offers) = offers.as_array().filter(|offers| !offers.is_empty()) else {
        return String::new();
    };
    let rows = offers.iter().map(|offer| {
        let word = |key: &str| output::printable(offer[key].as_str().unwrap_or_default());
        let price = |key: &str| offer[key].as_f64().map_or_else(unknown, dollars);
        let ready = offer["readyMs"].as_f64();
        let place = match word("place") {
            place if place.is_empty() => String::new(),
            place => format!(" {place}"),
        };
        vec![
            format!("{}{place} ({})", word("providerId"), word("launchConfigId")),
            offer["capacityEach"].to_string(),
            price("price"),
            price("pricePerUsefulHour"),
            ready.map_or_else(unknown, |ms| format!("{:.0} s", ms / 1e3)),
            offer["offered"].to_string(),
            offer["taken"].to_string(),
            word("why"),
        ]
    });
    let table = output::grid(OFFERS, rows.collect(), None);
    let lines = table
        .lines()
        .map(|line| format!("    {}\n", line.trim_end()));
    format!("  offers:\n{}", lines.collect::<String>())
}

const OFFERS: &[(&str, Kind)] = &[
    ("OFFER", Kind::Text),
    ("UNITS", Kind::Number),
    ("$ PER H", Kind::Number),
    ("$ PER USEFUL H", Kind::Number),
    ("READY IN", Kind::Number),
    ("OFFERED", Kind::Number),
    ("TAKEN", Kind::Number),
    ("WHY", Kind::Text),
];

fn unknown() -> String {
    "-".to_owned()
}

/// To the millionth of a dollar, without trailing zeros.
fn dollars(price: f64) -> String {
    let text = format!("{price:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
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
    lines.chain(log_line(reply)).collect()
}

/// Where the cause may be, of a launched worker that ended before it registered.
fn log_line(reply: &Value) -> Option<String> {
    let never_registered = reply["state"] == "stopped"
        && reply["launch"].is_object()
        && reply["life"]["registered"].is_null();
    let name = ["workerPoolId", "workerGroup", "workerId"].map(|key| reply[key].as_str());
    let [Some(pool), Some(group), Some(id)] = name else {
        return None;
    };
    never_registered.then(|| {
        let padding = " ".repeat(MOMENT_LENGTH);
        format!(
            "{padding}  it never registered: `fleetwright worker log {pool}/{group}/{id}` has what it \
             wrote, if its provider keeps logs\n"
        )
    })
}

/// The length of `2026-11-21 06:19:13Z`.
const MOMENT_LENGTH: usize = 20;

/// A time to the second.
fn clock(moment: &Value) -> String {
    output::clock_of(moment)
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
    fn a_worker_that_never_registered_has_its_log_as_the_next_step() {
        let explained = |state: &str, registered: Value, launch: Value| {
            worker_text(&json!({
                "workerPoolId": "demo/x", "workerGroup": "here", "workerId": "w1",
                "state": state, "life": {"registered": registered}, "launch": launch,
                "story": [{"time": null, "text": "now it is here"}],
            }))
        };
        let text = explained("stopped", Value::Null, json!({}));
        let command = "it never registered: `fleetwright worker log demo/x/here/w1` has what";
        assert!(text.contains(command), "{text}");
        for text in [
            explained("running", Value::Null, json!({})),
            explained("stopped", json!("2026-11-21T06:19:13.123Z"), json!({})),
            explained("stopped", Value::Null, Value::Null),
        ] {
            assert!(text.ends_with("now it is here\n"), "{text}");
        }
    }

    #[test]
    fn a_pool_is_explained_from_now_to_the_past_with_launches() {
        let reply = json!({
            "time": "2026-11-21T06:19:13.123Z",
            "problems": ["provider racks failed to start: no network"],
            "strategy": {"name": "balanced", "chosenBy": "pool", "text": "balanced, chosen by the pool"},
            "shadow": {"problem": "shadowStrategy: weighted does not accept the settings"},
            "now": {"text": "nothing to do\nbecause nothing waits\n", "offers": [
                {"launchConfigId": "lc-1", "providerId": "aws", "place": "us-west-2a m5.large spot",
                    "capacityEach": 1, "price": 0.031, "pricePerUsefulHour": 0.0333333333, "readyMs": 74_400,
                    "offered": 10, "taken": 0, "why": "not needed"},
                {"launchConfigId": "lc-2", "providerId": "racks", "place": "", "price": null,
                    "capacityEach": 12,
                    "pricePerUsefulHour": null, "readyMs": null, "offered": 0, "taken": 0,
                    "why": "racks refuses to bid (quota): enough"},
            ]},
            "plans": [{"number": 7, "strategy": "balanced", "created": "2026-11-21T06:00:00.000Z", "text": "launch lc-1 x1"}],
            "launches": [
                {"launch": "tok", "plan": 7, "made": 1, "machines": 1, "launchConfigId": "lc-1",
                    "state": "accepted", "problem": null},
                {"launch": "other", "plan": 6, "made": 0, "machines": 1, "launchConfigId": "lc-1",
                    "state": "refused", "problem": "no stock"},
            ],
        });
        insta::assert_snapshot!(pool_text(&reply), @r"
        Now (2026-11-21 06:19:13Z)
          strategy: balanced, chosen by the pool
          error: no shadow strategy: shadowStrategy: weighted does not accept the settings
          error: provider racks failed to start: no network
          nothing to do
          because nothing waits
          offers:
            OFFER                                UNITS  $ PER H  $ PER USEFUL H  READY IN  OFFERED  TAKEN  WHY
            aws us-west-2a m5.large spot (lc-1)      1    0.031        0.033333      74 s       10      0  not needed
            racks (lc-2)                            12        -               -         -        0      0  racks refuses to bid (quota): enough

        Plan 7 (2026-11-21 06:00:00Z), by balanced
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
        2026-11-21 06:00:00Z  requested
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
