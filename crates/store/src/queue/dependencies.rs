//! Who waits for whom.
//!
//! An edge is released when what its task waits for has happened: by the transaction that makes it, if it has
//! happened by then, or by the one in which it happens. On PostgreSQL these two may run at once, and then neither
//! sees what the other does. So that they need not wait for each other, both note their task, and after their
//! commit look at it again (`look_again`): the one that looks last sees both. Of a task that waits for several,
//! whoever releases an edge touches the row while few are left, so that the later of two runs again.

use std::collections::{BTreeSet, HashMap};

use domain::id::TaskId;
use domain::task::{Requires, Task};
use domain::time::Timestamp;

use crate::engine::error::StoreError;
use crate::engine::part::{self, Part};
use crate::engine::statement::statements;
use crate::engine::table::Table;
use crate::engine::tx::Tx;
use crate::engine::value::to_json;
use crate::queue::tasks::{active, size, task, task_columns};

static TABLE: Table = Table::unlisted("task_dependencies", 1);

macro_rules! dependents {
    () => {
        " FROM task_dependencies AS e CROSS JOIN tasks AS t \
         CROSS JOIN task_definitions AS d WHERE e.required_task_id = $1 AND e.task_id > $2 \
         AND t.task_id = e.task_id AND d.task_id = e.task_id ORDER BY e.task_id LIMIT $3"
    };
}

statements! { TABLE;
    REQUIRED "task_required" =
        "SELECT t.task_id, t.expires FROM json_each($1) AS v CROSS JOIN tasks AS t \
         WHERE t.task_id = v.value ->> 0";
    ADD_COMPLETED "task_require_completed" =
        "INSERT INTO task_dependencies (required_task_id, task_id, any_end, released) \
         SELECT t.task_id, $1, 0, CASE WHEN t.state = 'completed' THEN 1 ELSE 0 END \
         FROM json_each($2) AS v CROSS JOIN tasks AS t WHERE t.task_id = v.value ->> 0 \
         ON CONFLICT DO NOTHING";
    ADD_RESOLVED "task_require_resolved" = concat!(
        "INSERT INTO task_dependencies (required_task_id, task_id, any_end, released) \
         SELECT task_id, $1, 1, CASE WHEN ", active!(), " THEN 0 ELSE 1 END \
         FROM json_each($2) AS v CROSS JOIN tasks WHERE task_id = v.value ->> 0 \
         ON CONFLICT DO NOTHING");
    OPEN "task_open_dependencies" =
        "SELECT required_task_id FROM task_dependencies WHERE task_id = $1 AND released = 0 LIMIT $2";
    TO_RELEASE "task_dependents_to_release" =
        "SELECT task_id FROM task_dependencies \
         WHERE required_task_id = $1 AND released = 0 AND any_end >= $2 ORDER BY task_id LIMIT $3";
    RELEASE "task_dependency_release" =
        "UPDATE task_dependencies SET released = 1 WHERE required_task_id = $1 AND task_id = $2";
    DEPENDENTS "task_dependents" = concat!("SELECT ", task_columns!(), dependents!());
    DEPENDENT_SIZES "task_dependent_sizes" = concat!("SELECT ", size!(), dependents!());
    FREED_BY "task_edges_freed_by" = concat!(
        "SELECT e.required_task_id, e.task_id FROM json_each($1) AS v CROSS JOIN task_dependencies AS e \
         CROSS JOIN tasks WHERE e.required_task_id = v.value ->> 0 AND e.released = 0 \
         AND tasks.task_id = e.required_task_id AND NOT ", active!(),
        " AND (e.any_end = 1 OR state = 'completed') LIMIT $2");
    FREED_OF "task_edges_freed_of" = concat!(
        "SELECT e.required_task_id, e.task_id FROM json_each($1) AS v CROSS JOIN task_dependencies AS e \
         CROSS JOIN tasks WHERE e.task_id = v.value ->> 0 AND e.released = 0 \
         AND tasks.task_id = e.required_task_id AND NOT ", active!(),
        " AND (e.any_end = 1 OR state = 'completed') LIMIT $2");
    // A row that is there is written, too: whoever is about to delete it must look again.
    LATER "task_look_again" =
        "INSERT INTO task_releases (task_id, inserted) VALUES ($1, $2) \
         ON CONFLICT (task_id) DO UPDATE SET inserted = excluded.inserted";
    LATER_LIST "task_looks_due" =
        "SELECT task_id FROM task_releases WHERE inserted <= $1 ORDER BY inserted, task_id LIMIT $2";
    LATER_GET "task_look_is_due" = "SELECT task_id FROM task_releases WHERE task_id = $1";
    LATER_DONE "task_looks_done" =
        "DELETE FROM task_releases WHERE task_id IN (SELECT v.value ->> 0 FROM json_each($1) AS v)";
}

/// That one task waits for another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    pub required: TaskId,
    pub waiting: TaskId,
}

/// When each of a task's dependencies expires; those that are no tasks are left out.
pub fn required(tx: &mut Tx<'_>, task: &Task) -> Result<HashMap<TaskId, Timestamp>, StoreError> {
    let names = list(&task.definition.dependencies);
    let found = tx.rows(&REQUIRED, &[(&names).into()], |row| {
        Ok((row.text(0)?.parse()?, row.time(1)?))
    })?;
    Ok(found.into_iter().collect())
}

/// Remembers what a task waits for; what has happened already is released at once.
pub fn require(tx: &mut Tx<'_>, task: &Task) -> Result<(), StoreError> {
    let add = match task.definition.requires {
        Requires::AllCompleted => &ADD_COMPLETED,
        Requires::AllResolved => &ADD_RESOLVED,
    };
    let names = list(&task.definition.dependencies);
    tx.execute(add, &[task.id.as_str().into(), (&names).into()])
        .map(drop)
}

/// How much a task still waits for; not counted any further than the limit.
pub fn count_open(tx: &mut Tx<'_>, id: &TaskId, limit: u32) -> Result<usize, StoreError> {
    let values = [id.as_str().into(), limit.into()];
    Ok(tx.rows(&OPEN, &values, |_| Ok(()))?.len())
}

/// Which tasks have waited for this end of the required task, and not been released.
pub fn dependents_to_release(
    tx: &mut Tx<'_>,
    required: &TaskId,
    completed: bool,
    limit: u32,
) -> Result<Vec<TaskId>, StoreError> {
    let least = i64::from(!completed);
    let values = [required.as_str().into(), least.into(), limit.into()];
    tx.rows(&TO_RELEASE, &values, |row| Ok(row.text(0)?.parse()?))
}

pub fn release(tx: &mut Tx<'_>, required: &TaskId, waiting: &TaskId) -> Result<(), StoreError> {
    let values = [required.as_str().into(), waiting.as_str().into()];
    tx.execute(&RELEASE, &values).map(drop)
}

/// All tasks that wait, or waited, for this one, by id.
pub fn dependents(
    tx: &mut Tx<'_>,
    required: &TaskId,
    after: Option<&TaskId>,
    limit: u32,
) -> Result<Part<Task>, StoreError> {
    let after = after.map_or("", TaskId::as_str);
    let keys = [required.as_str().into(), after.into()];
    part::read(tx, &DEPENDENT_SIZES, &DEPENDENTS, &keys, limit, task)
}

/// Those edges from or to these tasks that are free to be released, and are not released.
pub fn edges_freed(
    tx: &mut Tx<'_>,
    tasks: &[TaskId],
    limit: u32,
) -> Result<BTreeSet<Edge>, StoreError> {
    let names = list(tasks);
    let values = [(&names).into(), limit.into()];
    let mut edges = BTreeSet::new();
    for statement in [&FREED_BY, &FREED_OF] {
        edges.extend(tx.rows(statement, &values, |row| {
            Ok(Edge {
                required: row.text(0)?.parse()?,
                waiting: row.text(1)?.parse()?,
            })
        })?);
    }
    Ok(edges)
}

/// Notes that this task, and who waits for whom there, must be looked at again once this has been committed.
pub fn look_again(tx: &mut Tx<'_>, task: &TaskId, now: Timestamp) -> Result<(), StoreError> {
    tx.execute(&LATER, &[task.as_str().into(), now.into()])
        .map(drop)
}

/// The tasks of which this was noted up to some moment, longest ago first.
pub fn looks_due(
    tx: &mut Tx<'_>,
    before: Timestamp,
    limit: u32,
) -> Result<Vec<TaskId>, StoreError> {
    tx.rows(&LATER_LIST, &[before.into(), limit.into()], |row| {
        Ok(row.text(0)?.parse()?)
    })
}

/// Whether this was noted of the task.
pub fn look_is_due(tx: &mut Tx<'_>, task: &TaskId) -> Result<bool, StoreError> {
    let found = tx.row(&LATER_GET, &[task.as_str().into()], |_| Ok(()))?;
    Ok(found.is_some())
}

pub fn looks_done(tx: &mut Tx<'_>, tasks: &[TaskId]) -> Result<(), StoreError> {
    let names = list(tasks);
    tx.execute(&LATER_DONE, &[(&names).into()]).map(drop)
}

fn list(tasks: &[TaskId]) -> String {
    let names: Vec<[&str; 1]> = tasks.iter().map(|task| [task.as_str()]).collect();
    to_json(&names)
}
