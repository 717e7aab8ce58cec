//! The changes that a worker's end is made of, each with its events and with word to the queue.

use domain::event::{EventBody, WorkerChange};
use domain::worker::{Worker, WorkerState};
use store::StoreError;

use crate::change::Change;
use crate::queue::worker_gone;

/// Told to go: it is stopping from now on, and what it ran is given to others. `false`: it was going already.
pub fn told_to_go(
    change: &mut Change<'_, '_>,
    worker: &mut Worker,
    reason: &str,
) -> Result<bool, StoreError> {
    if worker.state >= WorkerState::Stopping {
        return Ok(false);
    }
    note_end(change, worker)?;
    worker.leave(WorkerState::Stopping, change.now);
    worker
        .terms
        .end_reason
        .get_or_insert_with(|| reason.to_owned());
    worker.version = store::workers::update(change.tx, worker)?;
    let reason = reason.to_owned();
    change.announce([event(worker, WorkerChange::Removed { reason })])?;
    worker_gone(change, &worker.key)?;
    change.wake_ending(&worker.provider_id);
    change.wake_pool(&worker.key.pool_id);
    Ok(true)
}

/// Known to be gone. `false`: that was known.
pub fn gone(
    change: &mut Change<'_, '_>,
    worker: &mut Worker,
    reason: &str,
) -> Result<bool, StoreError> {
    if worker.state == WorkerState::Stopped {
        return Ok(false);
    }
    if worker.state < WorkerState::Stopping {
        note_end(change, worker)?;
    }
    worker.leave(WorkerState::Stopped, change.now);
    worker.last_checked = change.now;
    worker
        .terms
        .end_reason
        .get_or_insert_with(|| reason.to_owned());
    worker.version = store::workers::update(change.tx, worker)?;
    change.announce([event(worker, WorkerChange::Stopped)])?;
    worker_gone(change, &worker.key)?;
    change.wake_pool(&worker.key.pool_id);
    Ok(true)
}

/// That a machine never proved itself, or that its worker never asked for work, speaks against its
/// launch config. If it was advised to go before it came to that, it does not.
fn note_end(change: &mut Change<'_, '_>, worker: &Worker) -> Result<(), StoreError> {
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

pub(super) fn event(worker: &Worker, change: WorkerChange) -> EventBody {
    EventBody::Worker {
        change,
        worker: Box::new(worker.clone()),
    }
}
