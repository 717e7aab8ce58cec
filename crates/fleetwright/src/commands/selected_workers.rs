//! Selections of workers, such as those of a configuration: listed, counted, ended.

use clap::Args;
use serde_json::{Value, json};

use super::{Consent, Limit, Session, name, named_workers};
use crate::client::{Call, WORKER_MANAGER};
use crate::failure::Failure;
use crate::output::{self, Column};

#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("selection").required(true))]
pub(crate) struct Selection {
    /// Workers of this pool
    #[arg(long, group = "selection", value_name = "POOL", value_parser = name::pool)]
    pool: Option<String>,
    /// Workers of this worker type: its name in a worker configuration, or its pool
    #[arg(long, group = "selection", value_name = "TYPE")]
    worker_type: Option<String>,
    /// Workers of all worker types of this worker configuration
    #[arg(long, group = "selection", value_name = "CONFIGURATION")]
    configuration: Option<String>,
    /// Workers of this provider
    #[arg(long, group = "selection", value_name = "PROVIDER")]
    provider: Option<String>,
    /// Only workers of this launch config of the pool or worker type
    #[arg(long, value_name = "ID", conflicts_with_all = ["configuration", "provider"])]
    launch_config: Option<String>,
    /// Only workers in this region of the provider (their worker group)
    #[arg(long, value_name = "REGION", conflicts_with_all = ["pool", "worker_type", "configuration"])]
    region: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct End {
    /// A worker as POOL/GROUP/WORKER; several end together
    #[arg(value_name = "WORKER", group = "selection", value_parser = named_workers::worker)]
    workers: Vec<String>,
    #[command(flatten)]
    selection: Selection,
    /// Reason, for other users
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Let running workers finish their tasks
    #[arg(long)]
    drain: bool,
    #[command(flatten)]
    consent: Consent,
}

const WORKERS: &str = "workers";
const SKIPPED: &str = "skipped";
const COUNTS: &str = "workerPoolsStats";
const BEFORE: &str = "createdBefore";
const TOKEN: &str = "continuationToken";
/// The counts of workers that are ended.
const LIVE: [&str; 2] = ["requestedCount", "runningCount"];

const LIST: &[Column] = &[
    Column::text("POOL", "workerPoolId"),
    Column::text("GROUP", "workerGroup"),
    Column::text("WORKER", "workerId"),
    Column::text("STATE", "state"),
    Column::number("CAPACITY", "capacity"),
    Column::age("CREATED", "created"),
    Column::text("LAUNCH CONFIG", "launchConfigId"),
    Column::text("PROVIDER", "providerId"),
];

const COUNTED: &[Column] = &[
    Column::text("POOL", "workerPoolId"),
    Column::number("REQUESTED", "requestedCount"),
    Column::number("RUNNING", "runningCount"),
    Column::number("STOPPING", "stoppingCount"),
    Column::number("CAPACITY", "currentCapacity"),
];

const ENDED: &[Column] = &[
    Column::text("POOL", "workerPoolId"),
    Column::text("GROUP", "workerGroup"),
    Column::text("WORKER", "workerId"),
    Column::text("STATE", "state"),
];

const NOT_ENDED: &[Column] = &[
    Column::text("POOL", "workerPoolId"),
    Column::text("GROUP", "workerGroup"),
    Column::text("WORKER", "workerId"),
    Column::prose("SKIPPED BECAUSE", "reason"),
];

pub(super) async fn list(
    selection: &Selection,
    limit: &Limit,
    session: &Session,
) -> Result<(), Failure> {
    let call = selection.narrow(Call::get(WORKER_MANAGER, &["selected-workers"]));
    let call = call.to(format!("list the workers of {selection}"));
    session.list(&call, WORKERS, LIST, limit).await
}

pub(super) async fn count(selection: &Selection, session: &Session) -> Result<(), Failure> {
    let (counts, _) = selection.count(session).await?;
    session.rows(&counts, COUNTS, COUNTED);
    Ok(())
}

/// Shows the counts, asks, and ends the workers of the preview in batches.
pub(super) async fn end(end: End, session: &Session) -> Result<(), Failure> {
    if !end.workers.is_empty() {
        let workers = output::counted(end.workers.len(), "worker");
        let act = if end.drain { "drain" } else { "end" };
        output::confirm(&format!("{act} {workers}"), end.consent.yes)?;
        return named_workers::end(&end.workers, &end.reason, end.drain, session).await;
    }
    let (counts, before) = end.selection.count(session).await?;
    let n_live = n_live(&counts);
    if !session.json && n_live > 0 {
        session.rows(&counts, COUNTS, COUNTED);
    }
    let workers = output::counted(n_live, "worker");
    let act = if end.drain { "drain" } else { "end" };
    let purpose = format!("{act} {workers} of {}", end.selection);
    if n_live > 0 {
        output::confirm(&purpose, end.consent.yes)?;
    }
    let body = json!({"reason": end.reason, BEFORE: before, "drain": end.drain});
    let (mut all, mut token) = (json!({WORKERS: [], SKIPPED: []}), None);
    // Each call but the last passes at least one worker of the preview, ended before or not.
    for _ in 0..=n_workers(&counts) {
        let call = Call::post(WORKER_MANAGER, &["selected-workers", "end"], body.clone());
        let call = end.selection.narrow(call).query(TOKEN, token.take());
        let reply = session.client.call(&call.to(purpose.clone())).await;
        let mut reply = reply.inspect_err(|_| note_progress(&all))?;
        for key in [WORKERS, SKIPPED] {
            if let (Some(all), Some(page)) = (all[key].as_array_mut(), reply[key].as_array_mut()) {
                all.append(page);
            }
        }
        token = reply[TOKEN].as_str().map(str::to_owned);
        if token.is_none() {
            break;
        }
    }
    report(&all, &end, session)?;
    match token {
        None => Ok(()),
        Some(_) => Err(Failure::failed("some workers were not reached")
            .with_hint("repeat the command: workers were made meanwhile")),
    }
}

fn report(all: &Value, end: &End, session: &Session) -> Result<(), Failure> {
    let (n_ended, n_skipped) = (n_items(all, WORKERS), n_items(all, SKIPPED));
    let workers = output::counted(n_ended, "worker");
    if session.json {
        output::json(all);
    } else {
        session.rows(all, WORKERS, ENDED);
        let done = if end.drain { "draining" } else { "ended" };
        output::note(&format!("{done}: {workers} of {}", end.selection));
    }
    if n_skipped == 0 {
        return Ok(());
    }
    if !session.json {
        session.rows(all, SKIPPED, NOT_ENDED);
    }
    let skipped = output::counted(n_skipped, "worker");
    Err(Failure::failed(format!(
        "{skipped} could not be ended: see the reasons above"
    )))
}

fn note_progress(all: &Value) {
    let n_ended = n_items(all, WORKERS);
    if n_ended > 0 {
        let workers = output::counted(n_ended, "worker");
        output::note(&format!(
            "{workers} ended before the failure; repeat the command"
        ));
    }
}

fn n_items(document: &Value, key: &str) -> usize {
    document[key].as_array().map_or(0, Vec::len)
}

/// The workers that the command ends.
fn n_live(counts: &Value) -> u64 {
    sum(counts, &LIVE)
}

/// The workers that the calls pass.
fn n_workers(counts: &Value) -> u64 {
    n_live(counts).saturating_add(sum(counts, &["stoppingCount"]))
}

fn sum(counts: &Value, keys: &[&str]) -> u64 {
    let pools = counts[COUNTS].as_array().into_iter().flatten();
    let numbers = pools.flat_map(|pool| keys.iter().filter_map(|key| pool[*key].as_u64()));
    numbers.sum()
}

impl Selection {
    fn narrow(&self, call: Call) -> Call {
        call.query("workerPoolId", self.pool.as_deref())
            .query("workerType", self.worker_type.as_deref())
            .query("workerConfigurationId", self.configuration.as_deref())
            .query("launchConfigId", self.launch_config.as_deref())
            .query("providerId", self.provider.as_deref())
            .query("region", self.region.as_deref())
    }

    /// The counts by pool, and the moment of the server for which they hold.
    async fn count(&self, session: &Session) -> Result<(Value, Value), Failure> {
        let call = Call::get(WORKER_MANAGER, &["selected-workers", "counts"]);
        let call = self.narrow(call).to(format!("count the workers of {self}"));
        let first = call.clone().query("limit", Some(1));
        let before = session.client.call(&first).await?[BEFORE].take();
        let call = call.query(BEFORE, before.as_str());
        let counts = session.client.pages(&call, COUNTS, None).await?;
        Ok((counts, before))
    }
}

impl std::fmt::Display for Selection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(id) = &self.launch_config {
            write!(f, "launch config {id} of ")?;
        }
        if let Some(id) = &self.region {
            write!(f, "region {id} of ")?;
        }
        let wide = [
            ("pool", &self.pool),
            ("worker type", &self.worker_type),
            ("worker configuration", &self.configuration),
            ("provider", &self.provider),
        ];
        let named = wide
            .iter()
            .find_map(|(noun, id)| Some((noun, id.as_ref()?)));
        match named {
            Some((noun, id)) => write!(f, "{noun} {id}"),
            None => f.write_str("all pools"),
        }
    }
}
