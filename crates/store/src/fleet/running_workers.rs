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

use crate::engine::{ALL_ROWS, BadRow, Result, Row, Table, Tx, statements};
use crate::fleet::worker_supply::group;

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

macro_rules! groups {
    () => {
        "SELECT w.worker_pool_id, COALESCE(w.launch_config_id, ''), w.state, w.draining, COUNT(*), \
         CAST(SUM(w.capacity) AS BIGINT)"
    };
}

macro_rules! grouped {
    ($limit:literal) => {
        concat!(
            "GROUP BY w.worker_pool_id, COALESCE(w.launch_config_id, ''), w.state, w.draining \
             ORDER BY 1, 2, 3, 4 LIMIT ",
            $limit
        )
    };
}

statements! { TABLE;
    SILENT "worker_supply_silent_between" = concat!(groups!(), silent!(), grouped!("$7"));
    FRESH "worker_supply_fresh_between" = concat!(groups!(), known_to_queue!(), without_task!(),
        "AND COALESCE(w.registered, w.created) >= $4 AND COALESCE(w.registered, w.created) <= $5 \
         AND q.last_task_ended IS NULL ", grouped!("$6"));
    LIST_SILENT "worker_list_silent" = concat!(
        "SELECT w.worker_group, w.worker_id, w.provider_id, COALESCE(w.registered, w.created), \
         q.last_date_active, q.last_task_ended", silent!(),
        "ORDER BY w.worker_group, w.worker_id LIMIT $7");
    LIST "worker_list_running" = concat!(
        "SELECT w.worker_group, w.worker_id, w.provider_id, w.launch_config_id, w.capacity, \
         w.created, w.registered, w.idle_hold, w.draining, w.advised, w.advice_reason, \
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
    let values = [
        first.as_str().into(),
        last.as_str().into(),
        horizon.now.into(),
        horizon.registered_since.into(),
        horizon.until.into(),
        horizon.asked_since.into(),
        ALL_ROWS.into(),
    ];
    tx.rows(&SILENT, &values, group)
}

/// The workers that registered a moment ago and have not had a task yet.
pub fn fresh_between(
    tx: &mut Tx<'_>,
    horizon: &Horizon,
    first: &PoolId,
    last: &PoolId,
) -> Result<Vec<Group>> {
    let values = [
        first.as_str().into(),
        last.as_str().into(),
        horizon.now.into(),
        horizon.fresh_since.into(),
        horizon.until.into(),
        ALL_ROWS.into(),
    ];
    tx.rows(&FRESH, &values, group)
}

/// The silent workers of a pool, ordered by group and id.
pub fn list_silent(
    tx: &mut Tx<'_>,
    horizon: &Horizon,
    pool_id: &PoolId,
    limit: u32,
) -> Result<Vec<SilentWorker>> {
    let values = [
        pool_id.as_str().into(),
        pool_id.as_str().into(),
        horizon.now.into(),
        horizon.registered_since.into(),
        horizon.until.into(),
        horizon.asked_since.into(),
        limit.into(),
    ];
    tx.rows(&LIST_SILENT, &values, |row| {
        Ok(SilentWorker {
            group: row.text(0)?.parse()?,
            id: row.text(1)?.parse()?,
            provider_id: row.text(2)?.parse()?,
            signs: Signs {
                registered: row.time(3)?,
                last_asked: row.optional_time(4)?,
                last_task_ended: row.optional_time(5)?,
                has_task: false,
            },
        })
    })
}

/// The running workers of a pool, ordered by group and id, without the first `skip` of them.
pub fn list(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    now: Timestamp,
    skip: u64,
    limit: u32,
) -> Result<Vec<RunningWorker>> {
    let start = match i64::try_from(skip).unwrap_or(i64::MAX) {
        0 => None,
        skip => {
            let values = [pool_id.as_str().into(), skip.into()];
            let nth = tx.row(&NTH, &values, |row| {
                Ok((row.text(0)?.to_owned(), row.text(1)?.to_owned()))
            })?;
            let Some(nth) = nth else {
                return Ok(Vec::new());
            };
            Some(nth)
        }
    };
    let (group, id) = start.unwrap_or_default();
    let values = [
        now.into(),
        pool_id.as_str().into(),
        group.as_str().into(),
        id.as_str().into(),
        limit.into(),
    ];
    tx.rows(&LIST, &values, |row| running(row, pool_id, now))
}

fn running(row: &Row<'_>, pool_id: &PoolId, now: Timestamp) -> Result<RunningWorker, BadRow> {
    let draining = row.integer(8)? != 0;
    let advised = row.optional_integer(9)?;
    let advice = (draining || advised.is_some()).then_some(Advice {
        terminate: draining,
        reason: row.optional_text(10)?.unwrap_or_default().to_owned(),
        decided_at: advised.unwrap_or_default(),
    });
    let quarantines: Option<Vec<QuarantineEntry>> = match row.optional_text(13)? {
        Some(_) => Some(row.json(13)?),
        None => None,
    };
    Ok(RunningWorker {
        key: WorkerKey {
            pool_id: pool_id.clone(),
            group: row.text(0)?.parse()?,
            id: row.text(1)?.parse()?,
        },
        provider_id: row.text(2)?.parse()?,
        launch_config_id: row.optional_text(3)?.map(str::parse).transpose()?,
        capacity: row.number(4)?,
        created: row.time(5)?,
        registered: row.optional_time(6)?,
        idle_hold_ms: row.optional_integer(7)?,
        advice,
        last_asked: row.optional_time(11)?,
        last_task_ended: row.optional_time(12)?,
        quarantined_since: quarantines.map(|entries| {
            let imposed = entries.last().map(|entry| entry.updated_at.parse());
            imposed.and_then(Result::ok).unwrap_or(now)
        }),
        claimed: row.number(14)?,
    })
}
