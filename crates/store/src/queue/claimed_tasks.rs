//! Claimed runs: the worker of each, and the end of its claim.

use domain::id::{PoolId, TaskId, WorkerGroup, WorkerId, WorkerKey};
use domain::task::Task;
use domain::time::Timestamp;

use crate::engine::{Part, Result, Table, Tx, from_row, part, statements};
use crate::queue::tasks::{size, task_columns};

static TABLE: Table = Table::unlisted("claimed_tasks", 1);

macro_rules! after {
    () => {
        " FROM claimed_tasks AS c CROSS JOIN tasks AS t CROSS JOIN task_definitions AS d \
         WHERE t.task_id = c.task_id AND d.task_id = c.task_id AND c.task_queue_id = $1 \
         AND (c.claimed, c.task_id) > ($2, $3) ORDER BY c.claimed, c.task_id LIMIT $4"
    };
}

statements! { TABLE;
    LIST "task_list_claimed" = concat!(
        "SELECT ", task_columns!(), ", c.run_id, c.claimed, c.worker_group, c.worker_id", after!());
    LIST_SIZES "task_list_claimed_sizes" = concat!("SELECT ", size!(), after!());
    EXPIRED "task_list_claims_expired" =
        "SELECT task_id, run_id FROM claimed_tasks WHERE taken_until <= $1 \
         ORDER BY taken_until LIMIT $2";
    OF_WORKER "task_list_claims_of_worker" =
        "SELECT task_id, run_id FROM claimed_tasks WHERE task_queue_id = $1 AND worker_group = $2 \
         AND worker_id = $3 ORDER BY task_id LIMIT $4";
    ENDED "task_note_ended" =
        "UPDATE queue_workers SET last_task_ended = $1 \
         WHERE task_queue_id = $2 AND worker_group = $3 AND worker_id = $4";
}

/// A claimed run, as lists show it.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimedTask {
    pub task: Task,
    pub run_id: u32,
    pub claimed: Timestamp,
    pub group: WorkerGroup,
    pub worker_id: WorkerId,
}

/// Ordered by the time of the claim, oldest first.
pub fn list(
    tx: &mut Tx<'_>,
    queue: &PoolId,
    after: Option<(Timestamp, &TaskId)>,
    limit: u32,
) -> Result<Part<ClaimedTask>> {
    let after = after.map_or((i64::MIN, ""), |(at, id)| (at.as_millis(), id.as_str()));
    part::read(tx, &LIST_SIZES, &LIST, (queue, after), limit)
}

/// Runs whose claim has expired because the worker did not renew it.
pub fn list_expired(tx: &mut Tx<'_>, now: Timestamp, limit: u32) -> Result<Vec<(TaskId, u32)>> {
    tx.rows(&EXPIRED, (now, limit))
}

/// Runs that a worker has claimed and not resolved.
pub fn list_of_worker(
    tx: &mut Tx<'_>,
    worker: &WorkerKey,
    limit: u32,
) -> Result<Vec<(TaskId, u32)>> {
    tx.rows(&OF_WORKER, (worker, limit))
}

/// Records when the worker last finished or lost a run. Does nothing if the queue has no record of
/// the worker.
pub fn note_ended(tx: &mut Tx<'_>, worker: &WorkerKey, now: Timestamp) -> Result<()> {
    tx.run(&ENDED, (now, worker))
}

from_row! { ClaimedTask { task, run_id, claimed, group, worker_id } }
