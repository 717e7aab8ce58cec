//! The accounts of waiting time: how long tasks waited, and for which causes.

use clap::{Args, ValueEnum};
use domain::time::DAY_MS;
use domain::waits::{length, percent};
use serde_json::Value;

use super::{Session, name};
use crate::client::{Call, FLEETWRIGHT};
use crate::failure::Failure;
use crate::output::{self, Kind};

/// The time that is summed without `--since`.
const USUAL_MS: i64 = 7 * DAY_MS;
/// A row names this many of its causes.
const NAMED_CAUSES: usize = 3;

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Start: a duration before now such as 24h, or a time (default: 7d)
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// One row for each
    #[arg(long, value_name = "WHAT", default_value = "cause")]
    by: Grouping,
    /// Only this pool
    #[arg(long, value_name = "POOL", value_parser = name::pool)]
    pool: Option<String>,
    /// Only the longest waits; the others are summed in one row
    #[arg(long, value_name = "N")]
    top: Option<u32>,
    /// Comma-separated values: a row for each key and cause, in milliseconds
    #[arg(long)]
    csv: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Grouping {
    Cause,
    Pool,
    Queue,
    Owner,
    Day,
    Hour,
}

impl Grouping {
    fn as_str(self) -> &'static str {
        match self {
            Self::Cause => "cause",
            Self::Pool => "pool",
            Self::Queue => "queue",
            Self::Owner => "owner",
            Self::Day => "day",
            Self::Hour => "hour",
        }
    }
}

const BY_CAUSE: &[(&str, Kind)] = &[
    ("CAUSE", Kind::Text),
    ("WAITED", Kind::Number),
    ("SHARE", Kind::Number),
    ("RUNS", Kind::Number),
];

const BY_KEY: &[(&str, Kind)] = &[
    ("KEY", Kind::Text),
    ("WAITED", Kind::Number),
    ("SHARE", Kind::Number),
    ("MOST FOR", Kind::Text),
];

pub(crate) async fn run(arguments: Arguments, session: &Session) -> Result<(), Failure> {
    let now = session.now;
    let since = match arguments.since.as_deref() {
        Some(text) => output::parse_past_moment(text, now).map_err(Failure::usage)?,
        None => now.plus_millis(-USUAL_MS),
    };
    let call = Call::get(FLEETWRIGHT, &["waits"])
        .query("by", Some(arguments.by.as_str()))
        .query("since", Some(since))
        .query("workerPoolId", arguments.pool)
        .query("top", arguments.top)
        .list_command("fleetwright pool list")
        .to("show how long tasks waited");
    let reply = session.client.call(&call).await?;
    if session.json {
        output::json(&reply);
    } else if arguments.csv {
        output::out(csv(&reply).trim_end());
    } else {
        output::out(text(&reply, arguments.by).trim_end());
    }
    Ok(())
}

fn text(reply: &Value, by: Grouping) -> String {
    let all = reply["totalMs"].as_i64().unwrap_or(0);
    let from = output::clock_of(&reply["since"]);
    let until = output::clock_of(&reply["until"]);
    let rows = reply["rows"].as_array().into_iter().flatten();
    let mut rows: Vec<Vec<String>> = match by {
        Grouping::Cause => rows.map(|row| cause_row(row, all)).collect(),
        Grouping::Pool | Grouping::Queue | Grouping::Owner | Grouping::Day | Grouping::Hour => {
            rows.map(|row| key_row(row, all)).collect()
        }
    };
    if rows.is_empty() {
        return format!("No task waited from {from} to {until}.\n");
    }
    let others = reply["others"]["ms"].as_i64().unwrap_or(0);
    if let Some(count) = reply["others"]["rows"].as_u64().filter(|count| *count > 0) {
        rows.push(sum_row(&format!("{count} others"), others, all));
    }
    rows.push(sum_row("all", all, all));
    let headings = match by {
        Grouping::Cause => BY_CAUSE,
        Grouping::Pool | Grouping::Queue | Grouping::Owner | Grouping::Day | Grouping::Hour => {
            BY_KEY
        }
    };
    let mut headings = headings.to_vec();
    let title = by.as_str().to_uppercase();
    headings[0].0 = &title;
    let table = output::grid(&headings, rows, None);
    format!("Waits from {from} to {until}\n{table}")
}

fn cause_row(row: &Value, all: i64) -> Vec<String> {
    let millis = row["ms"].as_i64().unwrap_or(0);
    let cause = &row["causes"][0];
    let label = output::printable(cause["label"].as_str().unwrap_or_default());
    let runs = cause["runs"].to_string();
    vec![label, length(millis), percent(millis, all), runs]
}

fn key_row(row: &Value, all: i64) -> Vec<String> {
    let millis = row["ms"].as_i64().unwrap_or(0);
    let causes = row["causes"].as_array().into_iter().flatten();
    let causes = causes.take(NAMED_CAUSES).map(|cause| {
        let label = output::printable(cause["label"].as_str().unwrap_or_default());
        let share = percent(cause["ms"].as_i64().unwrap_or(0), millis);
        format!("{label} {share}")
    });
    let causes: Vec<String> = causes.collect();
    let key = match row["key"].as_str() {
        Some("") | None => "-".to_owned(),
        Some(key) => output::printable(key),
    };
    vec![key, length(millis), percent(millis, all), causes.join(", ")]
}

fn sum_row(name: &str, millis: i64, all: i64) -> Vec<String> {
    vec![
        name.to_owned(),
        length(millis),
        percent(millis, all),
        String::new(),
    ]
}

fn csv(reply: &Value) -> String {
    let by = reply["by"].as_str().unwrap_or_default();
    let mut text = format!("{by},cause,runs,milliseconds\n");
    for row in reply["rows"].as_array().into_iter().flatten() {
        let key = quoted(row["key"].as_str().unwrap_or_default());
        for cause in row["causes"].as_array().into_iter().flatten() {
            let name = cause["cause"].as_str().unwrap_or_default();
            let (runs, millis) = (&cause["runs"], &cause["ms"]);
            text.push_str(&format!("{key},{name},{runs},{millis}\n"));
        }
    }
    text
}

fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reply() -> Value {
        let quota = json!({"cause": "quota", "label": "quota", "runs": 3, "ms": 677_000});
        let booting = json!({"cause": "booting", "label": "booting", "runs": 4, "ms": 151_000});
        json!({
            "by": "pool", "since": "2026-11-21T00:00:00.000Z", "until": "2026-11-22T00:00:00.000Z",
            "totalMs": 830_000,
            "rows": [{"key": "gpu/train", "ms": 828_000, "causes": [quota, booting]}],
            "others": {"rows": 2, "ms": 2_000},
        })
    }

    #[test]
    fn rows_sum_to_the_whole() {
        insta::assert_snapshot!(text(&reply(), Grouping::Pool), @r"
        Waits from 2026-11-21 00:00:00Z to 2026-11-22 00:00:00Z
        POOL            WAITED  SHARE  MOST FOR
        gpu/train  13 min 48 s  100 %  quota 82 %, booting 18 %
        2 others           2 s    0 %
        all        13 min 50 s  100 %
        ");
        insta::assert_snapshot!(text(&reply(), Grouping::Cause), @r"
        Waits from 2026-11-21 00:00:00Z to 2026-11-22 00:00:00Z
        CAUSE          WAITED  SHARE  RUNS
        quota     13 min 48 s  100 %     3
        2 others          2 s    0 %
        all       13 min 50 s  100 %
        ");
    }

    #[test]
    fn programs_get_milliseconds() {
        insta::assert_snapshot!(csv(&reply()), @r"
        pool,cause,runs,milliseconds
        gpu/train,quota,3,677000
        gpu/train,booting,4,151000
        ");
        assert_eq!(quoted("a \"b\", c"), "\"a \"\"b\"\", c\"");
    }
}
