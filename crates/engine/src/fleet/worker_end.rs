//! The transitions at the end of a worker, with their events and the release of its claims.

use domain::event::WorkerChange;
use domain::worker::{Worker, WorkerState};

use crate::change::Change;
use crate::queue::release_worker_claims;

/// Sets a worker to stopping and releases its claims. `false`: it was stopping or stopped already.
pub fn request_stop(
    change: &mut Change<'_, '_>,
    worker: &mut Worker,
    reason: &str,
) -> store::Result<bool> {
    if worker.state >= WorkerState::Stopping {
        return Ok(false);
    }
    note_end(change, worker)?;
    *worker = change.update_worker(worker.clone().stop(reason, change.now))?;
    let reason = reason.to_owned();
    change.announce_worker(worker, WorkerChange::Removed { reason })?;
    release_worker_claims(change, &worker.key)?;
    change.wake_ending(&worker.provider_id);
    change.wake_pool(&worker.key.pool_id);
    Ok(true)
}

/// Sets a worker to stopped. `false`: it was stopped already.
pub fn mark_stopped(
    change: &mut Change<'_, '_>,
    worker: &mut Worker,
    reason: &str,
) -> store::Result<bool> {
    if worker.state == WorkerState::Stopped {
        return Ok(false);
    }
    if worker.state < WorkerState::Stopping {
        note_end(change, worker)?;
    }
    *worker = change.update_worker(worker.clone().mark_stopped(reason, change.now))?;
    change.announce_worker(worker, WorkerChange::Stopped)?;
    release_worker_claims(change, &worker.key)?;
    change.wake_pool(&worker.key.pool_id);
    Ok(true)
}

/// Counts against the launch config that a machine never registered, or that its worker never asked
/// for tasks; unless the worker had advice to stop before.
fn note_end(change: &mut Change<'_, '_>, worker: &Worker) -> store::Result<()> {
    let (tx, now) = (&mut *change.tx, change.now);
    let token = worker.terms.launch_token.as_ref();
    let Some(token) = token.and_then(|token| token.parse().ok()) else {
        return Ok(());
    };
    let advice = worker.terms.advice.as_ref();
    let is_draining = advice.is_some_and(|advice| advice.terminate);
    match worker.state {
        WorkerState::Requested => store::launches::note_never_registered(tx, &token, now),
        WorkerState::Running if is_draining => {
            store::workers::note_first_claim(tx, &worker.key, now).map(drop)
        }
        WorkerState::Running => store::launches::note_silent(tx, &token, now),
        WorkerState::Stopping | WorkerState::Stopped => Ok(()),
    }
}
