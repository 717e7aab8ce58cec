//! Dependencies between tasks.
//!
//! An edge is released when the required task has ended as the waiting task needs it: by the
//! transaction that creates the edge, if that is so already, or by the transaction that ends the
//! required task. On PostgreSQL these two may run concurrently, and then neither sees the other's
//! changes. So that neither must wait, each requests a recheck of its task (`request_recheck`),
//! which runs after its commit: the later recheck sees both changes. If a task waits for several
//! others, a transaction that releases an edge also touches the task's row while few edges are
//! left, so that the later of two transactions runs again.

use std::collections::{BTreeSet, HashMap};

use domain::id::TaskId;
use domain::task::{Requires, Task};
use domain::time::Timestamp;

use crate::engine::{Part, Result, Table, Tx, part, statements, to_json};
use crate::queue::tasks::{active, size, task_columns};

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
        "SELECT task_id, expires FROM tasks \
         WHERE task_id IN (SELECT member.value ->> 0 FROM json_each($1) AS member)";
    ADD_COMPLETED "task_require_completed" =
        "INSERT INTO task_dependencies (required_task_id, task_id, any_end, released) \
         SELECT task_id, $1, 0, CASE WHEN state = 'completed' THEN 1 ELSE 0 END \
         FROM tasks \
         WHERE task_id IN (SELECT member.value ->> 0 FROM json_each($2) AS member) \
         ON CONFLICT DO NOTHING";
    ADD_RESOLVED "task_require_resolved" = concat!(
        "INSERT INTO task_dependencies (required_task_id, task_id, any_end, released) \
         SELECT task_id, $1, 1, CASE WHEN ", active!(), " THEN 0 ELSE 1 END \
         FROM tasks \
         WHERE task_id IN (SELECT member.value ->> 0 FROM json_each($2) AS member) \
         ON CONFLICT DO NOTHING");
    OPEN "task_open_dependencies" =
        "SELECT required_task_id FROM task_dependencies \
         WHERE task_id = $1 AND released = 0 LIMIT $2";
    TO_RELEASE "task_dependents_to_release" =
        "SELECT task_id FROM task_dependencies \
         WHERE required_task_id = $1 AND released = 0 AND any_end >= $2 ORDER BY task_id LIMIT $3";
    RELEASE "task_dependency_release" =
        "UPDATE task_dependencies SET released = 1 WHERE required_task_id = $1 AND task_id = $2";
    DEPENDENTS "task_dependents" = concat!("SELECT ", task_columns!(), dependents!());
    DEPENDENT_SIZES "task_dependent_sizes" = concat!("SELECT ", size!(), dependents!());
    RELEASABLE_FROM "task_edges_releasable_from" = concat!(
        "SELECT e.required_task_id, e.task_id \
         FROM json_each($1) AS v CROSS JOIN task_dependencies AS e \
         CROSS JOIN tasks WHERE e.required_task_id = v.value ->> 0 AND e.released = 0 \
         AND tasks.task_id = e.required_task_id AND NOT ", active!(),
        " AND (e.any_end = 1 OR state = 'completed') LIMIT $2");
    RELEASABLE_TO "task_edges_releasable_to" = concat!(
        "SELECT e.required_task_id, e.task_id \
         FROM json_each($1) AS v CROSS JOIN task_dependencies AS e \
         CROSS JOIN tasks WHERE e.task_id = v.value ->> 0 AND e.released = 0 \
         AND tasks.task_id = e.required_task_id AND NOT ", active!(),
        " AND (e.any_end = 1 OR state = 'completed') LIMIT $2");
    // An existing row is written, too, so that a concurrent transaction that deletes it must run
    // again.
    REQUEST_RECHECK "task_recheck_request" =
        "INSERT INTO task_releases (task_id, inserted) VALUES ($1, $2) \
         ON CONFLICT (task_id) DO UPDATE SET inserted = excluded.inserted";
    LIST_RECHECKS "task_recheck_list" =
        "SELECT task_id FROM task_releases WHERE inserted <= $1 \
         ORDER BY inserted, task_id LIMIT $2";
    GET_RECHECK "task_recheck_get" = "SELECT task_id FROM task_releases WHERE task_id = $1";
    DELETE_RECHECKS "task_recheck_delete" =
        "DELETE FROM task_releases \
         WHERE task_id IN (SELECT member.value ->> 0 FROM json_each($1) AS member)";
}

/// One task waits for another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    pub required: TaskId,
    pub waiting: TaskId,
}

/// The time of expiry of each task that this one depends on. Missing tasks are left out.
pub fn required(tx: &mut Tx<'_>, task: &Task) -> Result<HashMap<TaskId, Timestamp>> {
    let names = list(&task.definition.dependencies);
    let found = tx.rows(&REQUIRED, &names)?;
    Ok(found.into_iter().collect())
}

/// Stores the dependencies of a task. Edges whose condition is met already are released
/// immediately.
pub fn require(tx: &mut Tx<'_>, task: &Task) -> Result<()> {
    let add = match task.definition.requires {
        Requires::AllCompleted => &ADD_COMPLETED,
        Requires::AllResolved => &ADD_RESOLVED,
    };
    let names = list(&task.definition.dependencies);
    tx.run(add, (&task.id, &names))
}

/// Number of unreleased dependencies of a task, counted up to the limit.
pub fn count_open(tx: &mut Tx<'_>, id: &TaskId, limit: u32) -> Result<usize> {
    let values = (id, limit);
    Ok(tx.rows_with(&OPEN, values, |_| Ok(()))?.len())
}

/// The tasks with an unreleased edge that this end of the required task releases.
pub fn dependents_to_release(
    tx: &mut Tx<'_>,
    required: &TaskId,
    completed: bool,
    limit: u32,
) -> Result<Vec<TaskId>> {
    let least = i64::from(!completed);
    tx.rows(&TO_RELEASE, (required, least, limit))
}

pub fn release(tx: &mut Tx<'_>, required: &TaskId, waiting: &TaskId) -> Result<()> {
    tx.run(&RELEASE, (required, waiting))
}

/// All tasks that depend on this one, released or not, ordered by id.
pub fn dependents(
    tx: &mut Tx<'_>,
    required: &TaskId,
    after: Option<&TaskId>,
    limit: u32,
) -> Result<Part<Task>> {
    let after = after.map_or("", TaskId::as_str);
    part::read(tx, &DEPENDENT_SIZES, &DEPENDENTS, (required, after), limit)
}

/// Unreleased edges from or to these tasks whose condition is met.
pub fn releasable_edges(tx: &mut Tx<'_>, tasks: &[TaskId], limit: u32) -> Result<BTreeSet<Edge>> {
    let names = list(tasks);
    let values = (&names, limit);
    let mut edges = BTreeSet::new();
    for statement in [&RELEASABLE_FROM, &RELEASABLE_TO] {
        let found = tx.rows(statement, values)?.into_iter();
        edges.extend(found.map(|(required, waiting)| Edge { required, waiting }));
    }
    Ok(edges)
}

/// Requests a recheck of this task's edges, after this transaction has been committed.
pub fn request_recheck(tx: &mut Tx<'_>, task: &TaskId, now: Timestamp) -> Result<()> {
    tx.run(&REQUEST_RECHECK, (task, now))
}

/// Tasks whose recheck was requested up to this moment, oldest first.
pub fn rechecks_due(tx: &mut Tx<'_>, before: Timestamp, limit: u32) -> Result<Vec<TaskId>> {
    tx.rows(&LIST_RECHECKS, (before, limit))
}

/// Whether a recheck of the task was requested.
pub fn is_recheck_due(tx: &mut Tx<'_>, task: &TaskId) -> Result<bool> {
    tx.exists(&GET_RECHECK, task)
}

pub fn finish_rechecks(tx: &mut Tx<'_>, tasks: &[TaskId]) -> Result<()> {
    let names = list(tasks);
    tx.run(&DELETE_RECHECKS, &names)
}

fn list(tasks: &[TaskId]) -> String {
    let names: Vec<[&str; 1]> = tasks.iter().map(|task| [task.as_str()]).collect();
    to_json(&names)
}
