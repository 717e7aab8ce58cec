//! Task queues that somebody used lately. The provisioners of old are the first halves of their names.

use domain::id::PoolId;
use domain::time::{DAY_MS, MINUTE_MS, Timestamp};

use crate::engine::columns::{columns, entity};
use crate::engine::error::StoreError;
use crate::engine::row::{BadRow, Row};
use crate::engine::statement::{AFTER_ALL, statements};
use crate::engine::table::Table;
use crate::engine::tx::Tx;

/// A queue is known for so long after a worker asked it for work …
const AFTER_WORKER_MS: i64 = DAY_MS;
/// … or after something else happened to it.
const AFTER_TASK_MS: i64 = 5 * DAY_MS;
/// A row that is no older than this is left alone: it is only there for people to look at.
const FRESH_MS: i64 = 5 * MINUTE_MS;

columns! { queue: TaskQueue {
    id: Key "task_queue_id",
    description: Fixed "description",
    stability: Fixed "stability",
    expires: Mutable "expires",
    last_date_active: Mutable "last_date_active",
} }

static TABLE: Table = Table::of::<TaskQueue>("task_queues");

/// The first half of a name, with its slash: a worker type has no other characters than these.
macro_rules! provisioner {
    () => {
        "rtrim(task_queue_id, 'abcdefghijklmnopqrstuvwxyz0123456789-')"
    };
}

statements! { TABLE;
    GET "task_queue_get" =
        "SELECT {columns} FROM task_queues \
         WHERE task_queue_id = $1 AND expires >= $2";
    LIST "task_queue_list" =
        "SELECT {columns} FROM task_queues \
         WHERE task_queue_id > $1 AND task_queue_id < $2 AND expires >= $3 \
         ORDER BY task_queue_id LIMIT $4";
    LIST_PROVISIONERS "task_queue_list_provisioners" = concat!(
        "SELECT ", provisioner!(), ", MAX(expires), MAX(last_date_active) FROM task_queues \
         WHERE task_queue_id > $1 AND task_queue_id < $2 AND expires >= $3 \
         GROUP BY ", provisioner!(), " ORDER BY ", provisioner!(), " LIMIT $4");
    FRESH "task_queue_is_fresh" =
        "SELECT task_queue_id FROM task_queues \
         WHERE task_queue_id = $1 AND last_date_active >= $2 AND expires >= $3";
    TOUCH "task_queue_touch" =
        "INSERT INTO task_queues (task_queue_id, description, stability, expires, last_date_active) \
         VALUES ($1, '', 'experimental', $2, $3) ON CONFLICT (task_queue_id) DO UPDATE SET \
         expires = CASE WHEN task_queues.expires > excluded.expires THEN task_queues.expires \
         ELSE excluded.expires END, last_date_active = excluded.last_date_active";
    DELETE_EXPIRED "task_queue_delete_expired" =
        "DELETE FROM task_queues WHERE task_queue_id IN (SELECT task_queue_id FROM task_queues \
         WHERE expires < $1 ORDER BY expires LIMIT $2)";
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskQueue {
    pub id: PoolId,
    pub description: String,
    pub stability: String,
    pub expires: Timestamp,
    pub last_date_active: Timestamp,
}

/// What the task queues with one first half have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provisioner {
    pub id: String,
    pub expires: Timestamp,
    pub last_date_active: Timestamp,
}

/// Something happened to this queue: keeps it known.
///
/// If that was noted a moment ago, nothing is written: on PostgreSQL an `INSERT … ON CONFLICT DO UPDATE` locks the
/// row until the commit, even if its `WHERE` keeps it from changing anything. Of several queues, touch them by name.
pub fn note_used(
    tx: &mut Tx<'_>,
    id: &PoolId,
    now: Timestamp,
    has_worker: bool,
) -> Result<(), StoreError> {
    let life = if has_worker {
        AFTER_WORKER_MS
    } else {
        AFTER_TASK_MS
    };
    let expires = now.plus_millis(life);
    let fresh = [
        id.as_str().into(),
        now.plus_millis(-FRESH_MS).into(),
        expires.plus_millis(-FRESH_MS).into(),
    ];
    if tx.row(&FRESH, &fresh, |_| Ok(()))?.is_some() {
        return Ok(());
    }
    let values = [id.as_str().into(), expires.into(), now.into()];
    tx.execute(&TOUCH, &values).map(drop)
}

/// `None` also if its time is over.
pub fn get(tx: &mut Tx<'_>, id: &PoolId, now: Timestamp) -> Result<Option<TaskQueue>, StoreError> {
    tx.row(&GET, &[id.as_str().into(), now.into()], entity)
}

/// By name; those of one provisioner, if one is given.
pub fn list(
    tx: &mut Tx<'_>,
    provisioner_id: Option<&str>,
    after: Option<&PoolId>,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<TaskQueue>, StoreError> {
    let (first, last) = between(provisioner_id);
    let after = after.map_or("", PoolId::as_str).max(&first);
    let values = [after.into(), (&last).into(), now.into(), limit.into()];
    tx.rows(&LIST, &values, entity)
}

/// By name.
pub fn list_provisioners(
    tx: &mut Tx<'_>,
    after: Option<&str>,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<Provisioner>, StoreError> {
    let after = after.map_or(String::new(), |id| between(Some(id)).1);
    let values = [(&after).into(), AFTER_ALL.into(), now.into(), limit.into()];
    tx.rows(&LIST_PROVISIONERS, &values, provisioner)
}

pub fn get_provisioner(
    tx: &mut Tx<'_>,
    id: &str,
    now: Timestamp,
) -> Result<Option<Provisioner>, StoreError> {
    let (first, last) = between(Some(id));
    let values = [(&first).into(), (&last).into(), now.into(), 1_u32.into()];
    tx.row(&LIST_PROVISIONERS, &values, provisioner)
}

/// As many as the limit means: ask again.
pub fn delete_expired(tx: &mut Tx<'_>, now: Timestamp, limit: u32) -> Result<u64, StoreError> {
    tx.execute(&DELETE_EXPIRED, &[now.into(), limit.into()])
}

/// What the names of all queues of a provisioner lie between; of all queues, without one.
fn between(provisioner_id: Option<&str>) -> (String, String) {
    match provisioner_id {
        Some(id) => (format!("{id}/"), format!("{id}/{AFTER_ALL}")),
        None => (String::new(), AFTER_ALL.to_owned()),
    }
}

fn provisioner(row: &Row<'_>) -> Result<Provisioner, BadRow> {
    Ok(Provisioner {
        id: row.text(0)?.trim_end_matches('/').to_owned(),
        expires: row.time(1)?,
        last_date_active: row.time(2)?,
    })
}
