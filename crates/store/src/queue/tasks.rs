//! Tasks: one row for the definition, one for the state, and another one while the task is pending
//! or claimed.
//!
//! A pending task has a row in `pending_tasks`, a running task has one in `claimed_tasks`, and
//! other tasks have neither. Only this file writes these two tables.

use std::sync::Arc;

use domain::Version;
use domain::id::TaskId;
use domain::task::{Claim, Run, StoredTask, Task, TaskDocument, TaskState};
use domain::time::Timestamp;

use crate::engine::part::MAX_PART_BYTES;
use crate::engine::{BadRow, Cells, FromRow, Part, Result, Table, Tx, statements, to_json};

static TABLE: Table = Table::unlisted("tasks", 1);

/// The columns of a task, where `t` is `tasks` and `d` is `task_definitions`.
macro_rules! task_columns {
    () => {
        "t.task_id, d.definition, t.priority, t.retries_left, t.runs, t.version"
    };
}
pub(crate) use task_columns;

/// The size of the columns that can be large, in bytes.
macro_rules! size {
    () => {
        "CAST(OCTET_LENGTH(d.definition) + OCTET_LENGTH(t.runs) AS BIGINT)"
    };
}
pub(crate) use size;

/// The states of unresolved tasks, written as in the partial indexes.
macro_rules! active {
    () => {
        "(state = 'unscheduled' OR state = 'pending' OR state = 'running')"
    };
}
pub(crate) use active;

statements! { TABLE;
    GET "task_get" = concat!(
        "SELECT ", task_columns!(), " FROM tasks AS t CROSS JOIN task_definitions AS d \
         WHERE t.task_id = $1 AND d.task_id = t.task_id");
    INSERT "task_insert" =
        "INSERT INTO tasks (task_id, task_queue_id, task_group_id, priority, deadline, expires, \
         retries_left, state, runs, version, inserted) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) \
         ON CONFLICT DO NOTHING";
    DEFINE "task_define" =
        "INSERT INTO task_definitions (task_id, definition) VALUES ($1, $2)";
    UPDATE "task_update" =
        "UPDATE tasks SET priority = $1, retries_left = $2, state = $3, runs = $4, \
         version = version + 1 WHERE task_id = $5 AND version = $6";
    TOUCH "task_touch" = "UPDATE tasks SET version = version + 1 WHERE task_id = $1";
    INSERT_PENDING "task_wait" =
        "INSERT INTO pending_tasks (task_id, run_id, task_queue_id, priority, inserted, deadline) \
         VALUES ($1, $2, $3, $4, $5, $6)";
    REORDER "task_reorder" = "UPDATE pending_tasks SET priority = $1 WHERE task_id = $2";
    DELETE_FROM_PENDING "task_stop_waiting" = "DELETE FROM pending_tasks WHERE task_id = $1";
    INSERT_CLAIM "task_take" =
        "INSERT INTO claimed_tasks (task_id, run_id, task_queue_id, worker_group, worker_id, \
         claimed, taken_until) VALUES ($1, $2, $3, $4, $5, $6, $7)";
    EXTEND_CLAIM "task_extend_claim" =
        "UPDATE claimed_tasks SET taken_until = $1 WHERE task_id = $2";
    DELETE_FROM_CLAIMED "task_release_claim" = "DELETE FROM claimed_tasks WHERE task_id = $1";
    RUNS "task_runs" = "SELECT task_id, runs, expires FROM tasks WHERE task_id = $1";
    OVERDUE "task_list_overdue" = concat!(
        "SELECT task_id FROM tasks WHERE deadline < $1 AND ", active!(),
        " ORDER BY deadline LIMIT $2");
    EXPIRED "task_list_expired" = concat!(
        "SELECT task_id FROM tasks WHERE expires < $1 AND NOT ", active!(),
        " ORDER BY expires LIMIT $2");
    DELETE "task_delete" = "DELETE FROM tasks WHERE task_id = $1";
    DELETE_DEFINITION "task_delete_definition" = "DELETE FROM task_definitions WHERE task_id = $1";
    DELETE_PENDING "task_delete_pending" = "DELETE FROM pending_tasks WHERE task_id = $1";
    DELETE_CLAIM "task_delete_claim" = "DELETE FROM claimed_tasks WHERE task_id = $1";
    DELETE_RELEASE "task_delete_release" = "DELETE FROM task_releases WHERE task_id = $1";
    DELETE_EDGES "task_delete_edges" = "DELETE FROM task_dependencies WHERE task_id = $1";
}

/// The runs of a task, without its definition, which may be large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRuns {
    /// Oldest first: the index of a run is its number.
    pub runs: Vec<Run>,
    /// When the task and its artifacts are deleted.
    pub expires: Timestamp,
}

impl TaskRuns {
    pub fn run(&self, run_id: u32) -> Option<&Run> {
        self.runs.get(run_id as usize)
    }

    /// The number of the last run.
    pub fn latest(&self) -> Option<u32> {
        u32::try_from(self.runs.len().checked_sub(1)?).ok()
    }
}

/// The additional table that contains a task.
#[derive(Clone, Copy)]
enum Placement<'a> {
    None,
    Pending { run_id: u32, since: Timestamp },
    Claimed { run_id: u32, claim: &'a Claim },
}

pub fn get(tx: &mut Tx<'_>, id: &TaskId) -> Result<Option<Task>> {
    tx.row(&GET, id)
}

/// The tasks with these ids; `None` for missing ones. Stops early if all would be too large for one
/// part.
pub fn get_several(tx: &mut Tx<'_>, ids: &[TaskId]) -> Result<Part<Option<Task>>> {
    let mut items = Vec::with_capacity(ids.len());
    let mut n_bytes = 0;
    for id in ids {
        if n_bytes > MAX_PART_BYTES {
            break;
        }
        let found = tx.row_with(&GET, id, |row| {
            n_bytes += row.text(1)?.len() as u64;
            Cells::of(row).next()
        })?;
        items.push(found);
    }
    let is_cut = items.len() < ids.len();
    Ok(Part { items, is_cut })
}

/// Returns `false` if the task exists already.
pub fn insert(tx: &mut Tx<'_>, task: &Task, now: Timestamp) -> Result<bool> {
    let definition = &task.definition;
    let ids = (
        &task.id,
        &definition.task_queue_id,
        &definition.task_group_id,
    );
    let times = (definition.deadline, definition.expires);
    let state = (task.retries_left, task.state().as_str(), &task.runs);
    let values = (ids, &task.priority, times, state, task.version, now);
    let exists = |tx: &mut Tx<'_>| Ok(get(tx, &task.id)?.is_some());
    if !tx.insert_unless(&INSERT, values, exists)? {
        return Ok(false);
    }
    let text = to_json(&TaskDocument::from(&**definition));
    tx.run(&DEFINE, (&task.id, &text))?;
    insert_placement(tx, task)?;
    Ok(true)
}

/// Writes the state of the task, unless another transaction changed it since `before` was read.
pub fn update(tx: &mut Tx<'_>, before: &Task, after: &Task) -> Result<Version> {
    let state = (after.retries_left, after.state().as_str(), &after.runs);
    let key = (&after.id, before.version);
    tx.execute_guarded(&UPDATE, (&after.priority, state, key))?;
    let id = after.id.as_str();
    match (placement(before), placement(after)) {
        (Placement::None, Placement::None) => {}
        (Placement::Pending { run_id: old, .. }, Placement::Pending { run_id: new, .. })
            if old == new =>
        {
            if before.priority != after.priority {
                tx.run(&REORDER, (&after.priority, id))?;
            }
        }
        (Placement::Claimed { claim: old, .. }, Placement::Claimed { claim: new, .. })
            if old.started == new.started =>
        {
            if old.taken_until != new.taken_until {
                tx.run(&EXTEND_CLAIM, (new.taken_until, id))?;
            }
        }
        (left, _) => {
            delete_placement(tx, after, left)?;
            insert_placement(tx, after)?;
        }
    }
    Ok(before.version.next())
}

/// Makes a concurrent transaction that updates or touches this task run again, so that it sees this
/// transaction's changes.
pub fn touch(tx: &mut Tx<'_>, id: &TaskId) -> Result<()> {
    tx.run(&TOUCH, id)
}

pub fn get_runs(tx: &mut Tx<'_>, id: &TaskId) -> Result<Option<TaskRuns>> {
    let found = tx.row(&RUNS, id)?;
    Ok(found.map(|(_, runs, expires): (TaskId, _, _)| TaskRuns { runs, expires }))
}

/// Unresolved tasks with a deadline before this moment.
pub fn list_overdue(tx: &mut Tx<'_>, before: Timestamp, limit: u32) -> Result<Vec<TaskId>> {
    tx.rows(&OVERDUE, (before, limit))
}

/// Deletes resolved tasks and their dependencies. Other tasks are first resolved by their deadline,
/// which publishes an event. Call it again while it returns the limit.
pub fn delete_expired(tx: &mut Tx<'_>, now: Timestamp, limit: u32) -> Result<u64> {
    let expired: Vec<TaskId> = tx.rows(&EXPIRED, (now, limit))?;
    for id in &expired {
        for statement in [
            &DELETE,
            &DELETE_DEFINITION,
            &DELETE_PENDING,
            &DELETE_CLAIM,
            &DELETE_RELEASE,
            &DELETE_EDGES,
        ] {
            tx.run(statement, id)?;
        }
    }
    Ok(expired.len() as u64)
}

fn placement(task: &Task) -> Placement<'_> {
    let Some((run_id, run)) = task.last_run() else {
        return Placement::None;
    };
    match (run.state(), &run.claim) {
        (TaskState::Pending, _) => Placement::Pending {
            run_id,
            since: run.scheduled,
        },
        (TaskState::Running, Some(claim)) => Placement::Claimed { run_id, claim },
        (
            TaskState::Unscheduled
            | TaskState::Running
            | TaskState::Completed
            | TaskState::Failed
            | TaskState::Exception,
            _,
        ) => Placement::None,
    }
}

fn delete_placement(tx: &mut Tx<'_>, task: &Task, placement: Placement<'_>) -> Result<()> {
    let statement = match placement {
        Placement::None => return Ok(()),
        Placement::Pending { .. } => &DELETE_FROM_PENDING,
        Placement::Claimed { .. } => &DELETE_FROM_CLAIMED,
    };
    tx.execute_guarded(statement, &task.id)
}

fn insert_placement(tx: &mut Tx<'_>, task: &Task) -> Result<()> {
    let definition = &task.definition;
    match placement(task) {
        Placement::None => Ok(()),
        Placement::Pending { run_id, since } => {
            let run = (&task.id, run_id, &definition.task_queue_id);
            let values = (run, &task.priority, since, definition.deadline);
            tx.run(&INSERT_PENDING, values)
        }
        Placement::Claimed { run_id, claim } => {
            let run = (&task.id, run_id, &definition.task_queue_id);
            let worker = (&claim.group, &claim.worker_id);
            let values = (run, worker, claim.started, claim.taken_until);
            tx.run(&INSERT_CLAIM, values)
        }
    }
}

impl FromRow for Task {
    fn read(cells: &mut Cells<'_, '_>) -> Result<Self, BadRow> {
        let id: TaskId = cells.next()?;
        let document: TaskDocument = cells.next()?;
        Ok(Self::from_stored(StoredTask {
            definition: Arc::new(document.define(&id)?),
            id,
            priority: cells.next()?,
            retries_left: cells.next()?,
            runs: cells.next()?,
            version: cells.next()?,
        }))
    }
}
