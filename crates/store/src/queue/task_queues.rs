//! Recently used task queues. A provisioner is the first half of their names.

use domain::id::PoolId;
use domain::time::{DAY_MS, MINUTE_MS, Timestamp};

use crate::engine::{AFTER_ALL, BadRow, Cells, FromRow, Result, Table, Tx, columns, statements};

/// A queue is listed for this long after a worker asked it for work.
const AFTER_WORKER_MS: i64 = DAY_MS;
/// A queue is listed for this long after any other use.
const AFTER_TASK_MS: i64 = 5 * DAY_MS;
/// A row is not updated if it is newer than this: only people read it.
const FRESH_MS: i64 = 5 * MINUTE_MS;

columns! { queue: TaskQueue {
    id: Key "task_queue_id",
    description: Fixed "description",
    stability: Fixed "stability",
    expires: Mutable "expires",
    last_date_active: Mutable "last_date_active",
} }

static TABLE: Table = Table::of::<TaskQueue>("task_queues");

/// The first half of a name, with its slash: worker types consist of these characters only.
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
        "INSERT INTO task_queues \
         (task_queue_id, description, stability, expires, last_date_active) \
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

/// The task queues whose names have the same first half.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provisioner {
    pub id: String,
    pub expires: Timestamp,
    pub last_date_active: Timestamp,
}

/// Records that the queue was used.
///
/// If it was recorded a moment ago, nothing is written: on PostgreSQL an `INSERT … ON CONFLICT DO
/// UPDATE` locks the row until the commit, even if its `WHERE` prevents the change. Record several
/// queues in the order of their names, to avoid deadlocks.
pub fn note_used(tx: &mut Tx<'_>, id: &PoolId, now: Timestamp, has_worker: bool) -> Result<()> {
    let life = if has_worker {
        AFTER_WORKER_MS
    } else {
        AFTER_TASK_MS
    };
    let expires = now.plus_millis(life);
    let fresh = (
        id,
        now.plus_millis(-FRESH_MS),
        expires.plus_millis(-FRESH_MS),
    );
    if tx.exists(&FRESH, fresh)? {
        return Ok(());
    }
    tx.run(&TOUCH, (id, expires, now))
}

/// Returns `None` if the queue does not exist or has expired.
pub fn get(tx: &mut Tx<'_>, id: &PoolId, now: Timestamp) -> Result<Option<TaskQueue>> {
    tx.row(&GET, (id, now))
}

/// Ordered by name, either all queues or those of one provisioner.
pub fn list(
    tx: &mut Tx<'_>,
    provisioner_id: Option<&str>,
    after: Option<&PoolId>,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<TaskQueue>> {
    let (first, last) = bounds(provisioner_id);
    let after = after.map_or("", PoolId::as_str).max(&first);
    tx.rows(&LIST, (after, &last, now, limit))
}

/// Ordered by name.
pub fn list_provisioners(
    tx: &mut Tx<'_>,
    after: Option<&str>,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<Provisioner>> {
    let after = after.map_or(String::new(), |id| bounds(Some(id)).1);
    tx.rows(&LIST_PROVISIONERS, (&after, AFTER_ALL, now, limit))
}

pub fn get_provisioner(tx: &mut Tx<'_>, id: &str, now: Timestamp) -> Result<Option<Provisioner>> {
    let (first, last) = bounds(Some(id));
    tx.row(&LIST_PROVISIONERS, (&first, &last, now, 1_u32))
}

/// Deletes at most `limit` rows. Call it again while it returns the limit.
pub fn delete_expired(tx: &mut Tx<'_>, now: Timestamp, limit: u32) -> Result<u64> {
    tx.execute(&DELETE_EXPIRED, (now, limit))
}

/// The lower and upper bound of the names of a provisioner's queues, or of all queues.
fn bounds(provisioner_id: Option<&str>) -> (String, String) {
    match provisioner_id {
        Some(id) => (format!("{id}/"), format!("{id}/{AFTER_ALL}")),
        None => (String::new(), AFTER_ALL.to_owned()),
    }
}

impl FromRow for Provisioner {
    fn read(cells: &mut Cells<'_, '_>) -> Result<Self, BadRow> {
        let (prefix, expires, last_date_active): (String, _, _) = cells.next()?;
        Ok(Self {
            id: prefix.trim_end_matches('/').to_owned(),
            expires,
            last_date_active,
        })
    }
}
