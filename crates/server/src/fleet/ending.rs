//! Ending machines whose workers were told to go, again and again until they are gone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cloud::Machines;
use domain::id::{ProviderId, WorkerKey};
use domain::time::{MINUTE_MS, Timestamp};
use domain::worker::Worker;
use futures_util::StreamExt;
use futures_util::stream;
use store::StoreError;

use crate::app::App;

/// Rows that are read at a time.
const PAGE: u32 = 500;
/// Calls to one cloud that are under way at the same time.
const MAX_CALLS: usize = 8;
const MAX_CALL: Duration = Duration::from_secs(30);
/// After so many endings that failed the others wait for the next time.
const MAX_FAILED: usize = 100;
/// A cloud that was told to end a machine is not told again before this has passed.
const AGAIN_MS: i64 = MINUTE_MS;

/// Whom we have told a cloud to end, and when. Forgetting it costs a further call, no more.
pub type Told = BTreeMap<WorkerKey, Timestamp>;

/// Tells the provider to end every machine whose worker is stopping. Returns how many it told.
pub async fn end_stopping(
    app: &Arc<App>,
    provider_id: &ProviderId,
    told: &mut Told,
) -> Result<u64, StoreError> {
    let Ok(provider) = app.providers.get(provider_id) else {
        return Ok(0);
    };
    let Some(machines) = provider.machines() else {
        return Ok(0);
    };
    let mut after: Option<WorkerKey> = None;
    let mut n_told = 0;
    loop {
        let (id, start) = (provider_id.clone(), after.take());
        let page = app.store.read("worker_list_stopping", move |tx| {
            store::worker_list_stopping(tx, &id, start.as_ref(), PAGE)
        });
        let page = page.await?;
        let full = page.len() == PAGE as usize;
        after = page.last().map(|worker| worker.key.clone());
        let now = app.clock.now();
        let due = page.into_iter().filter(|worker| {
            let last = told.get(&worker.key);
            last.is_none_or(|at| now.as_millis() - at.as_millis() >= AGAIN_MS)
        });
        let due: Vec<Worker> = due.collect();
        let calls = due
            .into_iter()
            .map(|worker| end(machines, provider_id, worker));
        let mut calls = stream::iter(calls).buffer_unordered(MAX_CALLS);
        let mut n_failed = 0;
        while let Some((key, done)) = calls.next().await {
            if done {
                n_told += 1;
                told.insert(key, now);
            } else {
                n_failed += 1;
            }
            // A cloud that does not work is not asked for thousands.
            if n_failed == MAX_FAILED {
                return Ok(n_told);
            }
        }
        if !full {
            break;
        }
    }
    Ok(n_told)
}

async fn end(
    machines: &dyn Machines,
    provider_id: &ProviderId,
    worker: Worker,
) -> (WorkerKey, bool) {
    let Err(problem) = end_now(machines, &worker).await else {
        return (worker.key, true);
    };
    tracing::warn!(provider.id = %provider_id, worker.pool = %worker.key.pool_id,
        worker.id = %worker.key.id, error = %problem,
        "cannot end {}; it is tried again: {problem}", worker.key);
    (worker.key, false)
}

/// Once, within limits.
pub(super) async fn end_now(machines: &dyn Machines, worker: &Worker) -> Result<(), String> {
    match tokio::time::timeout(MAX_CALL, machines.end(worker)).await {
        Ok(ended) => ended.map_err(|problem| problem.to_string()),
        Err(_) => Err(format!("no answer within {} s", MAX_CALL.as_secs())),
    }
}
