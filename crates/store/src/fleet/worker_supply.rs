//! Workers that are not stopped, in groups as the planner counts them, read from an index only.

use domain::id::{LaunchConfigId, OfferingId, PoolId};
use domain::supply::Group;
use domain::time::Timestamp;
use domain::worker::WorkerState;

use crate::engine::{ALL_ROWS, BadRow, Cells, FromRow, Result, Table, Tx, from_row, statements};

/// Groups of workers have no key but the columns by which they are grouped.
static TABLE: Table = Table::unlisted("workers", 2);

/// Groups of the workers `w` of these rows.
macro_rules! groups {
    ($limit:literal, $($rows:tt)+) => {
        concat!(
            "SELECT w.worker_pool_id, COALESCE(w.launch_config_id, ''), w.state, w.draining, \
             COUNT(*), CAST(SUM(w.capacity) AS BIGINT)",
            $($rows)+,
            " GROUP BY w.worker_pool_id, w.state, w.launch_config_id, w.draining \
             ORDER BY 1, 2, 3, 4 LIMIT ",
            $limit
        )
    };
}
pub(crate) use groups;

statements! { TABLE;
    // The groups are those of the index, so they are counted in its order, without a sort. The
    // limits of the launch configs follow from the join, but PostgreSQL does not infer them: it
    // would read those of all pools.
    BETWEEN "worker_supply_between" =
        "SELECT g.worker_pool_id, COALESCE(g.launch_config_id, ''), g.state, g.draining, \
         g.workers, g.capacity, \
         CASE WHEN g.launch_config_id IS NULL OR c.hosts = 1 THEN 0 \
         ELSE COALESCE(c.archived, 1) END FROM (\
         SELECT worker_pool_id, launch_config_id, state, draining, COUNT(*) AS workers, \
         CAST(SUM(capacity) AS BIGINT) AS capacity FROM workers \
         WHERE state <> 'stopped' AND worker_pool_id >= $1 AND worker_pool_id <= $2 \
         GROUP BY worker_pool_id, state, launch_config_id, draining) AS g \
         LEFT JOIN launch_configs AS c ON c.worker_pool_id = g.worker_pool_id \
         AND c.launch_config_id = g.launch_config_id \
         AND c.worker_pool_id >= $1 AND c.worker_pool_id <= $2 ORDER BY 1, 2, 3, 4 LIMIT $3";
    // Few workers are quarantined, so they come first. SQLite keeps the order of a CROSS JOIN;
    // PostgreSQL begins with the table that has the limits.
    QUARANTINED "worker_supply_quarantined_between" = groups!("$4",
        " FROM queue_workers AS q CROSS JOIN workers AS w \
         WHERE w.worker_pool_id = q.task_queue_id \
         AND w.worker_group = q.worker_group AND w.worker_id = q.worker_id \
         AND q.quarantine_until >= $1 AND w.state = 'running' \
         AND q.task_queue_id >= $2 AND q.task_queue_id <= $3");
    // PostgreSQL may read pools and archived launch configs once for all workers, so they have
    // limits, too.
    OVERDUE "worker_supply_overdue_between" = groups!("$4",
        " FROM workers AS w \
         WHERE w.state = 'requested' AND w.worker_pool_id >= $1 AND w.worker_pool_id <= $2 \
         AND (w.created < $3 OR EXISTS (SELECT 1 FROM worker_pools AS p \
         WHERE p.worker_pool_id >= $1 AND p.worker_pool_id <= $2 \
         AND p.worker_pool_id = w.worker_pool_id AND p.provider_id <> w.provider_id \
         AND REPLACE(p.further_provider_ids, '\"' || w.provider_id || '\"', '') \
         = p.further_provider_ids) OR EXISTS (SELECT 1 FROM launch_configs AS c \
         WHERE c.worker_pool_id >= $1 AND c.worker_pool_id <= $2 \
         AND c.worker_pool_id = w.worker_pool_id \
         AND c.launch_config_id = w.launch_config_id AND c.archived = 1))");
    BY_OFFERING "worker_supply_by_offering" =
        "SELECT launch_config_id, offering, state, draining, COUNT(*), \
         CAST(SUM(capacity) AS BIGINT) FROM workers \
         WHERE worker_pool_id = $1 AND state IN ('requested', 'running') \
         AND launch_config_id IS NOT NULL AND offering IS NOT NULL \
         GROUP BY launch_config_id, offering, state, draining ORDER BY 1, 2, 3, 4 LIMIT $2";
    STARTING "worker_pools_with_starting_between" =
        "SELECT DISTINCT worker_pool_id FROM workers \
         WHERE state = 'requested' AND worker_pool_id >= $1 AND worker_pool_id <= $2 \
         AND created < $3 ORDER BY worker_pool_id LIMIT $4";
}

/// Workers of one launch config and offering that are requested or running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferingGroup {
    pub launch_config_id: LaunchConfigId,
    pub offering: OfferingId,
    pub state: WorkerState,
    pub draining: bool,
    pub count: u64,
    pub capacity: u64,
}

from_row! { OfferingGroup { launch_config_id, offering, state, draining, count, capacity } }

/// The requested and running workers of a pool whose offering is known. Reads all of them.
pub fn by_offering(tx: &mut Tx<'_>, pool_id: &PoolId) -> Result<Vec<OfferingGroup>> {
    tx.rows(&BY_OFFERING, (pool_id, ALL_ROWS))
}

/// The workers that are not stopped, of all pools from the first to the last, ordered by pool and
/// launch config, and whether this launch config is archived or deleted. Declared hosts of an
/// archived one get another, and need no decision.
pub fn between(tx: &mut Tx<'_>, first: &PoolId, last: &PoolId) -> Result<Vec<(Group, bool)>> {
    tx.rows(&BETWEEN, (first, last, ALL_ROWS))
}

/// The running workers that are quarantined now.
pub fn quarantined_between(
    tx: &mut Tx<'_>,
    now: Timestamp,
    first: &PoolId,
    last: &PoolId,
) -> Result<Vec<Group>> {
    tx.rows(&QUARANTINED, (now, first, last, ALL_ROWS))
}

/// The unregistered workers that no longer count as supply: created before this moment, by a
/// provider that their pool has left, or from an archived launch config.
pub fn overdue_between(
    tx: &mut Tx<'_>,
    before: Timestamp,
    first: &PoolId,
    last: &PoolId,
) -> Result<Vec<Group>> {
    tx.rows(&OVERDUE, (first, last, before, ALL_ROWS))
}

/// The pools, from the first to the last, with unregistered workers that were created before this
/// moment.
pub fn pools_with_starting_between(
    tx: &mut Tx<'_>,
    before: Timestamp,
    first: &PoolId,
    last: &PoolId,
) -> Result<Vec<PoolId>> {
    tx.rows(&STARTING, (first, last, before, ALL_ROWS))
}

impl FromRow for Group {
    fn read(cells: &mut Cells<'_, '_>) -> Result<Self, BadRow> {
        Ok(Self {
            pool_id: cells.next()?,
            launch_config_id: launch_config(cells)?,
            state: cells.next()?,
            draining: cells.next()?,
            count: cells.next()?,
            capacity: cells.next()?,
        })
    }
}

/// An empty text is no launch config.
pub(crate) fn launch_config(cells: &mut Cells<'_, '_>) -> Result<Option<LaunchConfigId>, BadRow> {
    let id: String = cells.next()?;
    Ok(if id.is_empty() {
        None
    } else {
        Some(id.parse()?)
    })
}
