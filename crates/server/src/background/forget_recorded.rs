//! Deletes the part of the recorded history that is old or exceeds the limits.

use domain::time::{DAY_MS, Timestamp};
use store::{StoreError, Tx, recorded_gaps, recorded_runs, recorded_workers};

use super::deletions::{DeletionTally, Deletions};
use crate::app::App;

/// Finds the newest of the rows beyond a number of kept rows.
type Find<P> = fn(&mut Tx<'_>, u32) -> Result<Option<P>, StoreError>;
/// Deletes rows until this one, at most as many as the limit.
type Delete<P> = fn(&mut Tx<'_>, P, u32) -> Result<u64, StoreError>;

/// Each kind by itself. `deletions` limits each of them.
pub(super) async fn forget_recorded(
    app: &App,
    now: Timestamp,
    deletions: Deletions,
    tally: &mut DeletionTally,
) {
    let (store, fleet) = (&app.engine.store, &app.config.fleet);
    let before = now.plus_millis(-i64::from(fleet.recording_days) * DAY_MS);
    let delete = |name, delete| deletions.delete(store, name, before, delete);
    let runs = delete("recorded_run_expire", recorded_runs::delete_before);
    tally.add("recorded", runs.await);
    let workers = delete("recorded_worker_expire", recorded_workers::delete_before);
    tally.add("recorded", workers.await);
    let gaps = delete("recorded_gap_expire", recorded_gaps::delete_before);
    tally.add("recorded", gaps.await);
    let names = ("recorded_run_look", "recorded_run_trim");
    let (find, delete): (Find<_>, Delete<_>) =
        (recorded_runs::find_excess, recorded_runs::delete_until);
    let runs = trim(app, deletions, names, find, delete);
    tally.add("recorded", runs.await);
    let names = ("recorded_worker_look", "recorded_worker_trim");
    let (find, delete): (Find<_>, Delete<_>) = (
        recorded_workers::find_excess,
        recorded_workers::delete_until,
    );
    let workers = trim(app, deletions, names, find, delete);
    tally.add("recorded", workers.await);
}

/// Deletes the oldest rows beyond the number that is kept. The writer does not wait for the look.
async fn trim<P: Copy + Send + 'static>(
    app: &App,
    deletions: Deletions,
    (look, trim): (&'static str, &'static str),
    find: Find<P>,
    delete: Delete<P>,
) -> Result<u64, StoreError> {
    let (store, kept) = (&app.engine.store, app.config.fleet.recorded_runs);
    let Some(last) = store.survey(look, move |tx| find(tx, kept)).await? else {
        return Ok(0);
    };
    let deletion = move |tx: &mut Tx<'_>| delete(tx, last, deletions.size());
    let batch = |()| async { Ok((store.write(trim, deletion).await?, ())) };
    deletions.delete_from((), batch).await
}
