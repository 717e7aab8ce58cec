//! A worker is gone: what it had claimed is tried again elsewhere.

use domain::id::WorkerKey;
use domain::task::ExceptionReason;
use domain::time::Timestamp;
use store::{StoreError, Tx};

use super::moves::{Hints, carry_out};
use crate::app::App;

/// A worker holds no more runs than this: it claims 32 at a time, and gives them back one by one.
const MAX_CLAIMS: u32 = 10_000;

/// Takes every run from a worker that is gone; says how many it had. Again is nothing.
///
/// Whoever calls this rings `wake.pool` after the commit; waiting workers are woken by the events.
pub fn worker_gone(
    app: &App,
    tx: &mut Tx<'_>,
    worker: &WorkerKey,
    now: Timestamp,
) -> Result<u64, StoreError> {
    worker_gone_with(app, tx, worker, now, MAX_CLAIMS)
}

/// As `worker_gone`, with another limit; what is beyond it is tried again when its claim runs out.
pub fn worker_gone_with(
    app: &App,
    tx: &mut Tx<'_>,
    worker: &WorkerKey,
    now: Timestamp,
    max_claims: u32,
) -> Result<u64, StoreError> {
    let mut hints = Hints::default();
    let claims = store::task_list_claims_of_worker(tx, worker, max_claims)?;
    let mut n_taken = 0;
    for (task_id, run_id) in claims {
        let Some(before) = store::task_get(tx, &task_id)? else {
            continue;
        };
        let gone = ExceptionReason::WorkerShutdown;
        if let Ok(moved) = before.clone().take_away(run_id, gone, now) {
            carry_out(app, tx, &before, moved, now, &mut hints)?;
            n_taken += 1;
        }
    }
    Ok(n_taken)
}
