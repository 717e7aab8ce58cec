//! A worker is gone: what it had claimed is tried again elsewhere.

use domain::id::WorkerKey;
use domain::task::ExceptionReason;
use store::StoreError;

use super::moves::carry_out;
use crate::change::Change;

/// A worker holds no more runs than this: it claims 32 at a time, and gives them back one by one.
const MAX_CLAIMS: u32 = 10_000;

/// Takes every run from a worker that is gone; says how many it had. Again is nothing.
pub fn worker_gone(change: &mut Change<'_, '_>, worker: &WorkerKey) -> Result<u64, StoreError> {
    worker_gone_with(change, worker, MAX_CLAIMS)
}

/// As `worker_gone`, with another limit; what is beyond it is tried again when its claim runs out.
pub fn worker_gone_with(
    change: &mut Change<'_, '_>,
    worker: &WorkerKey,
    max_claims: u32,
) -> Result<u64, StoreError> {
    let claims = store::claimed_tasks::list_of_worker(change.tx, worker, max_claims)?;
    let mut n_taken = 0;
    for (task_id, run_id) in claims {
        let Some(before) = store::tasks::get(change.tx, &task_id)? else {
            continue;
        };
        let gone = ExceptionReason::WorkerShutdown;
        if let Ok(moved) = before.clone().take_away(run_id, gone, change.now) {
            carry_out(change, &before, moved)?;
            n_taken += 1;
        }
    }
    Ok(n_taken)
}
