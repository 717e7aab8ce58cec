//! The processes of the deployment.

use clap::Subcommand;

use super::{Limit, Session};
use crate::client::{Call, FLEETWRIGHT};
use crate::failure::Failure;
use crate::output::Column;

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    List(Limit),
}

/// A field of a row that the API does not have.
const LEASES: &str = "held";

const LIST: &[Column] = &[
    Column::text("HOST", "host"),
    Column::number("PID", "pid"),
    Column::text("VERSION", "version"),
    Column::age("STARTED", "started"),
    Column::age("LAST SEEN", "lastSeen"),
    Column::text("SILENT", "silent"),
    Column::number("CLOCK AHEAD MS", "clockAheadMs"),
    Column::text("ROLES", "roles"),
    Column::text("LEASES", LEASES),
    Column::text("PROCESS", "processId"),
];

pub(crate) async fn run(verb: Verb, session: &Session) -> Result<(), Failure> {
    let Verb::List(limit) = verb;
    let call = Call::get(FLEETWRIGHT, &["processes"]).to("list processes");
    let document = session
        .client
        .pages(&call, "processes", limit.limit)
        .await?;
    session.described_rows(document, "processes", LIST, |row| {
        let leases = row["leases"].as_array().into_iter().flatten();
        let names = leases.map(|lease| lease["name"].clone());
        row[LEASES] = names.collect();
    });
    Ok(())
}
