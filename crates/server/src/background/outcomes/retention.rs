//! Deletes outcomes of runs that are old or exceed the limits.

use domain::id::PoolId;
use domain::run_outcome::Window;
use domain::time::{DAY_MS, Timestamp};
use store::StoreError;
use store::kept_runs::{self, Excess, KeptRuns, Trimmed};

use super::super::deletions::Deletions;
use crate::app::App;

/// Runs of a worker that are kept, among those of its pool.
const KEPT_OF_WORKER: u32 = 20;
/// Maximum age of outcomes.
const KEPT_DAYS: i64 = 14;

/// Returns how many outcomes were deleted. `deletions` limits those of each pool.
pub(in super::super) async fn forget(
    app: &App,
    now: Timestamp,
    deletions: Deletions,
) -> Result<u64, StoreError> {
    let kept = KeptRuns {
        of_pool: app.config.fleet.kept_task_runs,
        of_worker: KEPT_OF_WORKER,
        since: now.plus_millis(-KEPT_DAYS * DAY_MS),
    };
    let mut n_gone = 0;
    let mut last: Option<PoolId> = None;
    // Pools are read in the order of their names, so this ends.
    while let Some(pool_id) = next_pool(app, last).await? {
        n_gone += trim(app, &pool_id, kept, deletions).await?;
        last = Some(pool_id);
    }
    Ok(n_gone)
}

/// Counts are kept as long as the longest window. Returns how many were deleted.
pub(in super::super) async fn forget_run_counts(
    app: &App,
    now: Timestamp,
    deletions: Deletions,
) -> Result<u64, StoreError> {
    let [.., longest] = Window::ALL;
    let (store, before) = (&app.engine.store, longest.since(now));
    let delete = store::run_counts::delete_before;
    let deleted = deletions.delete(store, "run_count_expire", before, delete);
    deleted.await
}

/// Most pools have nothing to delete, and the writer does not wait for the look. A look reads all
/// outcomes of the pool, so one serves all batches; the next activation looks again.
async fn trim(
    app: &App,
    pool_id: &PoolId,
    kept: KeptRuns,
    deletions: Deletions,
) -> Result<u64, StoreError> {
    let (store, pool, size) = (&app.engine.store, pool_id.clone(), deletions.size());
    // A worker may have a single one too many: these are enough for several batches.
    let n_workers = size.saturating_mul(KEPT_OF_WORKER);
    let look = store.survey("run_outcome_look", move |tx| {
        kept_runs::find_excess(tx, &pool, kept, n_workers)
    });
    let Some(excess) = look.await? else {
        return Ok(0);
    };
    let trim = |excess: Excess| {
        let pool = pool_id.clone();
        async {
            let trimmed = store.write("run_outcome_trim", move |tx| {
                kept_runs::trim(tx, &pool, kept, &excess, size)
            });
            let Trimmed { n_deleted, rest } = trimmed.await?;
            Ok((n_deleted, rest))
        }
    };
    deletions.delete_from(excess, trim).await
}

async fn next_pool(app: &App, after: Option<PoolId>) -> Result<Option<PoolId>, StoreError> {
    let next = app.engine.store.read("run_outcome_next_pool", move |tx| {
        kept_runs::next_pool(tx, after.as_ref())
    });
    next.await
}
