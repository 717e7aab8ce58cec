//! The cost of requests and rounds on a database as it is after a year: statements, rows, time.

mod report;
mod steps;

use std::path::Path;

use clap::Args;
use domain::plan::StrategyName;
use serde_json::{Value, json};

use self::report::Report;
use super::host::Host;
use crate::child::Database;
use crate::{databases, machine, output};

/// That of the pools in the database.
const PROVIDER: &str = "cloud";
/// The name of a SQLite database.
pub(crate) const FILE: &str = "year.db";

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// `sqlite`, or the URL of an empty PostgreSQL database
    #[arg(long, default_value = "sqlite", value_name = "sqlite|URL")]
    database: Database,
    /// Divides the size of the database; 400 leaves hardly anything
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=400))]
    divisor: u32,
    /// Leave out the rounds and the scan
    #[arg(long)]
    requests_only: bool,
}

/// The parts of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parts {
    Requests,
    /// Requests, rounds and scans.
    All,
    /// All of them, but each request once: this shows that everything works.
    Once,
}

pub(crate) async fn run(arguments: Arguments, as_json: bool) -> anyhow::Result<()> {
    let folder = machine::temporary_folder()?;
    let url = arguments.database.url(&folder.path().join(FILE));
    let fill_seconds = databases::fill(&url, arguments.divisor).await?;
    let parts = match arguments.requests_only {
        true => Parts::Requests,
        false => Parts::All,
    };
    let mut figures = measure(folder.path(), &url, arguments.divisor, parts).await?;
    figures["database"] = arguments.database.name().into();
    figures["fillSeconds"] = fill_seconds.into();
    output::figures(&figures, as_json, report::text);
    Ok(())
}

/// Measures on a database that is filled with a year.
pub(crate) async fn measure(
    folder: &Path,
    url: &str,
    divisor: u32,
    parts: Parts,
) -> anyhow::Result<Value> {
    output::note("measuring: each statement on a year-old database");
    let host = Host::start(folder, url, StrategyName::Balanced, PROVIDER).await?;
    let mut report = Report::default();
    steps::requests(&host, divisor, parts, &mut report).await?;
    if parts != Parts::Requests {
        steps::background(&host, &mut report).await?;
    }
    host.stop().await;
    Ok(json!({
        "divisor": divisor,
        "steps": report.steps(),
        "statements": report.statements(),
        "transactions": report.transactions(),
    }))
}
