//! The queue's records of workers, joined with the table of workers.
//!
//! Joined on pool, group and id: the same worker id in two pools means two workers.

use domain::id::{LaunchConfigId, PoolId, WorkerGroup, WorkerId, WorkerKey};
use domain::queue_worker::QueueWorker;
use domain::time::Timestamp;
use domain::worker::{Worker, WorkerState};

use crate::engine::{BadRow, Cells, FromRow, Result, Table, Tx, statements};
use crate::fleet::workers;
use crate::queue::queue_workers;

macro_rules! joined {
    () => {
        "SELECT {columns} FROM queue_workers AS q \
         LEFT JOIN workers AS w ON w.worker_pool_id = q.task_queue_id \
         AND w.worker_group = q.worker_group AND w.worker_id = q.worker_id "
    };
}

static TABLE: Table = Table::joined(
    "queue_workers",
    &[("q", &queue_workers::TABLE), ("w", &workers::TABLE)],
);

// An empty text or the lowest number means no filter.
statements! { TABLE;
    GET "worker_metadata_get" = concat!(
        joined!(), "WHERE q.task_queue_id = $1 AND q.worker_group = $2 AND q.worker_id = $3");
    LIST "worker_metadata_list" = concat!(
        joined!(), "WHERE q.task_queue_id = $1 AND (q.worker_group, q.worker_id) > ($2, $3) \
         AND ($4 = '' OR w.state = $4) AND ($5 = '' OR w.launch_config_id = $5) \
         AND COALESCE(q.quarantine_until, 0) >= $6 \
         ORDER BY q.worker_group, q.worker_id LIMIT $7");
}

#[derive(Clone, Debug, PartialEq)]
pub struct WorkerMetadata {
    pub queue: QueueWorker,
    /// `None`: the worker is not in our table.
    pub worker: Option<Worker>,
}

/// Selects workers of a pool; an empty filter selects all.
#[derive(Clone, Debug, Default)]
pub struct MetadataFilter {
    /// Excludes workers that are not in our table, as does every filter on its columns.
    pub state: Option<WorkerState>,
    pub launch_config_id: Option<LaunchConfigId>,
    /// Selects workers that are quarantined at this moment.
    pub quarantined_at: Option<Timestamp>,
}

pub fn get(tx: &mut Tx<'_>, key: &WorkerKey) -> Result<Option<WorkerMetadata>> {
    tx.row(&GET, key)
}

/// Ordered by group and id.
pub fn list(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    filter: &MetadataFilter,
    after: Option<(&WorkerGroup, &WorkerId)>,
    limit: u32,
) -> Result<Vec<WorkerMetadata>> {
    let after = after.map_or(("", ""), |(group, id)| (group.as_str(), id.as_str()));
    let state = filter.state.map_or("", WorkerState::as_str);
    let launch_config_id = filter.launch_config_id.as_ref();
    let launch_config = launch_config_id.map_or("", LaunchConfigId::as_str);
    let quarantined = filter.quarantined_at.map_or(i64::MIN, Timestamp::as_millis);
    let filters = (state, launch_config, quarantined);
    tx.rows(&LIST, (pool_id, after, filters, limit))
}

impl FromRow for WorkerMetadata {
    fn read(cells: &mut Cells<'_, '_>) -> Result<Self, BadRow> {
        Ok(Self {
            queue: cells.next()?,
            worker: cells.joined()?,
        })
    }
}
