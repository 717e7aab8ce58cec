//! Recorded workers: those that have stopped, or are stopping.

use domain::id::WorkerKey;
use domain::recording::RecordedWorker;
use domain::time::Timestamp;

use crate::engine::{Entity, Result, Table, Tx, columns, statements};

columns! { worker: RecordedWorker {
    key: Key ["worker_pool_id", "worker_group", "worker_id"],
    provider_id: Fixed "provider_id",
    launch_config_id: Fixed "launch_config_id",
    capacity: Fixed "capacity",
    price: Fixed "price",
    created: Fixed "created",
    registered: Fixed "registered",
    stopping: Fixed "stopping",
    stopped: Fixed "stopped",
    is_interrupted: Fixed "interrupted",
} }

static TABLE: Table = Table::of::<RecordedWorker>("recorded_workers");

statements! { TABLE;
    INSERT "recorded_worker_insert" =
        "INSERT INTO recorded_workers ({written}) VALUES ({values}) ON CONFLICT DO NOTHING";
    STOPPED "recorded_worker_note_stopped" =
        "UPDATE recorded_workers SET stopped = $1 WHERE worker_pool_id = $2 \
         AND worker_group = $3 AND worker_id = $4 AND stopped IS NULL";
    // The first moment appears twice because the first condition bounds the search.
    LIST "recorded_worker_list" =
        "SELECT {columns} FROM recorded_workers \
         WHERE (created, worker_pool_id, worker_group, worker_id) > ($1, $2, $3, $4) \
         AND created < $5 AND (stopped IS NULL OR stopped > $6) \
         ORDER BY created, worker_pool_id, worker_group, worker_id LIMIT $7";
    DELETE_BEFORE "recorded_worker_delete_before" =
        "DELETE FROM recorded_workers WHERE (worker_pool_id, worker_group, worker_id) IN (\
         SELECT worker_pool_id, worker_group, worker_id FROM recorded_workers \
         WHERE created < $1 AND (stopped < $1 OR stopping < $1) ORDER BY created LIMIT $2)";
    FIRST_TOO_MANY "recorded_worker_first_too_many" =
        "SELECT created FROM recorded_workers ORDER BY created DESC, worker_pool_id DESC, \
         worker_group DESC, worker_id DESC LIMIT 1 OFFSET $1";
    DELETE_TOO_MANY "recorded_worker_delete_too_many" =
        "DELETE FROM recorded_workers WHERE (worker_pool_id, worker_group, worker_id) IN (\
         SELECT worker_pool_id, worker_group, worker_id FROM recorded_workers \
         WHERE created <= $1 ORDER BY created LIMIT $2)";
}

/// The place of a worker in the list.
pub type WorkerPlace = (Timestamp, String, String, String);

/// The place of this worker.
pub fn place(worker: &RecordedWorker) -> WorkerPlace {
    let WorkerKey { pool_id, group, id } = &worker.key;
    let key = (pool_id.to_string(), group.to_string(), id.to_string());
    (worker.created, key.0, key.1, key.2)
}

/// Changes nothing if the worker is recorded already.
pub fn insert(tx: &mut Tx<'_>, worker: &RecordedWorker) -> Result<()> {
    tx.run(&INSERT, worker.inserted())
}

pub fn note_stopped(tx: &mut Tx<'_>, key: &WorkerKey, now: Timestamp) -> Result<()> {
    tx.run(&STOPPED, (now, key))
}

/// The workers after this place that were launched before `until`, without those that had stopped
/// by `since`.
pub fn list(
    tx: &mut Tx<'_>,
    after: &WorkerPlace,
    since: Timestamp,
    until: Timestamp,
    limit: u32,
) -> Result<Vec<RecordedWorker>> {
    let (created, pool_id, group, id) = after;
    let after = (*created, pool_id, group, id);
    tx.rows(&LIST, (after, until, since, limit))
}

/// Deletes workers that had begun to stop by then. Call it again while it returns the limit.
pub fn delete_before(tx: &mut Tx<'_>, before: Timestamp, limit: u32) -> Result<u64> {
    tx.execute(&DELETE_BEFORE, (before, limit))
}

/// When the newest worker beyond the `kept` newest ones was created. This passes over them, so do
/// it outside of the transaction that deletes.
pub fn find_excess(tx: &mut Tx<'_>, kept: u32) -> Result<Option<Timestamp>> {
    tx.row(&FIRST_TOO_MANY, kept)
}

/// Deletes workers created until then, the oldest first. Call it again while it returns the limit.
pub fn delete_until(tx: &mut Tx<'_>, created: Timestamp, limit: u32) -> Result<u64> {
    tx.execute(&DELETE_TOO_MANY, (created, limit))
}
