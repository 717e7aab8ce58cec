//! Pending runs: the next to be claimed, and lists of all.

use domain::id::PoolId;
use domain::task::Task;
use domain::time::Timestamp;

use crate::engine::{Part, Result, Table, Tx, from_row, part, statements, to_json};
use crate::queue::tasks::{size, task_columns};

static TABLE: Table = Table::unlisted("pending_tasks", 1);

macro_rules! waiting {
    () => {
        " FROM pending_tasks AS p CROSS JOIN tasks AS t CROSS JOIN task_definitions AS d \
         WHERE t.task_id = p.task_id AND d.task_id = p.task_id AND p.task_queue_id = $1 "
    };
}

macro_rules! next {
    () => {
        concat!(
            waiting!(),
            "AND p.deadline > $2 ORDER BY p.priority, p.sequence LIMIT $3"
        )
    };
}

macro_rules! after {
    () => {
        concat!(
            waiting!(),
            "AND (p.priority, p.sequence) > ($2, $3) ORDER BY p.priority, p.sequence LIMIT $4"
        )
    };
}

statements! { TABLE;
    NEXT "task_next" = concat!("SELECT ", task_columns!(), next!());
    NEXT_SIZES "task_next_sizes" = concat!("SELECT ", size!(), next!());
    ANY "task_any_waiting" =
        "SELECT task_id FROM pending_tasks WHERE task_queue_id = $1 AND deadline > $2 LIMIT 1";
    QUEUES "task_queues_with_work" =
        "SELECT v.value ->> 0 FROM json_each($1) AS v \
         WHERE EXISTS (SELECT 1 FROM pending_tasks AS p \
         WHERE p.task_queue_id = v.value ->> 0 AND p.deadline > $2)";
    LIST "task_list_pending" = concat!(
        "SELECT ", task_columns!(), ", p.run_id, p.inserted, p.priority, p.sequence", after!());
    LIST_SIZES "task_list_pending_sizes" = concat!("SELECT ", size!(), after!());
}

/// A pending run, as lists show it.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingTask {
    pub task: Task,
    pub run_id: u32,
    pub inserted: Timestamp,
    pub position: PendingPosition,
}

/// The position of a run in its queue: ordered by priority, then by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PendingPosition {
    pub rank: u32,
    pub sequence: i64,
}

/// The next tasks to be claimed, without tasks whose deadline has passed.
pub fn next(tx: &mut Tx<'_>, queue: &PoolId, now: Timestamp, limit: u32) -> Result<Part<Task>> {
    part::read(tx, &NEXT_SIZES, &NEXT, (queue, now), limit)
}

/// Whether the queue has a task to claim.
pub fn any(tx: &mut Tx<'_>, queue: &PoolId, now: Timestamp) -> Result<bool> {
    tx.exists(&ANY, (queue, now))
}

/// The queues, of these, that have a task to claim.
pub fn queues_with_work(tx: &mut Tx<'_>, queues: &[PoolId], now: Timestamp) -> Result<Vec<PoolId>> {
    let queues: Vec<[&str; 1]> = queues.iter().map(|queue| [queue.as_str()]).collect();
    tx.rows(&QUEUES, (&to_json(&queues), now))
}

/// Ordered as they will be claimed.
pub fn list(
    tx: &mut Tx<'_>,
    queue: &PoolId,
    after: Option<PendingPosition>,
    limit: u32,
) -> Result<Part<PendingTask>> {
    let after = after.map_or((-1, 0), |last| (i64::from(last.rank), last.sequence));
    part::read(tx, &LIST_SIZES, &LIST, (queue, after), limit)
}

from_row! { PendingTask { task, run_id, inserted, position } }
from_row! { PendingPosition { rank, sequence } }
