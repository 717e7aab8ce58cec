//! The queue's records of workers. A worker may have a row here, in the table of workers, or in
//! both.

use domain::id::{PoolId, ProviderId, WorkerGroup, WorkerId, WorkerKey};
use domain::queue_worker::QueueWorker;
use domain::status::QuarantinedWorkers;
use domain::time::{HOUR_MS, Timestamp};

use crate::engine::{ALL_ROWS, Cells, Entity, Result, Table, Tx, columns, from_row, statements};

columns! { worker: QueueWorker {
    key: Key ["task_queue_id", "worker_group", "worker_id"],
    recent_tasks: Mutable "recent_tasks",
    quarantine_until: Mutable "quarantine_until",
    quarantine_details: Mutable "quarantine_details",
    expires: Mutable "expires",
    first_claim: Mutable "first_claim",
    last_date_active: Mutable "last_date_active",
    last_task_ended: Fixed "last_task_ended",
}
also {
    // Each sign of life moves the end of the row, and the index only once an hour.
    Mutable "expiry_hour" = worker.expires.start_of(HOUR_MS),
} }

from_row! { QuarantinedWorkers { pool, count, first_end } }

/// The workers that the queue knows of one task queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueWorkerTotals {
    pub queue: PoolId,
    pub workers: u64,
    /// With a claim.
    pub running: u64,
    /// Without a claim, and not in quarantine.
    pub idle: u64,
    pub quarantined: u64,
}

from_row! { QueueWorkerTotals { queue, workers, running, idle, quarantined } }

pub(crate) static TABLE: Table = Table::of::<QueueWorker>("queue_workers");

statements! { TABLE;
    COUNT_QUARANTINED "queue_worker_count_quarantined" =
        "SELECT task_queue_id, COUNT(*), MIN(quarantine_until) FROM queue_workers \
         WHERE quarantine_until > $1 GROUP BY task_queue_id ORDER BY task_queue_id LIMIT $2";
    TOTALS "queue_worker_totals" =
        "SELECT q.task_queue_id, COUNT(*), \
         CAST(SUM(CASE WHEN c.worker_id IS NULL THEN 0 ELSE 1 END) AS BIGINT), \
         CAST(SUM(CASE WHEN c.worker_id IS NULL AND COALESCE(q.quarantine_until, 0) <= $1 \
         THEN 1 ELSE 0 END) AS BIGINT), \
         CAST(SUM(CASE WHEN COALESCE(q.quarantine_until, 0) > $1 THEN 1 ELSE 0 END) AS BIGINT) \
         FROM queue_workers AS q LEFT JOIN (SELECT DISTINCT task_queue_id, worker_group, worker_id \
         FROM claimed_tasks WHERE taken_until > $1) AS c \
         ON c.task_queue_id = q.task_queue_id AND c.worker_group = q.worker_group \
         AND c.worker_id = q.worker_id \
         WHERE q.expires >= $1 OR COALESCE(q.quarantine_until, 0) > $1 \
         GROUP BY q.task_queue_id ORDER BY q.task_queue_id LIMIT $2";
    GET "queue_worker_get" =
        "SELECT {columns} FROM queue_workers \
         WHERE task_queue_id = $1 AND worker_group = $2 AND worker_id = $3";
    // A worker that has expired and is not quarantined is not listed, whether it is deleted already
    // or not.
    LIST "queue_worker_list" =
        "SELECT {columns} FROM queue_workers \
         WHERE task_queue_id = $1 AND (worker_group, worker_id) > ($2, $3) \
         AND (expires >= $4 OR COALESCE(quarantine_until, 0) >= $4) \
         AND COALESCE(quarantine_until, 0) >= $5 AND COALESCE(quarantine_until, 0) < $6 \
         ORDER BY worker_group, worker_id LIMIT $7";
    UPSERT "queue_worker_upsert" =
        "INSERT INTO queue_workers ({written}) VALUES ({values}) \
         ON CONFLICT (task_queue_id, worker_group, worker_id) DO UPDATE SET {excluded}, \
         last_task_ended = COALESCE(excluded.last_task_ended, queue_workers.last_task_ended)";
    // SQLite runs a CROSS JOIN in the order in which it is written, from the live workers to the
    // queue's records. Rows of other pools and of stopped workers are not read.
    OF_LIVE "queue_worker_of_live" =
        "SELECT q.task_queue_id, q.worker_group, q.worker_id, q.quarantine_until, q.expires, \
         q.first_claim, q.last_date_active, q.last_task_ended \
         FROM workers AS w CROSS JOIN queue_workers AS q \
         WHERE w.provider_id = $1 AND w.state <> 'stopped' AND w.worker_group = $2 \
         AND (w.worker_pool_id, w.worker_id) >= ($3, $4) \
         AND (w.worker_pool_id, w.worker_id) <= ($5, $6) \
         AND q.task_queue_id = w.worker_pool_id AND q.worker_group = w.worker_group \
         AND q.worker_id = w.worker_id \
         ORDER BY q.task_queue_id, q.worker_group, q.worker_id LIMIT $7";
    DELETE_EXPIRED "queue_worker_delete_expired" =
        "DELETE FROM queue_workers WHERE (task_queue_id, worker_group, worker_id) IN (\
         SELECT task_queue_id, worker_group, worker_id FROM queue_workers \
         WHERE expiry_hour < $1 AND expires < $1 AND COALESCE(quarantine_until, 0) < $1 \
         ORDER BY expiry_hour LIMIT $2)";
}

pub fn get(tx: &mut Tx<'_>, key: &WorkerKey) -> Result<Option<QueueWorker>> {
    tx.row(&GET, key)
}

/// The queue's records of one page of a provider's live workers in one group, from the first to the
/// last, without their recent tasks and the history of their quarantines.
pub fn list_of_live(
    tx: &mut Tx<'_>,
    provider_id: &ProviderId,
    first: &WorkerKey,
    last: &WorkerKey,
) -> Result<Vec<QueueWorker>> {
    let page = (
        &first.group,
        &first.pool_id,
        &first.id,
        &last.pool_id,
        &last.id,
    );
    tx.rows_with(&OF_LIVE, (provider_id, page, ALL_ROWS), |row| {
        let mut cells = Cells::of(row);
        Ok(QueueWorker {
            key: cells.next()?,
            recent_tasks: Vec::new(),
            quarantine_until: cells.next()?,
            quarantine_details: Vec::new(),
            expires: cells.next()?,
            first_claim: cells.next()?,
            last_date_active: cells.next()?,
            last_task_ended: cells.next()?,
        })
    })
}

/// The workers that are quarantined now, by pool.
pub fn count_quarantined(tx: &mut Tx<'_>, now: Timestamp) -> Result<Vec<QuarantinedWorkers>> {
    tx.rows(&COUNT_QUARANTINED, (now, ALL_ROWS))
}

/// The workers of every queue that has any.
pub fn totals(tx: &mut Tx<'_>, now: Timestamp) -> Result<Vec<QueueWorkerTotals>> {
    tx.rows(&TOTALS, (now, ALL_ROWS))
}

/// Ordered by group and id. `quarantined` selects only quarantined workers, or only others.
pub fn list(
    tx: &mut Tx<'_>,
    task_queue_id: &PoolId,
    quarantined: Option<bool>,
    now: Timestamp,
    after: Option<(&WorkerGroup, &WorkerId)>,
    limit: u32,
) -> Result<Vec<QueueWorker>> {
    let after = after.map_or(("", ""), |(group, id)| (group.as_str(), id.as_str()));
    let now_ms = now.as_millis();
    let (at_least, below) = match quarantined {
        None => (i64::MIN, i64::MAX),
        Some(true) => (now_ms, i64::MAX),
        Some(false) => (i64::MIN, now_ms),
    };
    tx.rows(&LIST, (task_queue_id, after, now, at_least, below, limit))
}

/// Inserts or replaces the row.
pub fn upsert(tx: &mut Tx<'_>, worker: &QueueWorker) -> Result<()> {
    tx.run(&UPSERT, worker.inserted())
}

/// Keeps quarantined workers. Call it again while it returns the limit.
pub fn delete_expired(tx: &mut Tx<'_>, now: Timestamp, limit: u32) -> Result<u64> {
    tx.execute(&DELETE_EXPIRED, (now, limit))
}
