//! Times without a record, because no server worked.

use domain::recording::RecordedGap;
use domain::time::Timestamp;

use crate::engine::{Result, Table, Tx, from_row, statements};

static TABLE: Table = Table::unlisted("recorded_gaps", 1);

statements! { TABLE;
    INSERT "recorded_gap_insert" = "INSERT INTO recorded_gaps (since, until) VALUES ($1, $2)";
    LIST "recorded_gap_list" =
        "SELECT sequence, since, until FROM recorded_gaps \
         WHERE (until, sequence) > ($1, $2) AND since < $3 ORDER BY until, sequence LIMIT $4";
    DELETE_BEFORE "recorded_gap_delete_before" =
        "DELETE FROM recorded_gaps WHERE sequence IN (SELECT sequence FROM recorded_gaps \
         WHERE until < $1 ORDER BY until, sequence LIMIT $2)";
}

from_row! { RecordedGap { since, until } }

/// The place of a gap in the list.
pub type GapPlace = (Timestamp, i64);

pub fn insert(tx: &mut Tx<'_>, gap: &RecordedGap) -> Result<()> {
    tx.run(&INSERT, (gap.since, gap.until))
}

/// The gaps after this place that began before this moment, each with its place.
pub fn list(
    tx: &mut Tx<'_>,
    after: GapPlace,
    until: Timestamp,
    limit: u32,
) -> Result<Vec<(GapPlace, RecordedGap)>> {
    let rows: Vec<(i64, RecordedGap)> = tx.rows(&LIST, (after, until, limit))?;
    let rows = rows.into_iter();
    Ok(rows
        .map(|(sequence, gap)| ((gap.until, sequence), gap))
        .collect())
}

/// Call it again while it returns the limit.
pub fn delete_before(tx: &mut Tx<'_>, before: Timestamp, limit: u32) -> Result<u64> {
    tx.execute(&DELETE_BEFORE, (before, limit))
}
