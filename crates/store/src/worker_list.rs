//! Workers, many at a time: newest first for people, by key for the scan.

use domain::id::{LaunchConfigId, PoolId, ProviderId, WorkerGroup, WorkerId, WorkerKey};
use domain::time::Timestamp;
use domain::worker::{Worker, WorkerState};

use crate::error::StoreError;
use crate::statement::{AFTER_ALL, statements};
use crate::tx::{ALL_ROWS, Tx};
use crate::worker::{TABLE, columns, worker};

// An absent filter is an empty text: no id and no state is empty.
statements! { TABLE;
    LIST "worker_list" = concat!(
        "SELECT ", columns!(), " FROM workers WHERE worker_pool_id = $1 \
         AND (created, worker_group, worker_id) < ($2, $3, $4) \
         AND ($5 = '' OR state = $5) AND ($6 = '' OR launch_config_id = $6) \
         ORDER BY created DESC, worker_group DESC, worker_id DESC LIMIT $7");
    LIST_IN_GROUP "worker_list_in_group" = concat!(
        "SELECT ", columns!(), " FROM workers WHERE worker_pool_id = $1 AND worker_group = $2 \
         AND (created, worker_id) < ($3, $4) \
         AND ($5 = '' OR state = $5) AND ($6 = '' OR launch_config_id = $6) \
         ORDER BY created DESC, worker_id DESC LIMIT $7");
    LIST_LIVE "worker_list_live" = concat!(
        "SELECT ", columns!(), " FROM workers WHERE provider_id = $1 AND state <> 'stopped' \
         AND worker_group = $2 AND (worker_pool_id, worker_id) > ($3, $4) \
         ORDER BY worker_pool_id, worker_id LIMIT $5");
    NEXT_GROUP "worker_next_live_group" =
        "SELECT worker_group FROM workers WHERE provider_id = $1 AND state <> 'stopped' \
         AND worker_group > $2 ORDER BY worker_group LIMIT 1";
    LIVE_PROVIDERS "worker_live_providers" =
        "SELECT DISTINCT provider_id FROM workers WHERE worker_pool_id = $1 \
         AND state <> 'stopped' ORDER BY provider_id LIMIT $2";
}

/// Which workers of a pool to list; all if nothing is given.
#[derive(Clone, Debug, Default)]
pub struct WorkerFilter {
    pub group: Option<WorkerGroup>,
    pub state: Option<WorkerState>,
    pub launch_config_id: Option<LaunchConfigId>,
}

/// The last worker of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerCursor {
    pub created: Timestamp,
    pub group: WorkerGroup,
    pub id: WorkerId,
}

impl From<&Worker> for WorkerCursor {
    fn from(worker: &Worker) -> Self {
        Self {
            created: worker.created,
            group: worker.key.group.clone(),
            id: worker.key.id.clone(),
        }
    }
}

/// Newest first, whatever their state unless the filter says.
pub fn worker_list(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    filter: &WorkerFilter,
    after: Option<&WorkerCursor>,
    limit: u32,
) -> Result<Vec<Worker>, StoreError> {
    let state = filter.state.map_or("", WorkerState::as_str);
    let launch_config = filter
        .launch_config_id
        .as_ref()
        .map_or("", LaunchConfigId::as_str);
    let (created, group, id) = match after {
        Some(cursor) => (
            cursor.created.as_millis(),
            cursor.group.as_str(),
            cursor.id.as_str(),
        ),
        None => (i64::MAX, AFTER_ALL, AFTER_ALL),
    };
    let pool_id = pool_id.as_str().into();
    let (statement, values) = match &filter.group {
        Some(only) => (
            &LIST_IN_GROUP,
            [
                pool_id,
                only.as_str().into(),
                created.into(),
                id.into(),
                state.into(),
                launch_config.into(),
                limit.into(),
            ],
        ),
        None => (
            &LIST,
            [
                pool_id,
                created.into(),
                group.into(),
                id.into(),
                state.into(),
                launch_config.into(),
                limit.into(),
            ],
        ),
    };
    tx.rows(statement, &values, worker)
}

/// The workers of a provider in a group that are not stopped, in all pools, by pool and id.
pub fn worker_list_live(
    tx: &mut Tx<'_>,
    provider_id: &ProviderId,
    group: &WorkerGroup,
    after: Option<&WorkerKey>,
    limit: u32,
) -> Result<Vec<Worker>, StoreError> {
    let (pool_id, id) = match after {
        Some(key) => (key.pool_id.as_str(), key.id.as_str()),
        None => ("", ""),
    };
    let values = [
        provider_id.as_str().into(),
        group.as_str().into(),
        pool_id.into(),
        id.into(),
        limit.into(),
    ];
    tx.rows(&LIST_LIVE, &values, worker)
}

/// The groups in which a provider has workers that are not stopped, at most this many. One statement for each, from
/// an index: there are many workers, and few groups.
pub fn worker_live_groups(
    tx: &mut Tx<'_>,
    provider_id: &ProviderId,
    limit: usize,
) -> Result<Vec<WorkerGroup>, StoreError> {
    let mut groups: Vec<WorkerGroup> = Vec::new();
    while groups.len() < limit {
        let after = groups.last().map_or("", WorkerGroup::as_str);
        let values = [provider_id.as_str().into(), after.into()];
        match tx.row(&NEXT_GROUP, &values, |row| Ok(row.text(0)?.parse()?))? {
            Some(group) => groups.push(group),
            None => break,
        }
    }
    Ok(groups)
}

/// Which providers still have workers in a pool.
pub fn worker_live_providers(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
) -> Result<Vec<ProviderId>, StoreError> {
    let values = [pool_id.as_str().into(), ALL_ROWS.into()];
    tx.rows(&LIVE_PROVIDERS, &values, |row| Ok(row.text(0)?.parse()?))
}
