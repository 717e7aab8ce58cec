//! The transitions at the end of a worker, with their events and the release of its claims.

use domain::event::WorkerChange;
use domain::market::OfferingNews;
use domain::recording::RecordedWorker;
use domain::worker::{Worker, WorkerState};

use super::offering_news;
use crate::change::Change;
use crate::queue::release_worker_claims;

/// Sets a worker to stopping and releases its claims. `false`: it was stopping or stopped already.
pub fn request_stop(
    change: &mut Change<'_, '_>,
    worker: &mut Worker,
    reason: &str,
) -> store::Result<bool> {
    request_stop_with_news(change, worker, reason, None)
}

/// The same, with what the end shows about the worker's offering.
pub(super) fn request_stop_with_news(
    change: &mut Change<'_, '_>,
    worker: &mut Worker,
    reason: &str,
    news: Option<OfferingNews>,
) -> store::Result<bool> {
    if worker.state >= WorkerState::Stopping {
        return Ok(false);
    }
    note_end(change, worker, news)?;
    *worker = change.update_worker(worker.clone().stop(reason, change.now))?;
    record_end(change, worker, news)?;
    store::meters::note_leaving(change.tx, &worker.key, change.now)?;
    let reason = reason.to_owned();
    change.announce_worker(worker, WorkerChange::Removed { reason })?;
    release_worker_claims(change, &worker.key)?;
    change.dismiss([worker.key.clone()]);
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
    mark_stopped_with_news(change, worker, reason, None)
}

/// The same, with what the end shows about the worker's offering.
pub(super) fn mark_stopped_with_news(
    change: &mut Change<'_, '_>,
    worker: &mut Worker,
    reason: &str,
    news: Option<OfferingNews>,
) -> store::Result<bool> {
    if worker.state == WorkerState::Stopped {
        return Ok(false);
    }
    let is_stopping = worker.state == WorkerState::Stopping;
    if !is_stopping {
        note_end(change, worker, news)?;
    }
    *worker = change.update_worker(worker.clone().mark_stopped(reason, change.now))?;
    if is_stopping {
        store::recorded_workers::note_stopped(change.tx, &worker.key, change.now)?;
    } else {
        record_end(change, worker, news)?;
    }
    store::meters::note_ended(change.tx, &worker.key, change.now)?;
    change.announce_worker(worker, WorkerChange::Stopped)?;
    release_worker_claims(change, &worker.key)?;
    change.wake_pool(&worker.key.pool_id);
    Ok(true)
}

/// Records a worker that stops or has stopped for simulations.
fn record_end(
    change: &mut Change<'_, '_>,
    worker: &Worker,
    news: Option<OfferingNews>,
) -> store::Result<()> {
    let is_interrupted = news == Some(OfferingNews::Interrupted);
    match RecordedWorker::of(worker, is_interrupted) {
        Some(recorded) => store::recorded_workers::insert(change.tx, &recorded),
        None => Ok(()),
    }
}

/// Counts against the launch config that a machine never registered, or that its worker never asked
/// for tasks; unless the worker had advice to stop before.
fn note_end(
    change: &mut Change<'_, '_>,
    worker: &Worker,
    news: Option<OfferingNews>,
) -> store::Result<()> {
    let (tx, now) = (&mut *change.tx, change.now);
    let token = worker.terms.launch_token.as_ref();
    let Some(token) = token.and_then(|token| token.parse().ok()) else {
        return Ok(());
    };
    let origin = match worker.state {
        WorkerState::Requested => store::launches::note_never_registered(tx, &token, now)?,
        WorkerState::Running => {
            if worker.terms.is_draining() {
                store::workers::note_first_claim(tx, &worker.key, now)?;
            } else {
                store::launches::note_silent(tx, &token, now)?;
            }
            match news {
                Some(_) => store::launches::origin(tx, &token)?,
                None => None,
            }
        }
        WorkerState::Stopping | WorkerState::Stopped => None,
    };
    match (origin, news) {
        (Some(origin), Some(news)) => offering_news::note(change, &origin, news),
        (Some(_) | None, _) => Ok(()),
    }
}
