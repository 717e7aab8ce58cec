//! Errors that providers and workers reported.

use clap::{Args, Subcommand};
use serde_json::Value;

use super::{Limit, Session, name};
use crate::client::{Call, WORKER_MANAGER};
use crate::failure::Failure;
use crate::output::{self, Column, Kind};

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    List(Errors),
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
