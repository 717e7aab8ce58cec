//! The state of workers: last task runs, and counts by result (RFC 124).

mod table;

use access::scope::Params;
use domain::configuration::WorkerType;
use domain::id::{ConfigurationId, PoolId, TaskId, WorkerKey};
use domain::run_outcome::{OutcomeCounts, RunOutcome, Window};
use domain::time::Timestamp;
use serde_json::{Value, json};
use store::run_counts::Tallies;
use store::run_outcomes::RunCursor;
use store::{StoreError, Tx};

use super::pools::no_such_pool;
use super::workers::worker_not_found;
use crate::api::{
    call::Call,
    error::ApiError,
    paging::{MAX_PAGE, Page},
    reply::Reply,
};

pub(in crate::api) use table::ENDPOINTS as STATES;

/// The order of lists: newest first, then by task and run.
type Cursor = (i64, String, u32);

pub(super) async fn of_worker(call: Call) -> Result<Reply, ApiError> {
    let key = call.worker_key()?;
    let name = key_json(&key);
    let now = call.now;
    read(&call, name, worker_not_found, move |tx, after, limit| {
        let kept = store::run_outcomes::list_of_worker(tx, &key, None, MAX_PAGE)?;
        // The queue may have workers of the pool that are not ours, and records of deleted ones.
        if kept.is_empty() && store::workers::get(tx, &key)?.is_none() {
            return Ok(None);
        }
        let runs = store::run_outcomes::list_of_worker(tx, &key, after, limit)?;
        Ok(Some((runs, tallies_of(&kept, now))))
    })
    .await
}

pub(super) async fn of_pool(call: Call) -> Result<Reply, ApiError> {
    let pool_id = call.pool_id()?;
    of_pool_named(call, pool_id).await
}

/// A worker type of a pool made by hand has the id of its pool as its name.
pub(super) async fn of_worker_type(mut call: Call) -> Result<Reply, ApiError> {
    let worker_type: WorkerType = call.id("workerTypeId")?;
    let pool_id = worker_type.pool_id().clone();
    let params = Params::new().text("workerPoolId", pool_id.as_str());
    call.authorize(params).await?;
    of_pool_named(call, pool_id).await
}

async fn of_pool_named(call: Call, pool_id: PoolId) -> Result<Reply, ApiError> {
    let name = json!({"workerPoolId": pool_id.as_str()});
    let now = call.now;
    read(&call, name, no_such_pool, move |tx, after, limit| {
        if store::pools::get(tx, &pool_id)?.is_none() {
            return Ok(None);
        }
        let tallies = store::run_counts::of_pool(tx, &pool_id, now)?;
        let pools = [pool_id];
        let runs = store::run_outcomes::list_of_pools(tx, &pools, after, limit)?;
        Ok(Some((runs, tallies)))
    })
    .await
}

pub(super) async fn of_configuration(call: Call) -> Result<Reply, ApiError> {
    let id: ConfigurationId = call.id("workerConfigurationId")?;
    let name = json!({"workerConfigurationId": id.as_str()});
    let now = call.now;
    let text = format!("No worker configuration {id} has worker types");
    let missing = || ApiError::not_found(text);
    read(&call, name, missing, move |tx, after, limit| {
        let pools = store::run_outcomes::pools_of_configuration(tx, &id)?;
        if pools.is_empty() {
            return Ok(None);
        }
        let tallies = store::run_counts::of_configuration(tx, &id, now)?;
        let runs = store::run_outcomes::list_of_pools(tx, &pools, after, limit)?;
        Ok(Some((runs, tallies)))
    })
    .await
}

/// Adds a page of runs and the counts to a reply. `missing` is the error if their subject does not
/// exist.
async fn read(
    call: &Call,
    mut reply: Value,
    missing: impl FnOnce() -> ApiError,
    find: impl FnOnce(
        &mut Tx<'_>,
        Option<&RunCursor>,
        u32,
    ) -> Result<Option<(Vec<RunOutcome>, Tallies)>, StoreError>
    + Send
    + 'static,
) -> Result<Reply, ApiError> {
    let page: Page<Cursor> = call.page()?;
    let after = page.after.as_ref().map(cursor).transpose()?;
    let limit = page.limit_and_one();
    let found = call.scan("worker_state", move |tx| find(tx, after.as_ref(), limit));
    let (mut runs, tallies) = found.await?.ok_or_else(missing)?;
    let token = page.cut(&mut runs, |run| {
        let RunCursor {
            resolved,
            task_id,
            run_id,
        } = run.into();
        (resolved.as_millis(), task_id.to_string(), run_id)
    });
    reply["taskRuns"] = runs.iter().map(run_json).collect();
    reply["windows"] = windows(&tallies, call.now);
    Reply::page(reply, token)
}

fn cursor((resolved, task_id, run_id): &Cursor) -> Result<RunCursor, ApiError> {
    Ok(RunCursor {
        resolved: Timestamp::from_millis(*resolved),
        task_id: task_id.parse::<TaskId>()?,
        run_id: *run_id,
    })
}

/// Single workers have no stored counts, because few runs of each are kept.
fn tallies_of(kept: &[RunOutcome], now: Timestamp) -> Tallies {
    Window::ALL.map(|window| {
        let since = window.since(now);
        let mut tally = OutcomeCounts::default();
        for run in kept.iter().filter(|run| run.resolved >= since) {
            tally.add(run.reason, 1);
        }
        tally
    })
}

fn windows(tallies: &Tallies, now: Timestamp) -> Value {
    let replies = Window::ALL.iter().zip(tallies).map(|(window, tally)| {
        json!({
            "window": window.name,
            "since": window.since(now).to_string(),
            "completed": tally.completed,
            "failed": tally.failed,
            "exception": tally.exception(),
            "exceptions": tally.exceptions,
            "successRate": tally.success_rate(),
        })
    });
    replies.collect()
}

fn run_json(run: &RunOutcome) -> Value {
    let mut reply = key_json(&run.worker);
    reply["taskId"] = json!(run.task_id.as_str());
    reply["runId"] = json!(run.run_id);
    reply["outcome"] = json!(run.reason.state().as_str());
    reply["reasonResolved"] = json!(run.reason.as_str());
    if let Some(started) = run.started {
        reply["started"] = json!(started.to_string());
    }
    reply["resolved"] = json!(run.resolved.to_string());
    reply
}

fn key_json(WorkerKey { pool_id, group, id }: &WorkerKey) -> Value {
    json!({
        "workerPoolId": pool_id.as_str(),
        "workerGroup": group.as_str(),
        "workerId": id.as_str(),
    })
}
