//! Series over time: waiting tasks, capacity, launches, cost.

use clap::{Args, ValueEnum};
use domain::budgets::dollars;
use domain::time::{DAY_MS, HOUR_MS, Timestamp};
use domain::waits::length;
use serde_json::Value;

use super::{Session, name};
use crate::client::{Call, FLEETWRIGHT};
use crate::failure::Failure;
use crate::output::{self, Kind};

/// The time without `--since`.
const USUAL_MS: i64 = DAY_MS;
/// For people, a longer time is shown by the hour, and a still longer one by the day.
const BY_MINUTE_MS: i64 = 2 * HOUR_MS;
const BY_HOUR_MS: i64 = 3 * DAY_MS;

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Only this pool
    #[arg(long, value_name = "POOL", value_parser = name::pool)]
    pool: Option<String>,
    /// Only this launch config of the pool
    #[arg(long, value_name = "LAUNCH_CONFIG", requires = "pool")]
    launch_config: Option<String>,
    /// Start: a duration before now such as 24h, or a time (default: 24h)
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// One row for each (default: what gives a short table)
    #[arg(long, value_name = "STEP")]
    step: Option<Step>,
    /// Print CSV: money in millionths, waiting time in milliseconds
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Step {
    Minute,
    Hour,
    Day,
}

impl Step {
    fn as_str(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }

    fn for_people(since: Timestamp, now: Timestamp) -> Self {
        let elapsed = now.millis_since(since);
        if elapsed <= BY_MINUTE_MS {
            Self::Minute
        } else if elapsed <= BY_HOUR_MS {
            Self::Hour
        } else {
            Self::Day
        }
    }
}

/// The columns of numbers, each with its key.
const COLUMNS: [(&str, &str); 12] = [
    ("WAITING", "waiting"),
    ("REQUESTED", "requested"),
    ("BOOTING", "booting"),
    ("IDLE", "idle"),
    ("BUSY", "busy"),
    ("LEAVING", "leaving"),
    ("MAXIMUM", "maximum"),
    ("LAUNCHED", "launched"),
    ("REFUSED", "refused"),
    ("FAILED", "failed"),
    ("COST", "cost"),
    ("WAITED", "waited"),
];

pub(crate) async fn run(arguments: Arguments, session: &Session) -> Result<(), Failure> {
    let now = session.now;
    let since = match arguments.since.as_deref() {
        Some(text) => output::parse_past_moment(text, now)
            .map_err(|error| Failure::usage(format!("--since: {error}")))?,
        None => now.plus_millis(-USUAL_MS),
    };
    let is_for_people = !session.json && !arguments.csv;
    let usual = is_for_people.then(|| Step::for_people(since, now));
    let path = match (&arguments.pool, &arguments.launch_config) {
        (Some(pool), Some(config)) => vec!["series", "launch-config", pool, config],
        (Some(pool), None) => vec!["series", "pool", pool],
        (None, _) => vec!["series"],
    };
    let call = Call::get(FLEETWRIGHT, &path)
        .query("from", Some(since))
        .query("step", arguments.step.or(usual).map(Step::as_str))
        .list_command("fleetwright pool list")
        .to("show series");
    let reply = session.client.call(&call).await?;
    if session.json {
        output::json(&reply);
    } else if arguments.csv {
        output::out(csv(&reply).trim_end());
    } else {
        output::out(text(&reply).trim_end());
    }
    Ok(())
}

fn points(reply: &Value) -> &[Value] {
    reply["points"].as_array().map_or(&[][..], Vec::as_slice)
}

fn is_recorded(point: &Value) -> bool {
    point["recorded"] == true
}

fn text(reply: &Value) -> String {
    let mut rows = Vec::new();
    for group in points(reply).chunk_by(|one, other| is_recorded(one) == is_recorded(other)) {
        match group.first() {
            Some(first) if !is_recorded(first) => rows.push(gap(first, group.len())),
            _ => rows.extend(group.iter().map(row)),
        }
    }
    if rows.is_empty() {
        return "Nothing was recorded yet.\n".to_owned();
    }
    let mut headings = vec![("TIME", Kind::Text)];
    headings.extend(COLUMNS.map(|(title, _)| (title, Kind::Number)));
    output::grid(&headings, rows, None)
}

/// The minute in which a point begins.
fn time_of(point: &Value) -> String {
    let time = point["time"].as_str().unwrap_or_default();
    let minute = time.get(..16).unwrap_or(time);
    output::printable(&format!("{}Z", minute.replace('T', " ")))
}

/// Points without a record, in one row.
fn gap(first: &Value, count: usize) -> Vec<String> {
    let mut row = vec![time_of(first), format!("not recorded ×{count}")];
    row.resize(COLUMNS.len() + 1, String::new());
    row
}

fn row(point: &Value) -> Vec<String> {
    let cell = |(_, key): (&str, &str)| match (&point[key], key) {
        (Value::Null, _) => "-".to_owned(),
        (value, "cost") => format!("${:.2}", dollars(value.as_i64().unwrap_or(0))),
        (value, "waited") => length(value.as_i64().unwrap_or(0)),
        (value, _) => value.to_string(),
    };
    let mut row = vec![time_of(point)];
    row.extend(COLUMNS.map(cell));
    row
}

fn csv(reply: &Value) -> String {
    let keys = COLUMNS.map(|(_, key)| key);
    let mut text = format!("time,recorded,{}\n", keys.join(","));
    for point in points(reply) {
        let time = point["time"].as_str().unwrap_or_default();
        let values = keys.map(|key| {
            let value = &point[key];
            if value.is_null() {
                return String::new();
            }
            value.to_string()
        });
        text.push_str(&format!(
            "{time},{},{}\n",
            is_recorded(point),
            values.join(",")
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reply() -> Value {
        let missing = |time: &str| json!({"time": time, "recorded": false});
        json!({"step": "hour", "points": [
            missing("2026-11-21T00:00:00.000Z"),
            missing("2026-11-21T01:00:00.000Z"),
            {
                "time": "2026-11-21T02:00:00.000Z", "recorded": true, "minutes": 60,
                "waiting": 1.5, "requested": 0, "booting": 2, "idle": 0, "busy": 7, "leaving": 0,
                "maximum": 12, "launched": 3, "refused": 1, "failed": 0, "cost": 1_250_000,
                "waited": 61_000,
            },
        ]})
    }

    #[test]
    fn a_gap_is_one_row_and_never_zero() {
        let text = text(&reply());
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|row| row.split_whitespace().collect())
            .collect();
        assert_eq!(rows.len(), 3, "{text}");
        assert_eq!(rows[1], ["2026-11-21", "00:00Z", "not", "recorded", "×2"]);
        assert_eq!(rows[2][..4], ["2026-11-21", "02:00Z", "1.5", "0"]);
        assert_eq!(rows[2][12..], ["$1.25", "1", "min", "01", "s"]);
        let nothing = json!({"points": []});
        assert_eq!(super::text(&nothing), "Nothing was recorded yet.\n");
    }

    #[test]
    fn programs_get_each_point() {
        let csv = csv(&reply());
        let lines: Vec<&str> = csv.lines().collect();
        assert!(lines[0].starts_with("time,recorded,waiting,requested,"));
        assert_eq!(lines[1], "2026-11-21T00:00:00.000Z,false,,,,,,,,,,,,");
        let recorded = "2026-11-21T02:00:00.000Z,true,1.5,0,2,0,7,0,12,3,1,0,1250000,61000";
        assert_eq!(lines[3], recorded);
    }

    #[test]
    fn the_table_stays_short() {
        let now = Timestamp::from_millis(100 * DAY_MS);
        let step = |ms: i64| Step::for_people(now.plus_millis(-ms), now);
        assert_eq!(step(HOUR_MS), Step::Minute);
        assert_eq!(step(DAY_MS), Step::Hour);
        assert_eq!(step(30 * DAY_MS), Step::Day);
    }
}
