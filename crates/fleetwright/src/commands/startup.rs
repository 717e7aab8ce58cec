//! How long machines take to start, by place or by launch config.

use clap::{Args, ValueEnum};
use domain::waits::length;
use serde_json::Value;

use super::{Session, name};
use crate::client::{Call, FLEETWRIGHT};
use crate::failure::Failure;
use crate::output::{self, Kind, counted};

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Start: a duration before now such as 90m, or a time (default: 24h)
    #[arg(
        long,
        value_name = "TIME",
        default_value = "24h",
        hide_default_value = true
    )]
    since: String,
    /// One row for each
    #[arg(long, value_name = "WHAT", default_value = "place")]
    by: Grouping,
    /// Only this pool
    #[arg(long, value_name = "POOL", value_parser = name::pool)]
    pool: Option<String>,
}

/// The rows of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Grouping {
    /// A region of a provider
    Place,
    LaunchConfig,
}

/// The steps, in their order, with the titles of their columns.
const PHASES: [(&str, &str); 4] = [
    ("requested", "ASKED"),
    ("accepted", "MADE"),
    ("registered", "REGISTERED"),
    ("first-claim", "FIRST CLAIM"),
];

pub(crate) async fn run(arguments: Arguments, session: &Session) -> Result<(), Failure> {
    let since = output::parse_past_moment(&arguments.since, session.now)
        .map_err(|error| Failure::usage(format!("--since: {error}")))?;
    let call = Call::get(FLEETWRIGHT, &["startup"])
        .query("since", Some(since))
        .query("workerPoolId", arguments.pool)
        .to("show how long machines take to start");
    let reply = session.client.call(&call).await?;
    if session.json {
        output::json(&reply);
    } else {
        output::out(report(&reply, arguments.by).trim_end());
    }
    Ok(())
}

fn report(reply: &Value, by: Grouping) -> String {
    let since = reply["since"].as_str().unwrap_or_default();
    let n_machines = reply["machines"].as_u64().unwrap_or(0);
    if n_machines == 0 {
        return format!("No machine was made since {since}.\n");
    }
    let (list, names): (_, &[(&str, &str)]) = match by {
        Grouping::Place => (
            "places",
            &[("PROVIDER", "providerId"), ("REGION", "region")],
        ),
        Grouping::LaunchConfig => (
            "launchConfigs",
            &[
                ("POOL", "workerPoolId"),
                ("LAUNCH CONFIG", "launchConfigId"),
                ("PROVIDER", "providerId"),
            ],
        ),
    };
    let mut headings: Vec<(&str, Kind)> = names
        .iter()
        .map(|(title, _)| (*title, Kind::Text))
        .collect();
    headings.push(("MACHINES", Kind::Number));
    headings.extend(PHASES.map(|(_, title)| (title, Kind::Number)));
    let lines = reply[list].as_array().into_iter().flatten();
    let mut rows: Vec<Vec<String>> = lines
        .map(|line| {
            let named = names.iter().map(|(_, field)| line[*field].as_str());
            let named = named.map(|name| output::printable(name.unwrap_or("-")));
            row(named.collect(), line)
        })
        .collect();
    let mut all = vec!["all".to_owned()];
    all.resize(names.len(), String::new());
    rows.push(row(all, reply));
    let mut text = format!(
        "{} since {since}; each step: 50 / 90 / 100 of 100 took no longer\n{}",
        counted(n_machines, "machine"),
        output::grid(&headings, rows, None)
    );
    let others = reply["otherLaunchConfigs"].as_u64().unwrap_or(0);
    if by == Grouping::LaunchConfig && others > 0 {
        let others = counted(others, "launch config");
        text.push_str(&format!("\n{others} with fewer machines left out\n"));
    }
    text
}

/// The times of a place, a launch config, or all.
fn row(mut cells: Vec<String>, line: &Value) -> Vec<String> {
    cells.push(line["machines"].to_string());
    for (phase, _) in PHASES {
        let phases = line["phases"].as_array().into_iter().flatten();
        let times = phases.into_iter().find(|it| it["phase"] == phase);
        let text = times.map(|times| {
            let rank = |name: &str| length(times[name].as_i64().unwrap_or(0));
            format!("{} / {} / {}", rank("p50Ms"), rank("p90Ms"), rank("maxMs"))
        });
        cells.push(text.unwrap_or_else(|| "-".to_owned()));
    }
    cells
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reply() -> Value {
        let phase = |phase: &str, times: [u64; 3]| {
            json!({"from": "x", "phase": phase, "machines": 2, "p50Ms": times[0],
                "p90Ms": times[1], "maxMs": times[2]})
        };
        let phases = json!([
            phase("requested", [10, 20, 30]),
            phase("registered", [61_000, 90_000, 125_000])
        ]);
        json!({
            "since": "2026-11-21T00:00:00.000Z", "machines": 2, "phases": phases,
            "places": [{"providerId": "aws", "region": "us-east-1", "machines": 2,
                "phases": phases}],
            "launchConfigs": [{"workerPoolId": "demo/linux", "launchConfigId": "lc-1",
                "providerId": "aws", "machines": 2, "phases": []}],
            "otherLaunchConfigs": 3,
        })
    }

    #[test]
    fn each_place_and_launch_config_has_a_row() {
        insta::assert_snapshot!(report(&reply(), Grouping::Place), @r"
        2 machines since 2026-11-21T00:00:00.000Z; each step: 50 / 90 / 100 of 100 took no longer
        PROVIDER  REGION     MACHINES                  ASKED  MADE                            REGISTERED  FIRST CLAIM
        aws       us-east-1         2  10 ms / 20 ms / 30 ms     -  1 min 01 s / 1 min 30 s / 2 min 05 s            -
        all                         2  10 ms / 20 ms / 30 ms     -  1 min 01 s / 1 min 30 s / 2 min 05 s            -
        ");
        insta::assert_snapshot!(report(&reply(), Grouping::LaunchConfig), @r"
        2 machines since 2026-11-21T00:00:00.000Z; each step: 50 / 90 / 100 of 100 took no longer
        POOL        LAUNCH CONFIG  PROVIDER  MACHINES                  ASKED  MADE                            REGISTERED  FIRST CLAIM
        demo/linux  lc-1           aws              2                      -     -                                     -            -
        all                                         2  10 ms / 20 ms / 30 ms     -  1 min 01 s / 1 min 30 s / 2 min 05 s            -

        3 launch configs with fewer machines left out
        ");
    }

    #[test]
    fn a_time_without_machines_says_so() {
        let none = json!({"since": "2026-11-21T00:00:00.000Z", "machines": 0});
        let text = report(&none, Grouping::Place);
        assert_eq!(
            text,
            "No machine was made since 2026-11-21T00:00:00.000Z.\n"
        );
        // A reply of another shape.
        assert!(report(&json!(1), Grouping::Place).starts_with("No machine"));
    }
}
