//! The changes that a worker's end is made of, each with its events and with word to the queue.

use domain::event::{EventBody, WorkerChange};
use domain::time::Timestamp;
use domain::worker::{Worker, WorkerState};
use store::{StoreError, Tx};

use crate::api::queue::worker_gone;
use crate::app::App;

/// Told to go: it is stopping from now on, and what it ran is given to others. `false`: it was going already.
pub fn told_to_go(
    app: &App,
    tx: &mut Tx<'_>,
    worker: &mut Worker,
    reason: &str,
    now: Timestamp,
) -> Result<bool, StoreError> {
    if worker.state >= WorkerState::Stopping {
        return Ok(false);
    }
    note_unregistered(tx, worker, now)?;
    worker.leave(WorkerState::Stopping, now);
    worker
        .terms
        .end_reason
        .get_or_insert_with(|| reason.to_owned());
    worker.version = store::worker_update(tx, worker)?;
    let reason = reason.to_owned();
    app.announce(tx, now, [event(worker, WorkerChange::Removed { reason })])?;
    worker_gone(app, tx, &worker.key, now)?;
    Ok(true)
}

/// Known to be gone. `false`: that was known.
pub fn gone(
    app: &App,
    tx: &mut Tx<'_>,
    worker: &mut Worker,
    reason: &str,
    now: Timestamp,
) -> Result<bool, StoreError> {
    if worker.state == WorkerState::Stopped {
        return Ok(false);
    }
    if worker.state < WorkerState::Stopping {
        note_unregistered(tx, worker, now)?;
    }
    worker.leave(WorkerState::Stopped, now);
    worker.last_checked = now;
    worker
        .terms
        .end_reason
        .get_or_insert_with(|| reason.to_owned());
    worker.version = store::worker_update(tx, worker)?;
    app.announce(tx, now, [event(worker, WorkerChange::Stopped)])?;
    worker_gone(app, tx, &worker.key, now)?;
    Ok(true)
}

/// That a machine never proved itself speaks against its launch config.
fn note_unregistered(tx: &mut Tx<'_>, worker: &Worker, now: Timestamp) -> Result<(), StoreError> {
    let token = worker
        .terms
        .launch_token
        .as_ref()
        .and_then(|token| token.parse().ok());
    match token {
        Some(token) if worker.state == WorkerState::Requested => {
            store::launch_note_never_registered(tx, &token, now)
        }
        Some(_) | None => Ok(()),
    }
}

pub(super) fn event(worker: &Worker, change: WorkerChange) -> EventBody {
    EventBody::Worker {
        change,
        worker: Box::new(worker.clone()),
    }
}
