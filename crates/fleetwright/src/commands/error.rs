//! Errors that providers and workers reported.

use clap::{Args, Subcommand};
use serde_json::Value;

use super::{Limit, Session, name};
use crate::client::{Call, FLEETWRIGHT, WORKER_MANAGER};
use crate::failure::Failure;
use crate::output::{self, Column, Kind};

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    List(Errors),
    /// List the causes of errors, over all pools
    ///
    /// Errors with the same kind, title and code are one cause, if their descriptions differ in
    /// nothing but numbers, ids and names of machines.
    Causes(Causes),
    Stats {
        /// Only errors of this pool
        #[arg(value_name = "POOL", value_parser = name::pool)]
        pool: Option<String>,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Errors {
    /// Pool id, such as demo/linux
    #[arg(value_name = "POOL", value_parser = name::pool)]
    pool: String,
    /// Only errors of this launch config
    #[arg(long, value_name = "ID")]
    launch_config: Option<String>,
    /// Only the error of this id
    #[arg(long, value_name = "ID")]
    error: Option<String>,
    #[command(flatten)]
    limit: Limit,
}

#[derive(Args, Debug)]
pub(crate) struct Causes {
    /// Only errors of this pool
    #[arg(value_name = "POOL", value_parser = name::pool)]
    pool: Option<String>,
    /// Start: a duration before now such as 90m, or a time (default: 24h)
    #[arg(
        long,
        value_name = "TIME",
        default_value = "24h",
        hide_default_value = true
    )]
    since: String,
    /// The causes with the most errors first, instead of the newest
    #[arg(long)]
    most: bool,
    #[command(flatten)]
    limit: Limit,
}

const CAUSES: &str = "causes";
/// Fields of a row that the API does not have.
const HOURS: &str = "hours";
const WHERE: &str = "where";

const LIST_CAUSES: &[Column] = &[
    Column::number("ERRORS", "errors"),
    Column::age("LAST", "last"),
    Column::age("FIRST", "first"),
    Column::text("LAST 24 H", HOURS),
    Column::text("KIND", "kind"),
    Column::text("CODE", "code"),
    Column::prose("TITLE", "title"),
    Column::text("POOLS", WHERE),
    Column::prose("EXAMPLE", "example/description"),
];

const LIST: &[Column] = &[
    Column::age("REPORTED", "reported"),
    Column::text("KIND", "kind"),
    Column::prose("TITLE", "title"),
    Column::text("LAUNCH CONFIG", "launchConfigId"),
    Column::text("ERROR", "errorId"),
    Column::prose("DESCRIPTION", "description"),
];

/// The breakdowns of the totals: title of the table, field.
const BREAKDOWNS: &[(&str, &str)] = &[
    ("DAY", "daily"),
    ("TITLE", "title"),
    ("CODE", "code"),
    ("POOL", "workerPool"),
    ("LAUNCH CONFIG", "launchConfig"),
];

pub(crate) async fn run(verb: Verb, session: &Session) -> Result<(), Failure> {
    match verb {
        Verb::List(errors) => list(errors, session).await,
        Verb::Causes(causes) => list_causes(causes, session).await,
        Verb::Stats { pool } => stats(pool, session).await,
    }
}

pub(super) async fn list(errors: Errors, session: &Session) -> Result<(), Failure> {
    let call = Call::get(WORKER_MANAGER, &["worker-pool-errors", &errors.pool])
        .query("launchConfigId", errors.launch_config)
        .query("errorId", errors.error)
        .to(format!("list the errors of pool {}", errors.pool));
    session
        .list(&call, "workerPoolErrors", LIST, &errors.limit)
        .await
}

async fn list_causes(causes: Causes, session: &Session) -> Result<(), Failure> {
    let since = output::parse_past_moment(&causes.since, session.now)
        .map_err(|error| Failure::usage(format!("--since: {error}")))?;
    let call = Call::get(FLEETWRIGHT, &["error-causes"])
        .query("workerPoolId", causes.pool)
        .query("since", Some(since))
        .query("order", causes.most.then_some("most"))
        .to("list the causes of errors")
        .list_command("fleetwright pool list");
    let document = session
        .client
        .pages(&call, CAUSES, causes.limit.limit)
        .await?;
    session.described_rows(document, CAUSES, LIST_CAUSES, |cause| {
        cause[HOURS] = sparkline(&cause["trend"]).into();
        cause[WHERE] = pools_text(cause).into();
    });
    Ok(())
}

/// The numbers of the hours as bars, relative to the highest.
fn sparkline(trend: &Value) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let hours = trend.as_array().into_iter().flatten();
    let hours: Vec<u64> = hours.map(|hour| hour.as_u64().unwrap_or(0)).collect();
    let highest = hours.iter().copied().max().unwrap_or(0).max(1);
    let bars = hours.iter().map(|hour| match hour {
        0 => '·',
        hour => {
            let last = BARS.len() as u64 - 1;
            let height = u128::from(*hour) * u128::from(last) / u128::from(highest);
            BARS.get(usize::try_from(height).unwrap_or(0))
                .copied()
                .unwrap_or('█')
        }
    });
    bars.collect()
}

/// The pool with the most errors, and the number of the others.
fn pools_text(cause: &Value) -> String {
    let first = cause["workerPools"][0]["workerPoolId"].as_str();
    let others = cause["nWorkerPools"]
        .as_u64()
        .unwrap_or(0)
        .saturating_sub(1);
    match (first, others) {
        (None, _) => "-".to_owned(),
        (Some(first), 0) => first.to_owned(),
        (Some(first), others) => format!("{first} and {others} more"),
    }
}

async fn stats(pool: Option<String>, session: &Session) -> Result<(), Failure> {
    let call = Call::get(WORKER_MANAGER, &["worker-pool-errors", "stats"])
        .query("workerPoolId", pool)
        .to("count errors")
        .list_command("fleetwright pool list");
    let reply = session.client.call(&call).await?;
    if session.json {
        output::json(&reply);
        return Ok(());
    }
    let totals = &reply["totals"];
    let mut text = format!("{} errors in the last seven days\n", totals["total"]);
    for (title, field) in BREAKDOWNS {
        let rows = counts(&totals[field]);
        if !rows.is_empty() {
            let table = output::grid(
                &[(*title, Kind::Text), ("ERRORS", Kind::Number)],
                rows,
                output::screen_width(),
            );
            text.push_str(&format!("\n{table}"));
        }
    }
    output::out(&text);
    Ok(())
}

fn counts(by_key: &Value) -> Vec<Vec<String>> {
    let entries = by_key.as_object().into_iter().flatten();
    entries
        .filter(|(_, count)| count.as_u64() != Some(0))
        .map(|(key, count)| vec![key.clone(), count.to_string()])
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_hours_of_a_cause_are_bars_relative_to_the_highest() {
        assert_eq!(sparkline(&json!([0, 1, 4, 8, 0])), "·▁▄█·");
        assert_eq!(sparkline(&json!([0, 0])), "··");
        assert_eq!(sparkline(&json!([1])), "█");
        assert_eq!(sparkline(&json!([u64::MAX, 1])), "█▁");
        // A reply of another shape.
        assert_eq!(sparkline(&json!("odd")), "");
    }

    #[test]
    fn the_pools_of_a_cause_are_the_first_and_a_number() {
        let text = |count: u64| {
            pools_text(&json!({"workerPools": [{"workerPoolId": "a/b"}], "nWorkerPools": count}))
        };
        assert_eq!(
            (text(1).as_str(), text(12).as_str()),
            ("a/b", "a/b and 11 more")
        );
        assert_eq!(pools_text(&json!({})), "-");
    }
}
