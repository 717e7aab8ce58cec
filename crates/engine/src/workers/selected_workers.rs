//! Workers that people list, count and end together.

use std::sync::Arc;

use domain::audit::AuditEntry;
use domain::counts::Counts;
use domain::id::{PoolId, WorkerKey};
use domain::time::Timestamp;
use domain::worker::{Advice, Worker, WorkerState};
use domain::worker_selection::WorkerSelection;
use serde_json::json;
use store::Tx;

use super::declared_workers::{measure_end, removed_state};
use super::{WorkerError, find_provider};
use crate::Engine;
use crate::change::Change;
use crate::fleet;

/// Maximum number of workers that one request ends, in one transaction. The client continues.
pub const MAX_ENDED: u32 = 100;
/// Pools that are read together.
const POOLS_PAGE: u32 = 100;

/// The end of a selection's workers.
#[derive(Clone)]
pub struct EndOrder {
    pub selection: WorkerSelection,
    /// Workers that were made later stay.
    pub until: Timestamp,
    pub ending: Ending,
}

/// How workers end, and why.
#[derive(Clone)]
pub struct Ending {
    pub reason: String,
    /// Running workers finish their tasks first.
    pub drains: bool,
}

/// The workers that one request ended.
#[derive(Default)]
pub struct EndedWorkers {
    pub ended: Vec<Worker>,
    /// Workers that cannot be ended, with the reason.
    pub skipped: Vec<(WorkerKey, String)>,
    /// Where the next request continues.
    pub next: Option<WorkerKey>,
}

/// The selection must name an existing pool, launch config, configuration or provider.
pub fn check_selection(
    engine: &Engine,
    tx: &mut Tx<'_>,
    selection: &WorkerSelection,
) -> Result<(), WorkerError> {
    let exists = match selection {
        WorkerSelection::Pool(id) => store::pools::get(tx, id)?.is_some(),
        WorkerSelection::LaunchConfig(pool_id, id) => {
            store::launch_configs::get(tx, pool_id, id)?.is_some()
        }
        WorkerSelection::Configuration(id) => store::configurations::get(tx, id)?.is_some(),
        WorkerSelection::Provider(id, _) => {
            let mut known = engine.providers.listed();
            known.any(|(known, _)| known == id)
        }
    };
    if exists {
        return Ok(());
    }
    let text = match selection {
        WorkerSelection::Pool(_) => "Worker pool does not exist".to_owned(),
        WorkerSelection::LaunchConfig(pool_id, id) => {
            format!("Launch config {id} does not exist in worker pool {pool_id}")
        }
        WorkerSelection::Configuration(_) => "Worker configuration does not exist".to_owned(),
        WorkerSelection::Provider(id, _) => format!("Provider {id} does not exist"),
    };
    Err(WorkerError::NotFound(text))
}

/// A page of the selected workers that are not stopped, ordered by pool, group and id.
pub fn select_workers(
    tx: &mut Tx<'_>,
    selection: &WorkerSelection,
    until: Timestamp,
    after: Option<&WorkerKey>,
    limit: u32,
) -> store::Result<Vec<Worker>> {
    let mut workers = Vec::new();
    let from = after.map(|key| &key.pool_id);
    each_pool(tx, selection, from, |tx, pool_id| {
        let room = limit.saturating_sub(u32::try_from(workers.len()).unwrap_or(u32::MAX));
        if room > 0 {
            let after = after.filter(|key| key.pool_id == pool_id);
            let page = store::selected_workers::list(tx, &pool_id, selection, until, after, room)?;
            workers.extend(page);
        }
        Ok(room > 0)
    })?;
    Ok(workers)
}

/// A page of the pools of a selection that have workers which are not stopped, with their counts.
pub fn count_workers(
    tx: &mut Tx<'_>,
    selection: &WorkerSelection,
    until: Timestamp,
    after: Option<&PoolId>,
    limit: u32,
) -> store::Result<Vec<(PoolId, Counts)>> {
    let mut pools = Vec::new();
    each_pool(tx, selection, after, |tx, pool_id| {
        if after != Some(&pool_id) {
            let counts = store::selected_workers::count(tx, &pool_id, selection, until)?;
            if counts != Counts::default() {
                pools.push((pool_id, counts));
            }
        }
        Ok(pools.len() < limit as usize)
    })?;
    Ok(pools)
}

/// Visits the pools of a selection from this one on, until the visitor has enough.
fn each_pool(
    tx: &mut Tx<'_>,
    selection: &WorkerSelection,
    from: Option<&PoolId>,
    mut visit: impl FnMut(&mut Tx<'_>, PoolId) -> store::Result<bool>,
) -> store::Result<()> {
    let (mut from, mut last) = (from.cloned(), None);
    loop {
        let start = from.as_ref().map_or("", PoolId::as_str);
        let pools = store::selected_workers::pools(tx, selection, start, POOLS_PAGE)?;
        let is_full = pools.len() == POOLS_PAGE as usize;
        for pool_id in pools {
            if last.as_ref() == Some(&pool_id) {
                continue;
            }
            last = Some(pool_id.clone());
            if !visit(tx, pool_id)? {
                return Ok(());
            }
        }
        if !is_full {
            return Ok(());
        }
        from.clone_from(&last);
    }
}

/// Ends a page of the selected workers, as `remove` ends one.
pub async fn end_workers(
    engine: &Arc<Engine>,
    order: EndOrder,
    after: Option<WorkerKey>,
    limit: u32,
    audit: AuditEntry,
) -> Result<EndedWorkers, WorkerError> {
    let (inner, now) = (Arc::clone(engine), audit.created);
    let limit = limit.clamp(1, MAX_ENDED);
    let written = engine.change("worker_end_selected", now, move |change| {
        check_selection(&inner, change.tx, &order.selection)?;
        let (selection, until) = (&order.selection, order.until);
        let mut workers = select_workers(change.tx, selection, until, after.as_ref(), limit + 1)?;
        let mut result = EndedWorkers::default();
        if workers.len() > limit as usize {
            workers.truncate(limit as usize);
            result.next = workers.last().map(|worker| worker.key.clone());
        }
        for worker in workers {
            let key = worker.key.clone();
            match end_worker(&inner, change, &order.ending, worker, &audit) {
                Ok(Some(worker)) => result.ended.push(worker),
                Ok(None) => {}
                Err(WorkerError::Store(error)) => return Err(error.into()),
                Err(refused) => result.skipped.push((key, refused.to_string())),
            }
        }
        Ok::<_, WorkerError>(result)
    });
    let result = written.await?;
    for worker in &result.ended {
        measure_end(worker, now);
    }
    Ok(result)
}

/// `None`: it ends already.
pub(super) fn end_worker(
    engine: &Engine,
    change: &mut Change<'_, '_>,
    ending: &Ending,
    mut worker: Worker,
    audit: &AuditEntry,
) -> Result<Option<Worker>, WorkerError> {
    let text = format!("ended by {}: {}", audit.client_id, ending.reason);
    if ending.drains && worker.state == WorkerState::Running {
        let advice = worker.terms.advice.as_ref();
        if advice.is_some_and(Advice::is_final) {
            return Ok(None);
        }
        let advice = Advice::make_final(&text, change.now);
        worker = change.update_worker(worker.advise(advice))?;
        change.dismiss([worker.key.clone()]);
        change.wake_pool(&worker.key.pool_id);
    } else {
        let provider_id = &worker.provider_id;
        let unknown = || WorkerError::NotFound(format!("Provider {provider_id} does not exist"));
        let state = removed_state(find_provider(engine, provider_id, unknown)?.as_ref())?;
        if worker.state >= state {
            return Ok(None);
        }
        fleet::request_stop(change, &mut worker, &text)?;
        if state == WorkerState::Stopped {
            fleet::mark_stopped(change, &mut worker, &text)?;
        }
    }
    let action = if ending.drains { "drained" } else { "removed" };
    let entry = AuditEntry {
        entity_id: worker.key.to_string(),
        action: action.to_owned(),
        detail: json!({"reason": ending.reason}),
        ..audit.clone()
    };
    store::audit::insert(change.tx, &entry)?;
    Ok(Some(worker))
}
