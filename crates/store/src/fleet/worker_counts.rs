//! Number and capacity of workers by state, read from an index only.

use domain::counts::{Counts, StateCount};
use domain::id::{LaunchConfigId, PoolId, ProviderId, WorkerGroup};
use domain::worker::WorkerState;

use crate::engine::{ALL_ROWS, Cells, Result, Table, Tx, from_row, statements};
use crate::fleet::worker_supply::launch_config;

/// Groups of workers have no key but the columns by which they are grouped.
static TABLE: Table = Table::unlisted("workers", 2);

statements! { TABLE;
    BETWEEN "worker_counts_between" =
        "SELECT worker_pool_id, state, COUNT(*), CAST(SUM(capacity) AS BIGINT) FROM workers \
         WHERE worker_pool_id >= $1 AND worker_pool_id <= $2 \
         GROUP BY worker_pool_id, state ORDER BY worker_pool_id, state LIMIT $3";
    BY_PROVIDER "worker_counts_by_provider_between" =
        "SELECT worker_pool_id, provider_id, state, COUNT(*), CAST(SUM(capacity) AS BIGINT) \
         FROM workers WHERE state <> 'stopped' AND worker_pool_id >= $1 AND worker_pool_id <= $2 \
         GROUP BY worker_pool_id, provider_id, state ORDER BY worker_pool_id, provider_id, state \
         LIMIT $3";
    BY_GROUP "worker_counts_by_group_between" =
        "SELECT worker_pool_id, provider_id, worker_group, state, COUNT(*), \
         CAST(SUM(capacity) AS BIGINT) FROM workers \
         WHERE state <> 'stopped' AND worker_pool_id >= $1 AND worker_pool_id <= $2 \
         GROUP BY worker_pool_id, provider_id, worker_group, state \
         ORDER BY worker_pool_id, provider_id, worker_group, state LIMIT $3";
    DRAINING "worker_counts_draining_between" =
        "SELECT w.worker_pool_id, w.provider_id, COALESCE(c.archived, 0), COUNT(*) \
         FROM workers AS w LEFT JOIN launch_configs AS c \
         ON c.worker_pool_id = w.worker_pool_id AND c.launch_config_id = w.launch_config_id \
         AND c.worker_pool_id >= $1 AND c.worker_pool_id <= $2 \
         WHERE w.draining = 1 AND w.state = 'running' \
         AND w.worker_pool_id >= $1 AND w.worker_pool_id <= $2 \
         GROUP BY w.worker_pool_id, w.provider_id, COALESCE(c.archived, 0) \
         ORDER BY 1, 2, 3 LIMIT $3";
    BY_LAUNCH_CONFIG "worker_counts_by_launch_config" =
        "SELECT COALESCE(launch_config_id, ''), state, COUNT(*), CAST(SUM(capacity) AS BIGINT) \
         FROM workers WHERE worker_pool_id = $1 GROUP BY state, launch_config_id \
         ORDER BY 1, 2 LIMIT $2";
    BY_STATE "worker_count_by_state" =
        "SELECT '', state, COUNT(*), CAST(SUM(capacity) AS BIGINT) FROM workers \
         GROUP BY state ORDER BY state LIMIT $1";
}

pub type PoolAndProvider = (PoolId, ProviderId);
pub type PoolProviderAndGroup = (PoolId, ProviderId, WorkerGroup);

/// Running workers that were asked to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draining {
    pub pool: PoolId,
    pub provider: ProviderId,
    /// Whether the pool does not use their launch config any more.
    pub is_archived: bool,
    pub count: u64,
}

from_row! { Draining { pool, provider, is_archived, count } }

/// The workers of one pool.
pub fn of_pool(tx: &mut Tx<'_>, pool_id: &PoolId) -> Result<Counts> {
    let counts = between(tx, pool_id, pool_id)?.pop();
    Ok(counts.map(|(_, counts)| counts).unwrap_or_default())
}

/// The workers of all pools from the first to the last, ordered by pool. Pools without workers are
/// absent.
pub fn between(tx: &mut Tx<'_>, first: &PoolId, last: &PoolId) -> Result<Vec<(PoolId, Counts)>> {
    tx.rows(&BETWEEN, (first, last, ALL_ROWS)).map(collect)
}

/// The workers that are not stopped, of all pools from the first to the last, ordered by pool and
/// provider.
pub fn by_provider_between(
    tx: &mut Tx<'_>,
    first: &PoolId,
    last: &PoolId,
) -> Result<Vec<(PoolAndProvider, Counts)>> {
    tx.rows(&BY_PROVIDER, (first, last, ALL_ROWS)).map(collect)
}

/// As `by_provider_between`, by worker group as well. It reads the rows.
pub fn by_group_between(
    tx: &mut Tx<'_>,
    first: &PoolId,
    last: &PoolId,
) -> Result<Vec<(PoolProviderAndGroup, Counts)>> {
    tx.rows(&BY_GROUP, (first, last, ALL_ROWS)).map(collect)
}

/// Those of these pools that were asked to stop. Pools without any are absent.
pub fn draining_between(tx: &mut Tx<'_>, first: &PoolId, last: &PoolId) -> Result<Vec<Draining>> {
    tx.rows(&DRAINING, (first, last, ALL_ROWS))
}

/// The workers of a pool by launch config; workers without one come first.
pub fn by_launch_config(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
) -> Result<Vec<(Option<LaunchConfigId>, Counts)>> {
    let groups = tx.rows_with(&BY_LAUNCH_CONFIG, (pool_id, ALL_ROWS), |row| {
        let mut cells = Cells::of(row);
        Ok((launch_config(&mut cells)?, cells.next()?))
    });
    groups.map(collect)
}

/// The workers of all pools together.
pub fn by_state(tx: &mut Tx<'_>) -> Result<Counts> {
    let counts = collect::<String>(tx.rows(&BY_STATE, ALL_ROWS)?).pop();
    Ok(counts.map(|(_, counts)| counts).unwrap_or_default())
}

/// The workers in one state.
pub(crate) struct StateGroup {
    state: WorkerState,
    tally: StateCount,
}

from_row! { StateGroup { state, tally } }
from_row! { StateCount { count, capacity } }

/// The database sorted by key, so the states of one key are neighbours.
pub(crate) fn collect<K: PartialEq>(groups: Vec<(K, StateGroup)>) -> Vec<(K, Counts)> {
    let mut collected: Vec<(K, Counts)> = Vec::new();
    for (key, StateGroup { state, tally }) in groups {
        if collected.last().is_none_or(|(last, _)| *last != key) {
            collected.push((key, Counts::default()));
        }
        if let Some((_, counts)) = collected.last_mut() {
            *counts.of(state) = tally;
        }
    }
    collected
}
