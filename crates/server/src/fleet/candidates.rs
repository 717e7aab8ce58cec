//! Running workers one by one: those that might be told to go, or told so no longer.

use std::collections::{BTreeMap, BTreeSet};

use domain::id::{LaunchConfigId, ProviderId, WorkerGroup, WorkerId, WorkerKey};
use domain::plan::Candidate;
use domain::queue_worker::QueueWorker;
use domain::time::Timestamp;
use domain::worker::{Worker, WorkerState};
use store::{StoreError, Tx};

use super::facts::Facts;

/// Of a pool with more workers than this, the others are looked at another time.
pub(super) const MAX_CANDIDATES: u32 = 20_000;

/// How to find out who has a task now.
#[derive(Clone)]
pub(super) enum Busy {
    /// Our own queue knows.
    AskStore,
    /// An outside queue said so.
    Known(BTreeSet<(WorkerGroup, WorkerId)>),
    /// An outside queue could not be asked, so anybody might.
    Anybody,
}

/// Only workers of these providers: those of others were declared by people, who end them, too.
pub(super) fn read(
    tx: &mut Tx<'_>,
    facts: &Facts,
    busy: &Busy,
    launching: &[ProviderId],
) -> Result<Vec<Candidate>, StoreError> {
    let pool_id = &facts.pool.id;
    let mut running =
        store::worker_list_in_state(tx, pool_id, WorkerState::Running, MAX_CANDIDATES)?;
    running.retain(|worker| launching.contains(&worker.provider_id));
    let ours;
    let busy = match busy {
        Busy::AskStore => {
            let found = store::task_busy_workers(tx, pool_id, facts.now)?;
            ours = found.into_iter().collect();
            Some(&ours)
        }
        Busy::Known(busy) => Some(busy),
        Busy::Anybody => None,
    };
    let seen: BTreeMap<WorkerKey, QueueWorker> = match (running.first(), running.last()) {
        (Some(first), Some(last)) => store::queue_worker_between(tx, &first.key, &last.key)?
            .into_iter()
            .map(|seen| (seen.key.clone(), seen))
            .collect(),
        (None, _) | (_, None) => BTreeMap::new(),
    };
    let candidates = running.into_iter().map(|worker| {
        let seen = seen.get(&worker.key);
        candidate(facts, worker, seen, busy)
    });
    Ok(candidates.collect())
}

fn candidate(
    facts: &Facts,
    worker: Worker,
    seen: Option<&QueueWorker>,
    busy: Option<&BTreeSet<(WorkerGroup, WorkerId)>>,
) -> Candidate {
    let active = |id: &LaunchConfigId| facts.launch_configs.iter().any(|config| config.id == *id);
    let archived = worker
        .launch_config_id
        .as_ref()
        .is_some_and(|id| !active(id));
    let registered = worker.terms.registered_at.map(Timestamp::from_millis);
    let last_task = seen.and_then(|seen| seen.last_task_ended);
    Candidate {
        capacity: worker.capacity,
        created: worker.created,
        archived,
        deprovisioned: !facts.pool.has_provider(&worker.provider_id),
        busy: busy
            .is_none_or(|busy| busy.contains(&(worker.key.group.clone(), worker.key.id.clone()))),
        idle_since: last_task.max(registered).unwrap_or(worker.created),
        idle_hold_ms: worker.terms.idle_hold_ms.unwrap_or(0),
        quarantined_since: seen.and_then(|seen| quarantined_since(seen, facts.now)),
        advice: worker.terms.advice,
        key: worker.key,
    }
}

/// When the quarantine that holds now was imposed.
fn quarantined_since(seen: &QueueWorker, now: Timestamp) -> Option<Timestamp> {
    if !seen.is_quarantined(now) {
        return None;
    }
    let entry = seen.quarantine_details.last();
    let imposed = entry.and_then(|entry| entry.updated_at.parse().ok());
    Some(imposed.unwrap_or(now))
}
