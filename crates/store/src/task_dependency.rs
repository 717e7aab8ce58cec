//! Who waits for whom.
//!
//! An edge is released when what its task waits for has happened. Of two transactions that could each miss
//! what the other does, both write one row, so that the second runs again: whoever adds an edge touches the
//! required task, and whoever releases one touches the waiting task while few are left.

use std::collections::BTreeSet;

use domain::id::TaskId;
use domain::task::{Requires, Task};
use domain::time::Timestamp;

use crate::error::StoreError;
use crate::part::{self, Part};
use crate::statement::{Table, statements};
use crate::task::{active, columns, size, task};
use crate::tx::Tx;
use crate::value::Value;

static TABLE: Table = Table {
    name: "task_dependencies",
    key_columns: 1,
};

/// So many names go into one statement.
const CHUNK: usize = 50;

/// Fifty parameters from the second on.
macro_rules! names {
    () => {
        "($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, \
         $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, \
         $39, $40, $41, $42, $43, $44, $45, $46, $47, $48, $49, $50, $51)"
    };
}

macro_rules! dependents {
    () => {
        " FROM task_dependencies AS e CROSS JOIN tasks AS t \
         CROSS JOIN task_definitions AS d WHERE e.required_task_id = $1 AND e.task_id > $2 \
         AND t.task_id = e.task_id AND d.task_id = e.task_id ORDER BY e.task_id LIMIT $3"
    };
}

statements! { TABLE;
    // The first parameter only keeps the numbers of the others.
    KNOWN "task_known" = concat!(
        "SELECT task_id FROM tasks WHERE task_id > $1 AND task_id IN ", names!());
    TOUCH "task_touch_required" = concat!(
        "UPDATE tasks SET version = version + 1 WHERE task_id <> $1 AND task_id IN ", names!(),
        " AND ", active!());
    ADD_COMPLETED "task_require_completed" = concat!(
        "INSERT INTO task_dependencies (required_task_id, task_id, any_end, released) \
         SELECT task_id, $1, 0, CASE WHEN state = 'completed' THEN 1 ELSE 0 END FROM tasks \
         WHERE task_id IN ", names!(), " ON CONFLICT DO NOTHING");
    ADD_RESOLVED "task_require_resolved" = concat!(
        "INSERT INTO task_dependencies (required_task_id, task_id, any_end, released) \
         SELECT task_id, $1, 1, CASE WHEN ", active!(), " THEN 0 ELSE 1 END FROM tasks \
         WHERE task_id IN ", names!(), " ON CONFLICT DO NOTHING");
    OPEN "task_open_dependencies" =
        "SELECT required_task_id FROM task_dependencies WHERE task_id = $1 AND released = 0 LIMIT $2";
    TO_RELEASE "task_dependents_to_release" =
        "SELECT task_id FROM task_dependencies \
         WHERE required_task_id = $1 AND released = 0 AND any_end >= $2 ORDER BY task_id LIMIT $3";
    RELEASE "task_dependency_release" =
        "UPDATE task_dependencies SET released = 1 WHERE required_task_id = $1 AND task_id = $2";
    DEPENDENTS "task_dependents" = concat!("SELECT ", columns!(), dependents!());
    DEPENDENT_SIZES "task_dependent_sizes" = concat!("SELECT ", size!(), dependents!());
    LATER "task_release_later" =
        "INSERT INTO task_releases (task_id, inserted) VALUES ($1, $2) ON CONFLICT DO NOTHING";
    LATER_LIST "task_releases" =
        "SELECT task_id FROM task_releases ORDER BY inserted, task_id LIMIT $1";
    LATER_GET "task_release_is_due" = "SELECT task_id FROM task_releases WHERE task_id = $1";
    LATER_DONE "task_release_done" = "DELETE FROM task_releases WHERE task_id = $1";
}

/// Those of a task's dependencies that are no tasks.
pub fn task_unknown_dependencies(tx: &mut Tx<'_>, task: &Task) -> Result<Vec<TaskId>, StoreError> {
    let mut unknown = Vec::new();
    for chunk in task.definition.dependencies.chunks(CHUNK) {
        let known: BTreeSet<String> = tx
            .rows(&KNOWN, &with_names("", chunk), |row| {
                Ok(row.text(0)?.to_owned())
            })?
            .into_iter()
            .collect();
        let missing = chunk.iter().filter(|id| !known.contains(id.as_str()));
        unknown.extend(missing.cloned());
    }
    Ok(unknown)
}

/// Remembers what a task waits for; what has happened already is released at once.
pub fn task_require(tx: &mut Tx<'_>, task: &Task) -> Result<(), StoreError> {
    let add = match task.definition.requires {
        Requires::AllCompleted => &ADD_COMPLETED,
        Requires::AllResolved => &ADD_RESOLVED,
    };
    for chunk in task.definition.dependencies.chunks(CHUNK) {
        let values = with_names(task.id.as_str(), chunk);
        tx.execute(&TOUCH, &values)?;
        tx.execute(add, &values)?;
    }
    Ok(())
}

/// How much a task still waits for; not counted any further than the limit.
pub fn task_open_dependencies(
    tx: &mut Tx<'_>,
    id: &TaskId,
    limit: u32,
) -> Result<usize, StoreError> {
    let values = [id.as_str().into(), limit.into()];
    Ok(tx.rows(&OPEN, &values, |_| Ok(()))?.len())
}

/// Which tasks have waited for this end of the required task, and not been released.
pub fn task_dependents_to_release(
    tx: &mut Tx<'_>,
    required: &TaskId,
    completed: bool,
    limit: u32,
) -> Result<Vec<TaskId>, StoreError> {
    let least = i64::from(!completed);
    let values = [required.as_str().into(), least.into(), limit.into()];
    tx.rows(&TO_RELEASE, &values, |row| Ok(row.text(0)?.parse()?))
}

pub fn task_dependency_release(
    tx: &mut Tx<'_>,
    required: &TaskId,
    waiting: &TaskId,
) -> Result<(), StoreError> {
    let values = [required.as_str().into(), waiting.as_str().into()];
    tx.execute(&RELEASE, &values).map(drop)
}

/// All tasks that wait, or waited, for this one, by id.
pub fn task_dependents(
    tx: &mut Tx<'_>,
    required: &TaskId,
    after: Option<&TaskId>,
    limit: u32,
) -> Result<Part<Task>, StoreError> {
    let after = after.map_or("", TaskId::as_str);
    let keys = [required.as_str().into(), after.into()];
    part::read(tx, &DEPENDENT_SIZES, &DEPENDENTS, &keys, limit, task)
}

/// This task has more dependents than were released.
pub fn task_release_later(
    tx: &mut Tx<'_>,
    required: &TaskId,
    now: Timestamp,
) -> Result<(), StoreError> {
    tx.execute(&LATER, &[required.as_str().into(), now.into()])
        .map(drop)
}

/// The tasks of which this was said, longest ago first.
pub fn task_releases(tx: &mut Tx<'_>, limit: u32) -> Result<Vec<TaskId>, StoreError> {
    tx.rows(&LATER_LIST, &[limit.into()], |row| {
        Ok(row.text(0)?.parse()?)
    })
}

/// Whether this was said of the task.
pub fn task_release_is_due(tx: &mut Tx<'_>, required: &TaskId) -> Result<bool, StoreError> {
    let found = tx.row(&LATER_GET, &[required.as_str().into()], |_| Ok(()))?;
    Ok(found.is_some())
}

pub fn task_release_done(tx: &mut Tx<'_>, required: &TaskId) -> Result<(), StoreError> {
    tx.execute(&LATER_DONE, &[required.as_str().into()])
        .map(drop)
}

/// A first value, then the names; a chunk that is not full repeats its last.
fn with_names<'a>(first: &'a str, chunk: &'a [TaskId]) -> Vec<Value<'a>> {
    let last = chunk.last().map_or("", TaskId::as_str);
    let names = chunk.iter().map(TaskId::as_str);
    let padded = names.chain(std::iter::repeat(last)).take(CHUNK);
    std::iter::once(first)
        .chain(padded)
        .map(Value::from)
        .collect()
}
