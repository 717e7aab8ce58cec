//! Workers that are not stopped, by what they are good for: the planner's view, from an index alone.

use domain::id::{PoolId, ProviderId, WorkerKey};
use domain::supply::Group;
use domain::time::Timestamp;
use domain::worker::Worker;

use crate::error::StoreError;
use crate::row::{BadRow, Row};
use crate::statement::{Table, statements};
use crate::tx::{ALL_ROWS, Tx};
use crate::worker::{columns, worker};

/// Groups of workers have no key but what they are grouped by.
static TABLE: Table = Table {
    name: "workers",
    key_columns: 2,
};

statements! { TABLE;
    BETWEEN "worker_supply_between" =
        "SELECT worker_pool_id, COALESCE(launch_config_id, ''), state, draining, COUNT(*), \
         CAST(SUM(capacity) AS BIGINT) FROM workers \
         WHERE state <> 'stopped' AND worker_pool_id >= $1 AND worker_pool_id <= $2 \
         GROUP BY worker_pool_id, COALESCE(launch_config_id, ''), state, draining \
         ORDER BY 1, 2, 3, 4 LIMIT $3";
    // A CROSS JOIN is carried out by SQLite in the order in which it is written: few are quarantined.
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
    MACHINES "worker_live_machines" =
        "SELECT COUNT(*) FROM workers WHERE provider_id = $1 AND state <> 'stopped'";
    STOPPING "worker_list_stopping" = concat!(
        "SELECT ", columns!(), " FROM workers WHERE state = 'stopping' AND provider_id = $1 \
         AND (worker_pool_id, worker_group, worker_id) > ($2, $3, $4) \
         ORDER BY worker_pool_id, worker_group, worker_id LIMIT $5");
    CHECKED "worker_note_checked" =
        "UPDATE workers SET last_checked = $1 WHERE provider_id = $2 AND state <> 'stopped' \
         AND worker_group = $3 AND (worker_pool_id, worker_id) >= ($4, $5) \
         AND (worker_pool_id, worker_id) <= ($6, $7) AND last_checked < $8";
}

/// Those of all pools from the first to the last that are not stopped, by pool and launch config.
pub fn worker_supply_between(
    tx: &mut Tx<'_>,
    first: &PoolId,
    last: &PoolId,
) -> Result<Vec<Group>, StoreError> {
    let values = [first.as_str().into(), last.as_str().into(), ALL_ROWS.into()];
    tx.rows(&BETWEEN, &values, group)
}

/// The running ones among them that are quarantined now.
pub fn worker_supply_quarantined_between(
    tx: &mut Tx<'_>,
    now: Timestamp,
    first: &PoolId,
    last: &PoolId,
) -> Result<Vec<Group>, StoreError> {
    let values = [
        now.into(),
        first.as_str().into(),
        last.as_str().into(),
        ALL_ROWS.into(),
    ];
    tx.rows(&QUARANTINED, &values, group)
}

/// Those that have not registered yet and that nobody counts on: made before this moment, by a provider that their
/// pool has left, or by an archived launch config.
pub fn worker_supply_overdue_between(
    tx: &mut Tx<'_>,
    before: Timestamp,
    first: &PoolId,
    last: &PoolId,
) -> Result<Vec<Group>, StoreError> {
    let values = [
        first.as_str().into(),
        last.as_str().into(),
        before.into(),
        ALL_ROWS.into(),
    ];
    tx.rows(&OVERDUE, &values, group)
}

/// Of the pools from the first to the last those with running workers of which the launch config is
/// archived.
pub fn worker_pools_with_archived_between(
    tx: &mut Tx<'_>,
    first: &PoolId,
    last: &PoolId,
) -> Result<Vec<PoolId>, StoreError> {
    let values = [first.as_str().into(), last.as_str().into(), ALL_ROWS.into()];
    tx.rows(&ARCHIVED, &values, |row| Ok(row.text(0)?.parse()?))
}

/// How many machines of a provider there are, in all pools.
pub fn worker_live_machines(tx: &mut Tx<'_>, provider_id: &ProviderId) -> Result<u64, StoreError> {
    let values = [provider_id.as_str().into()];
    Ok(tx
        .row(&MACHINES, &values, |row| row.number(0))?
        .unwrap_or(0))
}

/// The workers of a provider that were told to go and are not known to be gone, by key.
pub fn worker_list_stopping(
    tx: &mut Tx<'_>,
    provider_id: &ProviderId,
    after: Option<&WorkerKey>,
    limit: u32,
) -> Result<Vec<Worker>, StoreError> {
    let (pool_id, group, id) = after.map_or(("", "", ""), parts);
    let values = [
        provider_id.as_str().into(),
        pool_id.into(),
        group.into(),
        id.into(),
        limit.into(),
    ];
    tx.rows(&STOPPING, &values, worker)
}

/// Notes that a page of a provider's workers in one group was looked at. Rows noted since `unless_since` stay as they are;
/// no row's version changes.
pub fn worker_note_checked(
    tx: &mut Tx<'_>,
    provider_id: &ProviderId,
    first: &WorkerKey,
    last: &WorkerKey,
    now: Timestamp,
    unless_since: Timestamp,
) -> Result<u64, StoreError> {
    let (first, last) = (parts(first), parts(last));
    tx.execute(
        &CHECKED,
        &[
            now.into(),
            provider_id.as_str().into(),
            first.1.into(),
            first.0.into(),
            first.2.into(),
            last.0.into(),
            last.2.into(),
            unless_since.into(),
        ],
    )
}

fn parts(key: &WorkerKey) -> (&str, &str, &str) {
    (key.pool_id.as_str(), key.group.as_str(), key.id.as_str())
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
