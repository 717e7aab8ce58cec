//! Workers that are not stopped, in groups as the planner counts them, read from an index only.

use domain::id::PoolId;
use domain::supply::Group;
use domain::time::Timestamp;

use crate::engine::{ALL_ROWS, BadRow, Result, Row, Table, Tx, statements};

/// Groups of workers have no key but the columns by which they are grouped.
static TABLE: Table = Table::unlisted("workers", 2);

statements! { TABLE;
    BETWEEN "worker_supply_between" =
        "SELECT worker_pool_id, COALESCE(launch_config_id, ''), state, draining, COUNT(*), \
         CAST(SUM(capacity) AS BIGINT) FROM workers \
         WHERE state <> 'stopped' AND worker_pool_id >= $1 AND worker_pool_id <= $2 \
         GROUP BY worker_pool_id, COALESCE(launch_config_id, ''), state, draining \
         ORDER BY 1, 2, 3, 4 LIMIT $3";
    // SQLite runs a CROSS JOIN in the order in which it is written: few workers are quarantined.
    QUARANTINED "worker_supply_quarantined_between" =
        "SELECT w.worker_pool_id, COALESCE(w.launch_config_id, ''), w.state, w.draining, COUNT(*), \
         CAST(SUM(w.capacity) AS BIGINT) FROM queue_workers AS q \
         CROSS JOIN workers AS w WHERE w.worker_pool_id = q.task_queue_id \
         AND w.worker_group = q.worker_group AND w.worker_id = q.worker_id \
         AND q.quarantine_until >= $1 AND w.state = 'running' \
         AND w.worker_pool_id >= $2 AND w.worker_pool_id <= $3 \
         GROUP BY w.worker_pool_id, COALESCE(w.launch_config_id, ''), w.state, w.draining \
         ORDER BY 1, 2, 3, 4 LIMIT $4";
    OVERDUE "worker_supply_overdue_between" =
        "SELECT worker_pool_id, COALESCE(launch_config_id, ''), state, draining, COUNT(*), \
         CAST(SUM(capacity) AS BIGINT) FROM workers \
         WHERE state = 'requested' AND worker_pool_id >= $1 AND worker_pool_id <= $2 \
         AND (created < $3 OR EXISTS (SELECT 1 FROM worker_pools AS p \
         WHERE p.worker_pool_id = workers.worker_pool_id AND p.provider_id <> workers.provider_id \
         AND REPLACE(p.further_provider_ids, '\"' || workers.provider_id || '\"', '') \
         = p.further_provider_ids) OR EXISTS (SELECT 1 FROM launch_configs AS c \
         WHERE c.worker_pool_id = workers.worker_pool_id \
         AND c.launch_config_id = workers.launch_config_id AND c.archived = 1)) \
         GROUP BY worker_pool_id, COALESCE(launch_config_id, ''), state, draining \
         ORDER BY 1, 2, 3, 4 LIMIT $4";
    ARCHIVED "worker_pools_with_archived_between" =
        "SELECT DISTINCT w.worker_pool_id FROM (\
         SELECT DISTINCT worker_pool_id, launch_config_id FROM workers \
         WHERE state <> 'stopped' AND state = 'running' AND launch_config_id IS NOT NULL \
         AND worker_pool_id >= $1 AND worker_pool_id <= $2) AS w \
         LEFT JOIN launch_configs AS c ON c.worker_pool_id = w.worker_pool_id \
         AND c.launch_config_id = w.launch_config_id WHERE COALESCE(c.archived, 1) = 1 \
         ORDER BY w.worker_pool_id LIMIT $3";
}

/// The workers that are not stopped, of all pools from the first to the last, ordered by pool and
/// launch config.
pub fn between(tx: &mut Tx<'_>, first: &PoolId, last: &PoolId) -> Result<Vec<Group>> {
    let values = [first.as_str().into(), last.as_str().into(), ALL_ROWS.into()];
    tx.rows(&BETWEEN, &values, group)
}

/// The running workers that are quarantined now.
pub fn quarantined_between(
    tx: &mut Tx<'_>,
    now: Timestamp,
    first: &PoolId,
    last: &PoolId,
) -> Result<Vec<Group>> {
    let values = [
        now.into(),
        first.as_str().into(),
        last.as_str().into(),
        ALL_ROWS.into(),
    ];
    tx.rows(&QUARANTINED, &values, group)
}

/// The unregistered workers that no longer count as supply: created before this moment, by a
/// provider that their pool has left, or from an archived launch config.
pub fn overdue_between(
    tx: &mut Tx<'_>,
    before: Timestamp,
    first: &PoolId,
    last: &PoolId,
) -> Result<Vec<Group>> {
    let values = [
        first.as_str().into(),
        last.as_str().into(),
        before.into(),
        ALL_ROWS.into(),
    ];
    tx.rows(&OVERDUE, &values, group)
}

/// The pools, from the first to the last, with running workers of an archived launch config.
pub fn pools_with_archived_between(
    tx: &mut Tx<'_>,
    first: &PoolId,
    last: &PoolId,
) -> Result<Vec<PoolId>> {
    let values = [first.as_str().into(), last.as_str().into(), ALL_ROWS.into()];
    tx.rows(&ARCHIVED, &values, |row| Ok(row.text(0)?.parse()?))
}

pub(crate) fn group(row: &Row<'_>) -> Result<Group, BadRow> {
    Ok(Group {
        pool_id: row.text(0)?.parse()?,
        launch_config_id: match row.text(1)? {
            "" => None,
            id => Some(id.parse()?),
        },
        state: row.text(2)?.parse()?,
        draining: row.integer(3)? != 0,
        count: row.number(4)?,
        capacity: row.number(5)?,
    })
}
