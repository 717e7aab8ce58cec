//! Ends the claims of a removed worker, so that its runs are tried again.

use domain::id::WorkerKey;
use domain::task::ExceptionReason;

use super::transitions::try_transition;
use crate::change::Change;

/// More runs than a worker can hold: it claims at most 32 at a time.
const MAX_CLAIMS: u32 = 10_000;

/// Ends every claim of a removed worker; returns how many. May be repeated.
pub fn release_worker_claims(
    change: &mut Change<'_, '_>,
    worker: &WorkerKey,
) -> store::Result<u64> {
    release_worker_claims_up_to(change, worker, MAX_CLAIMS)
}

/// Like `release_worker_claims`, with another limit; further claims expire.
pub fn release_worker_claims_up_to(
    change: &mut Change<'_, '_>,
    worker: &WorkerKey,
    max_claims: u32,
) -> store::Result<u64> {
    let claims = store::claimed_tasks::list_of_worker(change.tx, worker, max_claims)?;
    let (mut n_taken, now) = (0, change.now);
    for (task_id, run_id) in claims {
        let taken = try_transition(change, &task_id, |task| {
            task.take_away(run_id, ExceptionReason::WorkerShutdown, now)
        });
        n_taken += u64::from(taken?.is_some());
    }
    Ok(n_taken)
}
