//! A worker claims a given run, or extends its claim.

use std::sync::Arc;

use domain::id::{TaskId, WorkerKey};
use domain::task::Task;
use domain::time::Timestamp;
use store::Tx;

use super::TaskError;
use super::claim_work::{claim_end, note_worker_seen, refusal};
use super::transitions::{apply_transition, claimant};
use crate::Engine;

pub async fn claim_task(
    engine: &Arc<Engine>,
    now: Timestamp,
    id: TaskId,
    run_id: u32,
    worker: WorkerKey,
) -> Result<Task, TaskError> {
    let until = claim_end(engine, now);
    let written = engine.change("task_claim", now, move |change| {
        let (tx, now) = (&mut *change.tx, change.now);
        let before = load_task(tx, &id)?;
        let mut found = store::claimants::list(tx, std::slice::from_ref(&worker))?;
        let store::claimants::Claimant { state, known } = found.remove(&worker).unwrap_or_default();
        if let Some(state) = refusal(state) {
            let worker = worker.clone();
            return Err(TaskError::WorkerLeaving { worker, state });
        }
        let moved = before
            .clone()
            .claim(run_id, &worker.group, &worker.id, now, until)?;
        if known
            .as_ref()
            .is_some_and(|known| known.is_quarantined(now))
        {
            return Err(TaskError::Quarantined(worker.clone()));
        }
        // A second claim by the same worker changes nothing.
        let is_new = !moved.news.is_empty();
        let task = apply_transition(change, &before, moved)?;
        let claimed = is_new.then_some(&task);
        note_worker_seen(change, &worker, known, claimed, now)?;
        Ok(task)
    });
    written.await
}

pub(super) fn load_task(tx: &mut Tx<'_>, id: &TaskId) -> Result<Task, TaskError> {
    store::tasks::get(tx, id)?.ok_or_else(|| TaskError::NoSuchTask(id.clone()))
}

/// Extends the claim of a worker.
pub async fn reclaim(
    engine: &Arc<Engine>,
    now: Timestamp,
    id: TaskId,
    run_id: u32,
) -> Result<Task, TaskError> {
    let until = claim_end(engine, now);
    let written = engine.change("task_reclaim", now, move |change| {
        let now = change.now;
        let before = load_task(change.tx, &id)?;
        let moved = before.clone().reclaim(run_id, now, until)?;
        let task = apply_transition(change, &before, moved)?;
        if let Some(claim) = task.run(run_id).and_then(|run| run.running()) {
            let worker = claimant(&task, claim);
            let known = store::queue_workers::get(change.tx, &worker)?;
            note_worker_seen(change, &worker, known, None, now)?;
        }
        Ok::<_, TaskError>(task)
    });
    written.await
}
