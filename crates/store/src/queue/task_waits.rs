//! Facts about the wait of one task.

use domain::id::{PoolId, ProviderId, TaskId};
use domain::task_wait::OpenDependency;
use domain::time::Timestamp;

use crate::engine::{Result, Table, Tx, from_row, statements};

static TABLE: Table = Table::unlisted("pending_tasks", 1);

statements! { TABLE;
    AHEAD "task_wait_ahead" =
        "SELECT COUNT(*) FROM pending_tasks AS o CROSS JOIN pending_tasks AS p \
         WHERE o.task_id = $1 AND p.task_queue_id = o.task_queue_id AND p.deadline > $2 \
         AND (p.priority, p.sequence) < (o.priority, o.sequence)";
    OLDEST "task_wait_oldest" =
        "SELECT inserted FROM pending_tasks ORDER BY sequence LIMIT 1";
    INSERTED "task_wait_inserted" = "SELECT inserted FROM tasks WHERE task_id = $1";
    FREE_AT "task_wait_free_at" =
        "SELECT MIN(t.deadline) FROM claimed_tasks AS c CROSS JOIN tasks AS t \
         WHERE c.task_queue_id = $1 AND t.task_id = c.task_id";
    QUARANTINE_ENDS "task_wait_quarantine_ends" =
        "SELECT MIN(quarantine_until) FROM queue_workers \
         WHERE task_queue_id = $1 AND quarantine_until > $2";
    OPEN "task_wait_dependencies" =
        "SELECT t.task_id, t.state, t.deadline FROM task_dependencies AS e CROSS JOIN tasks AS t \
         WHERE e.task_id = $1 AND e.released = 0 AND t.task_id = e.required_task_id \
         ORDER BY t.deadline DESC, t.task_id LIMIT $2";
    SHARERS "task_wait_sharers" =
        "SELECT worker_pool_id, CAST(SUM(capacity) AS BIGINT) FROM workers \
         WHERE provider_id = $1 AND state <> 'stopped' AND worker_pool_id <> $2 \
         GROUP BY worker_pool_id ORDER BY 2 DESC, 1 LIMIT $3";
}

from_row! { OpenDependency { id, state, deadline } }

/// The number of tasks that are claimed before this one, by its place in its queue.
pub fn n_ahead(tx: &mut Tx<'_>, id: &TaskId, now: Timestamp) -> Result<u64> {
    tx.number(&AHEAD, (id, now))
}

/// Since when the run waits that was the first to be put into a queue. Servers whose clocks differ
/// may have put others there that began to wait a little earlier.
pub fn oldest(tx: &mut Tx<'_>) -> Result<Option<Timestamp>> {
    Ok(tx.row::<Option<Timestamp>>(&OLDEST, ())?.flatten())
}

/// When the task was created, if that is known.
pub fn inserted(tx: &mut Tx<'_>, id: &TaskId) -> Result<Option<Timestamp>> {
    Ok(tx.row::<Option<Timestamp>>(&INSERTED, id)?.flatten())
}

/// The first deadline of the running tasks of a queue.
pub fn free_at(tx: &mut Tx<'_>, queue: &PoolId) -> Result<Option<Timestamp>> {
    Ok(tx.row::<Option<Timestamp>>(&FREE_AT, queue)?.flatten())
}

/// When the first quarantine of a worker of the queue ends.
pub fn quarantine_ends(
    tx: &mut Tx<'_>,
    queue: &PoolId,
    now: Timestamp,
) -> Result<Option<Timestamp>> {
    let ends = tx.row::<Option<Timestamp>>(&QUARANTINE_ENDS, (queue, now))?;
    Ok(ends.flatten())
}

/// The tasks that this one waits for, the latest deadline first.
pub fn dependencies(tx: &mut Tx<'_>, id: &TaskId, limit: u32) -> Result<Vec<OpenDependency>> {
    tx.rows(&OPEN, (id, limit))
}

/// The other pools with machines of a provider, with their units, the largest first.
pub fn sharers(
    tx: &mut Tx<'_>,
    provider_id: &ProviderId,
    pool_id: &PoolId,
    limit: u32,
) -> Result<Vec<(PoolId, u64)>> {
    tx.rows(&SHARERS, (provider_id, pool_id, limit))
}
