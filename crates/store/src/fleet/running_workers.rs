//! Running workers, joined with the queue's records of them: which ask for work, and which may
//! stop.
//!
//! The columns of workers come from an index, without the documents in their rows.

use domain::facts::RunningWorker;
use domain::id::{PoolId, ProviderId, WorkerGroup, WorkerId, WorkerKey};
use domain::queue_worker::QuarantineEntry;
use domain::supply::{Group, Horizon, Signs};
use domain::time::Timestamp;
use domain::worker::Advice;

use crate::engine::{ALL_ROWS, BadRow, Bind, Cells, FromRow, Result, Table, Tx, statements};
use crate::fleet::worker_supply::groups;

/// Rows without a column for the pool, since the caller names it.
static TABLE: Table = Table::unlisted("workers", 2);

macro_rules! known_to_queue {
    () => {
        " FROM workers AS w LEFT JOIN queue_workers AS q ON q.task_queue_id = w.worker_pool_id \
         AND q.worker_group = w.worker_group AND q.worker_id = w.worker_id "
    };
}

// The same conditions as `domain::supply` applies to one worker.
macro_rules! without_task {
    () => {
        "WHERE w.state = 'running' AND w.worker_pool_id >= $1 AND w.worker_pool_id <= $2 \
         AND (q.quarantine_until IS NULL OR q.quarantine_until < $3) \
         AND NOT EXISTS (SELECT 1 FROM claimed_tasks AS c WHERE c.task_queue_id = w.worker_pool_id \
         AND c.worker_group = w.worker_group AND c.worker_id = w.worker_id AND c.taken_until > $3) "
    };
}

macro_rules! silent {
    () => {
        concat!(known_to_queue!(), without_task!(), "AND (COALESCE(w.registered, w.created) < $4 \
         OR COALESCE(w.registered, w.created) > $5) \
         AND (q.last_date_active IS NULL OR q.last_date_active < $6 OR q.last_date_active > $5) \
         AND (q.last_task_ended IS NULL OR q.last_task_ended < $6 OR q.last_task_ended > $5) ")
    };
}

statements! { TABLE;
    SILENT "worker_supply_silent_between" = groups!("$7", silent!());
    FRESH "worker_supply_fresh_between" = groups!("$6", known_to_queue!(), without_task!(),
        "AND COALESCE(w.registered, w.created) >= $4 AND COALESCE(w.registered, w.created) <= $5 \
         AND q.last_task_ended IS NULL ");
    LIST_SILENT "worker_list_silent" = concat!(
        "SELECT w.worker_group, w.worker_id, w.provider_id, COALESCE(w.registered, w.created), \
         q.last_date_active, q.last_task_ended", silent!(),
        "ORDER BY w.worker_group, w.worker_id LIMIT $7");
    LIST "worker_list_running" = concat!(
        "SELECT w.worker_group, w.worker_id, w.provider_id, w.launch_config_id, w.offering, w.capacity, \
         w.created, w.registered, w.idle_hold, w.draining, w.advised, w.advice_reason, w.price, \
         q.last_date_active, q.last_task_ended, \
         CASE WHEN q.quarantine_until >= $1 THEN q.quarantine_details END, \
         (SELECT COUNT(*) FROM claimed_tasks AS c WHERE c.task_queue_id = w.worker_pool_id \
         AND c.worker_group = w.worker_group AND c.worker_id = w.worker_id AND c.taken_until > $1)",
        known_to_queue!(),
        "WHERE w.worker_pool_id = $2 AND w.state = 'running' \
         AND (w.worker_group, w.worker_id) >= ($3, $4) \
         ORDER BY w.worker_group, w.worker_id LIMIT $5");
    NTH "worker_nth_running" =
        "SELECT worker_group, worker_id FROM workers WHERE worker_pool_id = $1 \
         AND state = 'running' ORDER BY worker_group, worker_id LIMIT 1 OFFSET $2";
}

/// A running worker that does not ask for work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SilentWorker {
    pub group: WorkerGroup,
    pub id: WorkerId,
    pub provider_id: ProviderId,
    pub signs: Signs,
}

/// The silent workers of all pools from the first to the last that are not quarantined.
pub fn silent_between(
    tx: &mut Tx<'_>,
    horizon: &Horizon,
    first: &PoolId,
    last: &PoolId,
) -> Result<Vec<Group>> {
    tx.rows(&SILENT, silent(horizon, first, last, ALL_ROWS))
}

/// The workers that registered a moment ago and have not had a task yet.
pub fn fresh_between(
    tx: &mut Tx<'_>,
    horizon: &Horizon,
    first: &PoolId,
    last: &PoolId,
) -> Result<Vec<Group>> {
    let registered = (horizon.now, horizon.fresh_since, horizon.until);
    tx.rows(&FRESH, (first, last, registered, ALL_ROWS))
}

/// The silent workers of a pool, ordered by group and id.
pub fn list_silent(
    tx: &mut Tx<'_>,
    horizon: &Horizon,
    pool_id: &PoolId,
    limit: u32,
) -> Result<Vec<SilentWorker>> {
    tx.rows(&LIST_SILENT, silent(horizon, pool_id, pool_id, limit))
}

fn silent<'v>(horizon: &Horizon, first: &'v PoolId, last: &'v PoolId, limit: u32) -> impl Bind<'v> {
    let registered = (horizon.now, horizon.registered_since, horizon.until);
    (first, last, registered, horizon.asked_since, limit)
}

impl FromRow for SilentWorker {
    fn read(cells: &mut Cells<'_, '_>) -> Result<Self, BadRow> {
        Ok(Self {
            group: cells.next()?,
            id: cells.next()?,
            provider_id: cells.next()?,
            signs: Signs {
                registered: cells.next()?,
                last_asked: cells.next()?,
                last_task_ended: cells.next()?,
                has_task: false,
            },
        })
    }
}

/// The running workers of a pool, ordered by group and id, without the first `skip` of them.
pub fn list(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    now: Timestamp,
    skip: u64,
    limit: u32,
) -> Result<Vec<RunningWorker>> {
    let mut start: (String, String) = Default::default();
    if skip > 0 {
        let Some(nth) = tx.row(&NTH, (pool_id, &skip))? else {
            return Ok(Vec::new());
        };
        start = nth;
    }
    let start = (start.0.as_str(), start.1.as_str());
    tx.rows_with(&LIST, (now, pool_id, start, limit), |row| {
        running(&mut Cells::of(row), pool_id, now)
    })
}

fn running(
    cells: &mut Cells<'_, '_>,
    pool_id: &PoolId,
    now: Timestamp,
) -> Result<RunningWorker, BadRow> {
    Ok(RunningWorker {
        key: WorkerKey {
            pool_id: pool_id.clone(),
            group: cells.next()?,
            id: cells.next()?,
        },
        provider_id: cells.next()?,
        launch_config_id: cells.next()?,
        offering: cells.next()?,
        capacity: cells.next()?,
        created: cells.next()?,
        registered: cells.next()?,
        idle_hold_ms: cells.next()?,
        advice: advice(cells.next()?),
        price: cells.next()?,
        last_asked: cells.next()?,
        last_task_ended: cells.next()?,
        quarantined_since: cells
            .next::<Option<Vec<QuarantineEntry>>>()?
            .map(|entries| {
                let imposed = entries.last().map(|entry| entry.updated_at.parse());
                imposed.and_then(Result::ok).unwrap_or(now)
            }),
        claimed: cells.next()?,
    })
}

fn advice(columns: (bool, Option<i64>, Option<String>)) -> Option<Advice> {
    let (terminate, decided_at, reason) = columns;
    (terminate || decided_at.is_some()).then(|| Advice {
        terminate,
        reason: reason.unwrap_or_default(),
        decided_at: decided_at.unwrap_or_default(),
    })
}
