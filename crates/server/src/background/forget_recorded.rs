//! Deletes the part of the recorded history that is old or exceeds the limits.

use domain::time::{DAY_MS, Timestamp};
use store::{StoreError, Tx, recorded_gaps, recorded_runs, recorded_workers};

use super::batches::Batches;
use crate::app::App;

/// Deletes the oldest rows beyond a number of kept rows, at most as many as the limit.
type DeleteExcess = fn(&mut Tx<'_>, u32, u32) -> Result<u64, StoreError>;

/// Returns how many rows were deleted. `batches` limits the deletions of each kind.
pub(super) async fn forget_recorded(
    app: &App,
    now: Timestamp,
    batches: Batches,
) -> Result<u64, StoreError> {
    let (store, fleet) = (&app.engine.store, &app.config.fleet);
    let before = now.plus_millis(-i64::from(fleet.recording_days) * DAY_MS);
    let delete = |name, delete| batches.delete(store, name, before, delete);
    let kept = fleet.recorded_runs;
    let delete_excess = |name: &'static str, delete: DeleteExcess| {
        let deletion = move |tx: &mut Tx<'_>| delete(tx, kept, batches.size);
        batches.repeat(move || store.write(name, deletion))
    };
    let mut n_deleted = 0;
    n_deleted += delete("recorded_run_expire", recorded_runs::delete_before).await?;
    n_deleted += delete("recorded_worker_expire", recorded_workers::delete_before).await?;
    n_deleted += delete("recorded_gap_expire", recorded_gaps::delete_before).await?;
    n_deleted += delete_excess("recorded_run_trim", recorded_runs::delete_excess).await?;
    n_deleted += delete_excess("recorded_worker_trim", recorded_workers::delete_excess).await?;
    Ok(n_deleted)
}
