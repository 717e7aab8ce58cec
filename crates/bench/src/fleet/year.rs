//! The cost of requests and rounds on a database as it is after a year: statements, rows, time.

mod report;
mod steps;

use clap::Args;
use domain::plan::StrategyName;
use serde_json::json;

use self::report::Report;
use super::host::Host;
use crate::child::Database;
use crate::{databases, machine, output};

/// That of the pools in the database.
const PROVIDER: &str = "cloud";

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

pub(crate) async fn run(arguments: Arguments, as_json: bool) -> anyhow::Result<()> {
    let folder = machine::temporary_folder()?;
    let url = arguments.database.url(&folder.path().join("year.db"));
    let fill_seconds = databases::fill(&url, arguments.divisor).await?;
    let host = Host::start(folder.path(), &url, StrategyName::Balanced, PROVIDER).await?;
    let mut report = Report::default();
    steps::requests(&host, arguments.divisor, &mut report).await?;
    if !arguments.requests_only {
        steps::background(&host, &mut report).await?;
    }
    host.stop().await;
    let figures = json!({
        "database": arguments.database.name(),
        "divisor": arguments.divisor,
        "fillSeconds": fill_seconds,
        "steps": report.steps(),
        "statements": report.statements(),
        "transactions": report.transactions(),
    });
    output::figures(&figures, as_json, report::text);
    Ok(())
}
