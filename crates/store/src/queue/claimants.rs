//! Workers that ask for tasks: their state and the queue's records of them, read for many workers
//! at once.

use std::collections::HashMap;

use domain::id::{PoolId, WorkerKey};
use domain::queue_worker::QueueWorker;
use domain::time::Timestamp;
use domain::worker::WorkerState;

use crate::engine::{Cells, Result, Table, Tx, statements, to_json};
use crate::queue::queue_workers;

static TABLE: Table = Table::joined("queue_workers", &[("q", &queue_workers::TABLE)]);

statements! { TABLE;
    LIST "claimant_list" =
        "SELECT {columns}, v.value ->> 0, v.value ->> 1, v.value ->> 2, w.state \
         FROM json_each($1) AS v \
         LEFT JOIN workers AS w ON w.worker_pool_id = v.value ->> 0 \
         AND w.worker_group = v.value ->> 1 AND w.worker_id = v.value ->> 2 \
         LEFT JOIN queue_workers AS q ON q.task_queue_id = v.value ->> 0 \
         AND q.worker_group = v.value ->> 1 AND q.worker_id = v.value ->> 2";
    ASKED_TO_STOP "claimant_list_asked_to_stop" =
        "SELECT w.worker_pool_id, w.worker_group, w.worker_id \
         FROM json_each($1) AS v CROSS JOIN workers AS w \
         WHERE w.worker_pool_id = v.value ->> 0 AND w.draining = 1 AND w.state = 'running' \
         AND w.advised >= $2 ORDER BY w.advised DESC LIMIT $3";
}

/// A worker that asks for tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claimant {
    /// `None`: the worker is not in our table. We may not have started it.
    pub state: Option<WorkerState>,
    /// `None`: it has never asked for a task before.
    pub known: Option<QueueWorker>,
}

fn names(workers: &[WorkerKey]) -> String {
    let keys = workers.iter();
    let keys = keys.map(|key| [key.pool_id.as_str(), key.group.as_str(), key.id.as_str()]);
    to_json(&keys.collect::<Vec<_>>())
}

/// The running workers of these queues that were asked to stop at this time or later, the last ones
/// first.
pub fn asked_to_stop(
    tx: &mut Tx<'_>,
    queues: &[PoolId],
    since: Timestamp,
    limit: u32,
) -> Result<Vec<WorkerKey>> {
    let queues: Vec<[&str; 1]> = queues.iter().map(|queue| [queue.as_str()]).collect();
    tx.rows(&ASKED_TO_STOP, (&to_json(&queues), since, limit))
}

/// Returns an entry for each of these workers, known or not.
pub fn list(tx: &mut Tx<'_>, workers: &[WorkerKey]) -> Result<HashMap<WorkerKey, Claimant>> {
    let found = tx.rows_with(&LIST, names(workers), |row| {
        let mut cells = Cells::of(row);
        let known = cells.joined()?;
        let (key, state) = cells.next()?;
        Ok((key, Claimant { state, known }))
    })?;
    Ok(found.into_iter().collect())
}
