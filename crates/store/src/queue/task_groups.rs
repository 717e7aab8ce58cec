//! Task groups, and the tasks in them.

use domain::Version;
use domain::id::{TaskGroupId, TaskId};
use domain::task::{Task, TaskGroup};
use domain::time::Timestamp;

use crate::engine::{Part, Result, Table, Tx, columns, part, statements};
use crate::queue::tasks::{active, size, task_columns};

columns! { group: TaskGroup {
    id: Key "task_group_id",
    scheduler_id: Fixed "scheduler_id",
    expires: Mutable "expires",
    sealed: Mutable "sealed",
    version: Version "version",
} }

static TABLE: Table = Table::of::<TaskGroup>("task_groups");

macro_rules! of_group {
    () => {
        " FROM tasks AS t CROSS JOIN task_definitions AS d \
         WHERE t.task_group_id = $1 AND t.task_id > $2 AND d.task_id = t.task_id \
         ORDER BY t.task_id LIMIT $3"
    };
}

statements! { TABLE;
    GET "task_group_get" =
        "SELECT {columns} FROM task_groups \
         WHERE task_group_id = $1";
    INSERT "task_group_insert" =
        "INSERT INTO task_groups ({written}) VALUES ({values}) ON CONFLICT DO NOTHING";
    UPDATE "task_group_update" =
        "UPDATE task_groups SET {changes} WHERE {key}";
    TOUCH "task_group_touch" =
        "UPDATE task_groups SET version = version + 1 WHERE task_group_id = $1";
    LIST "task_group_tasks" = concat!("SELECT ", task_columns!(), of_group!());
    SIZES "task_group_sizes" = concat!("SELECT ", size!(), of_group!());
    ACTIVE "task_group_active" = concat!(
        "SELECT task_id FROM tasks WHERE task_group_id = $1 AND task_id > $2 AND ", active!(),
        " ORDER BY task_id LIMIT $3");
    SIZE "task_group_size" = "SELECT COUNT(*) FROM tasks WHERE task_group_id = $1";
    DELETE_EXPIRED "task_group_delete_expired" =
        "DELETE FROM task_groups WHERE task_group_id IN (\
         SELECT g.task_group_id FROM task_groups AS g WHERE g.expires < $1 AND NOT EXISTS (\
         SELECT 1 FROM tasks AS t WHERE t.task_group_id = g.task_group_id) \
         ORDER BY g.expires LIMIT $2)";
}

pub fn get(tx: &mut Tx<'_>, id: &TaskGroupId) -> Result<Option<TaskGroup>> {
    tx.row(&GET, id)
}

/// Inserts a group, unless another transaction did so since it was looked for.
pub fn insert(tx: &mut Tx<'_>, group: &TaskGroup) -> Result<()> {
    tx.insert_new(&INSERT, group)
}

pub fn update(tx: &mut Tx<'_>, group: &TaskGroup) -> Result<Version> {
    tx.update(&UPDATE, group)?;
    Ok(group.version.next())
}

/// Makes a concurrent transaction that touches this group run again, so that it sees this
/// transaction's changes.
pub fn touch(tx: &mut Tx<'_>, id: &TaskGroupId) -> Result<()> {
    tx.run(&TOUCH, id)
}

/// The tasks of a group, ordered by id.
pub fn tasks(
    tx: &mut Tx<'_>,
    id: &TaskGroupId,
    after: Option<&TaskId>,
    limit: u32,
) -> Result<Part<Task>> {
    let after = after.map_or("", TaskId::as_str);
    part::read(tx, &SIZES, &LIST, (id, after), limit)
}

/// The unresolved tasks of a group, ordered by id.
pub fn active(
    tx: &mut Tx<'_>,
    id: &TaskGroupId,
    after: Option<&TaskId>,
    limit: u32,
) -> Result<Vec<TaskId>> {
    let after = after.map_or("", TaskId::as_str);
    tx.rows(&ACTIVE, (id, after, limit))
}

/// Number of tasks in the group.
pub fn size(tx: &mut Tx<'_>, id: &TaskGroupId) -> Result<u64> {
    tx.number(&SIZE, id)
}

/// Deletes expired groups without tasks. Call it again while it returns the limit.
pub fn delete_expired(tx: &mut Tx<'_>, now: Timestamp, limit: u32) -> Result<u64> {
    tx.execute(&DELETE_EXPIRED, (now, limit))
}
