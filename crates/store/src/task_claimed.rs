//! Runs that workers are busy with: which there are, whose, until when, how many.

use domain::demand::Demand;
use domain::id::{PoolId, TaskId, WorkerGroup, WorkerId, WorkerKey};
use domain::task::Task;
use domain::time::Timestamp;

use crate::error::StoreError;
use crate::part::{self, Part};
use crate::row::{BadRow, Row};
use crate::statement::{Table, statements};
use crate::task::{N_COLUMNS, columns, size, task};
use crate::task_pending;
use crate::tx::Tx;

static TABLE: Table = Table {
    name: "claimed_tasks",
    key_columns: 1,
};

macro_rules! after {
    () => {
        " FROM claimed_tasks AS c CROSS JOIN tasks AS t CROSS JOIN task_definitions AS d \
         WHERE t.task_id = c.task_id AND d.task_id = c.task_id AND c.task_queue_id = $1 \
         AND (c.claimed, c.task_id) > ($2, $3) ORDER BY c.claimed, c.task_id LIMIT $4"
    };
}

statements! { TABLE;
    LIST "task_list_claimed" = concat!(
        "SELECT ", columns!(), ", c.run_id, c.claimed, c.worker_group, c.worker_id", after!());
    LIST_SIZES "task_list_claimed_sizes" = concat!("SELECT ", size!(), after!());
    EXPIRED "task_list_claims_expired" =
        "SELECT task_id, run_id FROM claimed_tasks WHERE taken_until <= $1 \
         ORDER BY taken_until LIMIT $2";
    OF_WORKER "task_list_claims_of_worker" =
        "SELECT task_id, run_id FROM claimed_tasks WHERE task_queue_id = $1 AND worker_group = $2 \
         AND worker_id = $3 ORDER BY task_id LIMIT $4";
    COUNT "task_count_claimed" =
        "SELECT COUNT(*) FROM claimed_tasks WHERE task_queue_id = $1 AND taken_until > $2";
    COUNT_ALL "task_count_claimed_all" =
        "SELECT task_queue_id, COUNT(*) FROM claimed_tasks \
         WHERE task_queue_id > $1 AND taken_until > $2 \
         GROUP BY task_queue_id ORDER BY task_queue_id LIMIT $3";
    ENDED "task_note_ended" =
        "UPDATE queue_workers SET last_task_ended = $1 \
         WHERE task_queue_id = $2 AND worker_group = $3 AND worker_id = $4";
}

/// A run that a worker is busy with, as lists show it.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimedTask {
    pub task: Task,
    pub run_id: u32,
    pub claimed: Timestamp,
    pub group: WorkerGroup,
    pub worker_id: WorkerId,
}

/// How much work waits for a pool, and how much of it runs.
pub fn task_demand_of(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    now: Timestamp,
) -> Result<Demand, StoreError> {
    let pending = task_pending::count(tx, pool_id, now)?;
    let values = [pool_id.as_str().into(), now.into()];
    let claimed = tx.row(&COUNT, &values, |row| row.number(0))?.unwrap_or(0);
    Ok(Demand { pending, claimed })
}

/// The same, where more waiting tasks than this make no difference: they are not counted.
pub fn task_demand_up_to(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    now: Timestamp,
    most_pending: u32,
) -> Result<Demand, StoreError> {
    let pending = task_pending::count_up_to(tx, pool_id, now, most_pending)?;
    let values = [pool_id.as_str().into(), now.into()];
    let claimed = tx.row(&COUNT, &values, |row| row.number(0))?.unwrap_or(0);
    Ok(Demand { pending, claimed })
}

/// The same for every pool that has any, by pool id; as many as the limit means: ask again.
pub fn task_demand_all(
    tx: &mut Tx<'_>,
    after: Option<&PoolId>,
    limit: u32,
    now: Timestamp,
) -> Result<Vec<(PoolId, Demand)>, StoreError> {
    let after = after.map_or("", PoolId::as_str);
    let pending = task_pending::count_all(tx, after, now, limit)?;
    let values = [after.into(), now.into(), limit.into()];
    let claimed = tx.rows(&COUNT_ALL, &values, |row| {
        Ok((row.text(0)?.parse()?, row.number(1)?))
    })?;
    Ok(merged(pending, claimed, limit))
}

/// Longest claimed first.
pub fn task_list_claimed(
    tx: &mut Tx<'_>,
    queue: &PoolId,
    after: Option<(Timestamp, &TaskId)>,
    limit: u32,
) -> Result<Part<ClaimedTask>, StoreError> {
    let (claimed, id) = after.map_or((i64::MIN, ""), |(at, id)| (at.as_millis(), id.as_str()));
    let keys = [queue.as_str().into(), claimed.into(), id.into()];
    part::read(tx, &LIST_SIZES, &LIST, &keys, limit, claimed_task)
}

/// Runs whose worker did not claim them again in time.
pub fn task_list_claims_expired(
    tx: &mut Tx<'_>,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<(TaskId, u32)>, StoreError> {
    tx.rows(&EXPIRED, &[now.into(), limit.into()], run)
}

/// What a worker has claimed and not given back.
pub fn task_list_claims_of_worker(
    tx: &mut Tx<'_>,
    worker: &WorkerKey,
    limit: u32,
) -> Result<Vec<(TaskId, u32)>, StoreError> {
    let values = [
        worker.pool_id.as_str().into(),
        worker.group.as_str().into(),
        worker.id.as_str().into(),
        limit.into(),
    ];
    tx.rows(&OF_WORKER, &values, run)
}

/// Remembers when the worker last finished, or lost, a run. Nothing, if the queue does not know it.
pub fn task_note_ended(
    tx: &mut Tx<'_>,
    worker: &WorkerKey,
    now: Timestamp,
) -> Result<(), StoreError> {
    let values = [
        now.into(),
        worker.pool_id.as_str().into(),
        worker.group.as_str().into(),
        worker.id.as_str().into(),
    ];
    tx.execute(&ENDED, &values).map(drop)
}

/// Two ordered lists in one. What only one of them could have told, had it not been full, is left out.
fn merged(
    pending: Vec<(PoolId, u64)>,
    claimed: Vec<(PoolId, u64)>,
    limit: u32,
) -> Vec<(PoolId, Demand)> {
    let end_of = |list: &[(PoolId, u64)]| {
        let last = list.last().filter(|_| list.len() >= limit as usize);
        last.map(|(id, _)| id.clone())
    };
    let ends = [end_of(&pending), end_of(&claimed)];
    let end = ends.into_iter().flatten().min();
    let mut all = std::collections::BTreeMap::<PoolId, Demand>::new();
    for (id, count) in pending {
        all.entry(id).or_default().pending = count;
    }
    for (id, count) in claimed {
        all.entry(id).or_default().claimed = count;
    }
    all.into_iter()
        .filter(|(id, _)| end.as_ref().is_none_or(|end| id <= end))
        .take(limit as usize)
        .collect()
}

fn run(row: &Row<'_>) -> Result<(TaskId, u32), BadRow> {
    Ok((row.text(0)?.parse()?, row.number(1)?))
}

fn claimed_task(row: &Row<'_>) -> Result<ClaimedTask, BadRow> {
    Ok(ClaimedTask {
        task: task(row)?,
        run_id: row.number(N_COLUMNS)?,
        claimed: row.time(N_COLUMNS + 1)?,
        group: row.text(N_COLUMNS + 2)?.parse()?,
        worker_id: row.text(N_COLUMNS + 3)?.parse()?,
    })
}
