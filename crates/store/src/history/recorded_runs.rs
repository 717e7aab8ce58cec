//! Recorded runs, in the order in which they ended.

use domain::recording::RecordedRun;
use domain::time::Timestamp;

use crate::engine::{Result, Table, Tx, from_row, statements};

static TABLE: Table = Table::unlisted("recorded_runs", 1);

macro_rules! run_columns {
    () => {
        "worker_pool_id, waiting_since, started, resolved, reason, priority"
    };
}

statements! { TABLE;
    INSERT "recorded_run_insert" = concat!(
        "INSERT INTO recorded_runs (", run_columns!(), ") VALUES ($1, $2, $3, $4, $5, $6)");
    // The first moment appears twice because the first condition bounds the search.
    LIST "recorded_run_list" = concat!(
        "SELECT sequence, ", run_columns!(), " FROM recorded_runs \
         WHERE (resolved, sequence) > ($1, $2) AND resolved < $3 \
         ORDER BY resolved, sequence LIMIT $4");
    OLDEST "recorded_run_oldest" =
        "SELECT resolved FROM recorded_runs ORDER BY resolved, sequence LIMIT 1";
    DELETE_BEFORE "recorded_run_delete_before" =
        "DELETE FROM recorded_runs WHERE sequence IN (SELECT sequence FROM recorded_runs \
         WHERE resolved < $1 ORDER BY resolved, sequence LIMIT $2)";
    FIRST_TOO_MANY "recorded_run_first_too_many" =
        "SELECT resolved, sequence FROM recorded_runs \
         ORDER BY resolved DESC, sequence DESC LIMIT 1 OFFSET $1";
    DELETE_TOO_MANY "recorded_run_delete_too_many" =
        "DELETE FROM recorded_runs WHERE sequence IN (SELECT sequence FROM recorded_runs \
         WHERE (resolved, sequence) <= ($1, $2) ORDER BY resolved, sequence LIMIT $3)";
}

from_row! { RecordedRun { pool_id, waiting_since, started, resolved, reason, priority } }

/// The place of a run in the list.
pub type RunPlace = (Timestamp, i64);

pub fn insert(tx: &mut Tx<'_>, runs: &[RecordedRun]) -> Result<()> {
    for run in runs {
        let times = (run.waiting_since, run.started, run.resolved);
        let values = (&run.pool_id, times, &run.reason, &run.priority);
        tx.run(&INSERT, values)?;
    }
    Ok(())
}

/// The runs after this place that ended before this moment, each with its place.
pub fn list(
    tx: &mut Tx<'_>,
    after: RunPlace,
    until: Timestamp,
    limit: u32,
) -> Result<Vec<(RunPlace, RecordedRun)>> {
    let rows: Vec<(i64, RecordedRun)> = tx.rows(&LIST, (after, until, limit))?;
    let rows = rows.into_iter();
    Ok(rows
        .map(|(sequence, run)| ((run.resolved, sequence), run))
        .collect())
}

/// When the oldest run ended.
pub fn oldest(tx: &mut Tx<'_>) -> Result<Option<Timestamp>> {
    tx.row(&OLDEST, ())
}

/// Call it again while it returns the limit.
pub fn delete_before(tx: &mut Tx<'_>, before: Timestamp, limit: u32) -> Result<u64> {
    tx.execute(&DELETE_BEFORE, (before, limit))
}

/// The newest run beyond the `kept` newest ones. This passes over them, so do it outside of the
/// transaction that deletes.
pub fn find_excess(tx: &mut Tx<'_>, kept: u32) -> Result<Option<RunPlace>> {
    tx.row(&FIRST_TOO_MANY, kept)
}

/// Deletes this run and older ones, the oldest first. Call it again while it returns the limit.
pub fn delete_until(tx: &mut Tx<'_>, last: RunPlace, limit: u32) -> Result<u64> {
    tx.execute(&DELETE_TOO_MANY, (last, limit))
}
