//! Workers that ask for tasks: what we and the queue know of them, read for many at once.

use std::collections::HashMap;

use domain::id::WorkerKey;
use domain::queue_worker::QueueWorker;
use domain::worker::WorkerState;

use crate::error::StoreError;
use crate::queue_worker::{N_COLUMNS, TABLE, queue_worker};
use crate::row::{BadRow, Row};
use crate::statement::statements;
use crate::tx::Tx;
use crate::value::to_json;

statements! { TABLE;
    LIST "claimant_list" =
        "SELECT q.task_queue_id, q.worker_group, q.worker_id, q.recent_tasks, q.quarantine_until, \
         q.quarantine_details, q.expires, q.first_claim, q.last_date_active, q.last_task_ended, \
         v.value ->> 0, v.value ->> 1, v.value ->> 2, w.state FROM json_each($1) AS v \
         LEFT JOIN workers AS w ON w.worker_pool_id = v.value ->> 0 \
         AND w.worker_group = v.value ->> 1 AND w.worker_id = v.value ->> 2 \
         LEFT JOIN queue_workers AS q ON q.task_queue_id = v.value ->> 0 \
         AND q.worker_group = v.value ->> 1 AND q.worker_id = v.value ->> 2";
}

/// A worker that asks for tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claimant {
    /// `None`: we have no such worker. It may be one that we did not start.
    pub state: Option<WorkerState>,
    /// `None`: it has never asked before.
    pub known: Option<QueueWorker>,
}

/// One for each of these workers, whether anything is known of it or not.
pub fn claimant_list(
    tx: &mut Tx<'_>,
    workers: &[WorkerKey],
) -> Result<HashMap<WorkerKey, Claimant>, StoreError> {
    let keys: Vec<[&str; 3]> = workers
        .iter()
        .map(|key| [key.pool_id.as_str(), key.group.as_str(), key.id.as_str()])
        .collect();
    let found = tx.rows(&LIST, &[(&to_json(&keys)).into()], claimant)?;
    Ok(found.into_iter().collect())
}

fn claimant(row: &Row<'_>) -> Result<(WorkerKey, Claimant), BadRow> {
    let key = WorkerKey {
        pool_id: row.text(N_COLUMNS)?.parse()?,
        group: row.text(N_COLUMNS + 1)?.parse()?,
        id: row.text(N_COLUMNS + 2)?.parse()?,
    };
    let state = row.optional_text(N_COLUMNS + 3)?;
    let known = match row.optional_text(0)? {
        Some(_) => Some(queue_worker(row)?),
        None => None,
    };
    let state = state.map(str::parse).transpose()?;
    Ok((key, Claimant { state, known }))
}
