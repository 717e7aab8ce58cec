//! Workers that people select across pools: those of a pool, a launch config, a worker
//! configuration or a provider. Stopped workers are left out.

use domain::counts::Counts;
use domain::id::{LaunchConfigId, PoolId, ProviderId, WorkerGroup, WorkerKey};
use domain::time::Timestamp;
use domain::worker::Worker;
use domain::worker_selection::WorkerSelection;

use crate::engine::{ALL_ROWS, Result, Tx, statements};
use crate::fleet::worker_counts::{StateGroup, collect};
use crate::fleet::workers;

// An empty text means no filter, since ids are never empty. The sum and the function keep
// PostgreSQL from indexes over all pools: on times, and on workers that are not stopped.
macro_rules! selected {
    () => {
        "FROM workers WHERE worker_pool_id = $1 AND COALESCE(state, '') <> 'stopped' AND created + 0 <= $2 \
         AND ($3 = '' OR launch_config_id = $3) AND ($4 = '' OR provider_id = $4) \
         AND ($5 = '' OR worker_group = $5) "
    };
}

statements! { workers::TABLE;
    LIST "selected_worker_list" = concat!("SELECT {columns} ", selected!(),
        "AND (worker_group, worker_id) > ($6, $7) ORDER BY worker_group, worker_id LIMIT $8");
    COUNT "selected_worker_count" = concat!(
        "SELECT '', state, COUNT(*), CAST(SUM(capacity) AS BIGINT) ", selected!(),
        "GROUP BY state ORDER BY state LIMIT $6");
    POOLS_OF_CONFIGURATION "selected_worker_pools_of_configuration" =
        "SELECT worker_pool_id FROM worker_types \
         WHERE worker_configuration_id = $1 AND worker_pool_id >= $2 \
         ORDER BY worker_pool_id LIMIT $3";
    POOLS_OF_PROVIDER "selected_worker_pools_of_provider" =
        "SELECT DISTINCT worker_pool_id FROM workers WHERE provider_id = $1 \
         AND state <> 'stopped' AND ($2 = '' OR worker_group = $2) AND worker_pool_id >= $3 \
         ORDER BY worker_pool_id LIMIT $4";
}

/// The pools of a selection from this one on, ordered by id. Those of a provider have workers.
pub fn pools(
    tx: &mut Tx<'_>,
    selection: &WorkerSelection,
    from: &str,
    limit: u32,
) -> Result<Vec<PoolId>> {
    match selection {
        WorkerSelection::Pool(id) | WorkerSelection::LaunchConfig(id, _) => {
            let only = Some(id).filter(|id| id.as_str() >= from);
            Ok(only.cloned().into_iter().collect())
        }
        WorkerSelection::Configuration(id) => tx.rows(&POOLS_OF_CONFIGURATION, (id, from, limit)),
        WorkerSelection::Provider(id, region) => {
            let region = region.as_ref().map_or("", WorkerGroup::as_str);
            tx.rows(&POOLS_OF_PROVIDER, (id, region, from, limit))
        }
    }
}

/// The selected workers of one pool that were made until this moment, ordered by group and id.
pub fn list(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    selection: &WorkerSelection,
    until: Timestamp,
    after: Option<&WorkerKey>,
    limit: u32,
) -> Result<Vec<Worker>> {
    let after = after.map_or(("", ""), |key| (key.group.as_str(), key.id.as_str()));
    tx.rows(&LIST, (pool_id, until, filters(selection), after, limit))
}

/// The selected workers of one pool that were made until this moment, by state.
pub fn count(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    selection: &WorkerSelection,
    until: Timestamp,
) -> Result<Counts> {
    let groups: Vec<(String, StateGroup)> =
        tx.rows(&COUNT, (pool_id, until, filters(selection), ALL_ROWS))?;
    let counts = collect(groups).pop();
    Ok(counts.map(|(_, counts)| counts).unwrap_or_default())
}

fn filters(selection: &WorkerSelection) -> (&str, &str, &str) {
    (
        selection
            .launch_config_id()
            .map_or("", LaunchConfigId::as_str),
        selection.provider_id().map_or("", ProviderId::as_str),
        selection.region().map_or("", WorkerGroup::as_str),
    )
}
