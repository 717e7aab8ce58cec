//! The causes for which the tasks of pools wait: the present ones, and their timelines.

use domain::id::PoolId;
use domain::time::Timestamp;
use domain::waits::{Boundary, WaitCause};

use crate::engine::{ALL_ROWS, Result, Table, Tx, from_row, statements, to_json};

static TABLE: Table = Table::unlisted("pool_waits", 1);

statements! { TABLE;
    BETWEEN "pool_wait_between" =
        "SELECT worker_pool_id, cause FROM pool_waits \
         WHERE worker_pool_id >= $1 AND worker_pool_id <= $2 ORDER BY worker_pool_id LIMIT $3";
    ALL "pool_wait_list" =
        "SELECT worker_pool_id, since, cause FROM pool_waits ORDER BY worker_pool_id LIMIT $1";
    GET "pool_wait_get" = "SELECT since, cause FROM pool_waits WHERE worker_pool_id = $1";
    // A clock that was set back does not change the past.
    SET "pool_wait_set" =
        "INSERT INTO pool_waits (worker_pool_id, since, cause) \
         SELECT v.value ->> 0, CAST(v.value ->> 1 AS BIGINT), v.value ->> 2 \
         FROM json_each($1) AS v WHERE 1 = 1 ON CONFLICT (worker_pool_id) DO UPDATE SET \
         since = CASE WHEN excluded.since > pool_waits.since THEN excluded.since \
         ELSE pool_waits.since END, cause = excluded.cause";
    ADD "wait_boundary_add" =
        "INSERT INTO wait_boundaries (worker_pool_id, since, cause) \
         SELECT p.worker_pool_id, p.since, p.cause FROM json_each($1) AS v \
         CROSS JOIN pool_waits AS p WHERE p.worker_pool_id = v.value ->> 0 \
         ON CONFLICT (worker_pool_id, since) DO UPDATE SET cause = excluded.cause";
    // The last boundary before the first moment, and all later ones.
    TIMELINES "wait_boundary_list" =
        "SELECT b.worker_pool_id, b.since, b.cause \
         FROM json_each($1) AS v CROSS JOIN wait_boundaries AS b \
         WHERE b.worker_pool_id = v.value ->> 0 AND b.since >= COALESCE((\
         SELECT MAX(o.since) FROM wait_boundaries AS o WHERE o.worker_pool_id = v.value ->> 0 \
         AND o.since <= CAST(v.value ->> 1 AS BIGINT)), 0) \
         ORDER BY b.worker_pool_id, b.since LIMIT $2";
    FORGET "wait_boundary_forget" =
        "DELETE FROM wait_boundaries WHERE (worker_pool_id, since) IN (\
         SELECT b.worker_pool_id, b.since FROM wait_boundaries AS b WHERE b.since < $1 \
         AND EXISTS (SELECT 1 FROM wait_boundaries AS n WHERE n.worker_pool_id = b.worker_pool_id \
         AND n.since > b.since AND n.since <= $1) ORDER BY b.since LIMIT $2)";
    CROWDED "wait_boundary_crowded" =
        "SELECT worker_pool_id FROM wait_boundaries GROUP BY worker_pool_id \
         HAVING COUNT(*) > $1 ORDER BY worker_pool_id LIMIT $2";
    TRIM "wait_boundary_trim" =
        "DELETE FROM wait_boundaries WHERE worker_pool_id = $1 AND since < (\
         SELECT since FROM wait_boundaries WHERE worker_pool_id = $1 \
         ORDER BY since DESC LIMIT 1 OFFSET $2)";
    DELETE_ORPHANS "pool_wait_delete_orphans" =
        "DELETE FROM pool_waits WHERE worker_pool_id IN (SELECT w.worker_pool_id \
         FROM pool_waits AS w WHERE w.since < $1 AND NOT EXISTS (SELECT 1 FROM worker_pools AS p \
         WHERE p.worker_pool_id = w.worker_pool_id) ORDER BY w.worker_pool_id LIMIT $2)";
    DELETE_ORPHANED_BOUNDARIES "wait_boundary_delete_orphans" =
        "DELETE FROM wait_boundaries WHERE (worker_pool_id, since) IN (\
         SELECT b.worker_pool_id, b.since FROM wait_boundaries AS b WHERE b.since < $1 \
         AND NOT EXISTS (SELECT 1 FROM pool_waits AS w \
         WHERE w.worker_pool_id = b.worker_pool_id) ORDER BY b.since LIMIT $2)";
}

from_row! { Boundary { at, cause } }

/// The present causes of all pools from the first to the last, in the order of their ids.
pub fn between(tx: &mut Tx<'_>, first: &PoolId, last: &PoolId) -> Result<Vec<(PoolId, WaitCause)>> {
    tx.rows(&BETWEEN, (first, last, ALL_ROWS))
}

/// The present causes of all pools, and since when each holds.
pub fn all(tx: &mut Tx<'_>) -> Result<Vec<(PoolId, Boundary)>> {
    tx.rows(&ALL, ALL_ROWS)
}

/// The present cause of a pool, and since when it holds.
pub fn get(tx: &mut Tx<'_>, pool_id: &PoolId) -> Result<Option<Boundary>> {
    tx.row(&GET, pool_id)
}

/// From this moment on, the tasks of these pools wait for these causes.
pub fn note(tx: &mut Tx<'_>, causes: &[(PoolId, WaitCause)], now: Timestamp) -> Result<()> {
    if causes.is_empty() {
        return Ok(());
    }
    let rows = causes.iter();
    let rows: Vec<(&str, i64, &str)> = rows
        .map(|(id, cause)| (id.as_str(), now.as_millis(), cause.as_str()))
        .collect();
    let rows = to_json(&rows);
    tx.run(&SET, &rows)?;
    tx.run(&ADD, &rows)
}

/// The boundaries of these pools that concern waits since these moments, by pool and time.
pub fn timelines(
    tx: &mut Tx<'_>,
    pools: &[(PoolId, Timestamp)],
) -> Result<Vec<(PoolId, Boundary)>> {
    let rows = pools.iter();
    let rows: Vec<(&str, i64)> = rows
        .map(|(id, since)| (id.as_str(), since.as_millis()))
        .collect();
    tx.rows(&TIMELINES, (&to_json(&rows), ALL_ROWS))
}

/// Deletes boundaries that do not concern any wait since this moment. Call it again while it
/// returns the limit.
pub fn forget_before(tx: &mut Tx<'_>, before: Timestamp, limit: u32) -> Result<u64> {
    tx.execute(&FORGET, (before, limit))
}

/// Deletes what is known of pools that did not exist at this moment and do not exist now: without
/// it, tasks wait for a pool that is not known, which is the cause. Call it again while it returns
/// the limit.
pub fn forget_orphans(tx: &mut Tx<'_>, before: Timestamp, limit: u32) -> Result<u64> {
    let pools = tx.execute(&DELETE_ORPHANS, (before, limit))?;
    let boundaries = tx.execute(&DELETE_ORPHANED_BOUNDARIES, (before, limit))?;
    Ok(pools.max(boundaries))
}

/// The pools that have more boundaries than this number, at most `limit`. This counts all
/// boundaries, so do it outside of the transaction that deletes them.
pub fn list_crowded(tx: &mut Tx<'_>, kept: u32, limit: u32) -> Result<Vec<PoolId>> {
    tx.rows(&CROWDED, (kept, limit))
}

/// Deletes the oldest boundaries of these pools beyond this number.
pub fn trim(tx: &mut Tx<'_>, pools: &[PoolId], kept: u32) -> Result<()> {
    let trim = |pool_id| tx.run(&TRIM, (pool_id, kept.saturating_sub(1)));
    pools.iter().try_for_each(trim)
}
