//! Workers as lists for people show them, newest first: without the documents in their rows.

use domain::id::{LaunchConfigId, PoolId, ProviderId, WorkerGroup, WorkerId};
use domain::time::Timestamp;
use domain::worker::WorkerState;

use crate::engine::{AFTER_ALL, Result, Table, Tx, from_row, statements};

/// Rows without a column for the pool, since the caller names it.
static TABLE: Table = Table::unlisted("workers", 2);

macro_rules! columns {
    () => {
        "worker_group, worker_id, provider_id, launch_config_id, state, capacity, created, \
         expires, last_modified, last_checked"
    };
}

statements! { TABLE;
    // An empty text means no filter, since ids and states are never empty.
    LIST "worker_list" = concat!("SELECT ", columns!(), " FROM workers WHERE worker_pool_id = $1 \
         AND (created, worker_group, worker_id) < ($2, $3, $4) \
         AND ($5 = '' OR state = $5) AND ($6 = '' OR launch_config_id = $6) \
         ORDER BY created DESC, worker_group DESC, worker_id DESC LIMIT $7");
    LIST_IN_GROUP "worker_list_in_group" = concat!("SELECT ", columns!(), " FROM workers \
         WHERE worker_pool_id = $1 AND worker_group = $2 AND (created, worker_id) < ($3, $4) \
         AND ($5 = '' OR state = $5) AND ($6 = '' OR launch_config_id = $6) \
         ORDER BY created DESC, worker_id DESC LIMIT $7");
}

/// A worker of the pool whose workers are listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedWorker {
    pub group: WorkerGroup,
    pub id: WorkerId,
    pub provider_id: ProviderId,
    pub launch_config_id: Option<LaunchConfigId>,
    pub state: WorkerState,
    pub capacity: u32,
    pub created: Timestamp,
    pub expires: Timestamp,
    pub last_modified: Timestamp,
    pub last_checked: Timestamp,
}

from_row! { ListedWorker {
    group, id, provider_id, launch_config_id, state, capacity, created, expires, last_modified,
    last_checked
} }

/// Selects workers of a pool; an empty filter selects all.
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

impl From<&ListedWorker> for WorkerCursor {
    fn from(worker: &ListedWorker) -> Self {
        Self {
            created: worker.created,
            group: worker.group.clone(),
            id: worker.id.clone(),
        }
    }
}

/// Ordered from newest to oldest, in any state that the filter allows.
pub fn list(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    filter: &WorkerFilter,
    after: Option<&WorkerCursor>,
    limit: u32,
) -> Result<Vec<ListedWorker>> {
    let state = filter.state.map_or("", WorkerState::as_str);
    let launch_config = filter
        .launch_config_id
        .as_ref()
        .map_or("", LaunchConfigId::as_str);
    let filters = (state, launch_config, limit);
    let (created, group, id) = match after {
        Some(cursor) => (
            cursor.created.as_millis(),
            cursor.group.as_str(),
            cursor.id.as_str(),
        ),
        None => (i64::MAX, AFTER_ALL, AFTER_ALL),
    };
    match &filter.group {
        Some(only) => tx.rows(&LIST_IN_GROUP, (pool_id, only, created, id, filters)),
        None => tx.rows(&LIST, (pool_id, created, group, id, filters)),
    }
}
