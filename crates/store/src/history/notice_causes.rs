//! Causes of errors, counted for each channel that notifies people.

use domain::Version;
use domain::error_report::ErrorReport;
use domain::id::{ErrorId, PoolId};
use domain::time::Timestamp;
use serde_json::{Map, Value as Json};

use crate::engine::{Cells, Entity, Result, Table, Tx, columns, statements};
use crate::history::worker_errors;

columns! { cause: NoticeCause {
    channel: Key "channel",
    pool_id: Key "worker_pool_id",
    cause: Key "cause",
    error_id: Mutable "error_id",
    first_reported: Fixed "first_reported",
    last_reported: Mutable "last_reported",
    n_waiting: Mutable "untold",
    first_waiting: Mutable "first_untold",
    n_notified: Mutable "told",
    last_notified: Mutable "last_told",
    due: Mutable "due",
    version: Version "version",
} }

static TABLE: Table = Table::of::<NoticeCause>("notice_causes");

statements! { TABLE;
    GET "notice_cause_get" =
        "SELECT {columns} FROM notice_causes \
         WHERE channel = $1 AND worker_pool_id = $2 AND cause = $3";
    COUNT "notice_cause_count" =
        "SELECT COUNT(*) FROM notice_causes WHERE channel = $1 AND worker_pool_id = $2";
    INSERT "notice_cause_insert" =
        "INSERT INTO notice_causes ({written}) VALUES ({values}) ON CONFLICT DO NOTHING";
    UPDATE "notice_cause_update" =
        "UPDATE notice_causes SET {changes} WHERE {key}";
    DUE "notice_cause_list_due" =
        "SELECT {columns} FROM notice_causes WHERE channel = $1 AND due <= $2 \
         ORDER BY due, worker_pool_id, cause LIMIT $3";
    DELETE "notice_cause_delete" =
        "DELETE FROM notice_causes WHERE channel = $1 AND worker_pool_id = $2 AND cause = $3";
    DELETE_SETTLED "notice_cause_delete_settled" =
        "DELETE FROM notice_causes WHERE (channel, worker_pool_id, cause) IN (\
         SELECT channel, worker_pool_id, cause FROM notice_causes \
         WHERE due IS NULL AND last_told < $1 ORDER BY last_told LIMIT $2)";
    DELETE_OLDER "notice_cause_delete_older_than" =
        "DELETE FROM notice_causes WHERE (channel, worker_pool_id, cause) IN (\
         SELECT channel, worker_pool_id, cause FROM notice_causes \
         WHERE last_reported < $1 ORDER BY last_reported LIMIT $2)";
    // The topic is a literal, so that the databases use the partial index on these events.
    EVENTS "notice_source" =
        "SELECT position, worker_pool_id, payload FROM outbox \
         WHERE topic = 'exchange/taskcluster-worker-manager/v1/worker-pool-error' \
         AND position > $1 AND position <= $2 ORDER BY position LIMIT $3";
}

/// The errors with one cause, and how many of them a channel has reported to people.
#[derive(Clone, Debug, PartialEq)]
pub struct NoticeCause {
    pub channel: String,
    pub pool_id: PoolId,
    /// A digest of the properties that these errors share.
    pub cause: String,
    /// The latest of these errors.
    pub error_id: ErrorId,
    pub first_reported: Timestamp,
    pub last_reported: Timestamp,
    /// Number of errors that no notice contains yet.
    pub n_waiting: u64,
    /// When the first of the waiting errors was reported.
    pub first_waiting: Option<Timestamp>,
    /// Number of errors that notices contain.
    pub n_notified: u64,
    pub last_notified: Option<Timestamp>,
    /// When to send the next notice. `None` if no error is waiting.
    pub due: Option<Timestamp>,
    pub version: Version,
}

pub fn get(
    tx: &mut Tx<'_>,
    channel: &str,
    pool_id: &PoolId,
    cause: &str,
) -> Result<Option<NoticeCause>> {
    tx.row(&GET, (channel, pool_id, cause))
}

/// Number of known causes in this pool.
pub fn count(tx: &mut Tx<'_>, channel: &str, pool_id: &PoolId) -> Result<u64> {
    tx.number(&COUNT, (channel, pool_id))
}

/// Writes a new cause. If it exists already, the transaction has lost a race.
pub fn insert(tx: &mut Tx<'_>, cause: &NoticeCause) -> Result<()> {
    tx.execute_guarded(&INSERT, cause.inserted())
}

/// Writes the mutable columns, unless another transaction changed the row since it was read.
pub fn update(tx: &mut Tx<'_>, cause: &NoticeCause) -> Result<()> {
    tx.update(&UPDATE, cause)
}

/// The causes whose notice is due, the longest due first.
pub fn list_due(
    tx: &mut Tx<'_>,
    channel: &str,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<NoticeCause>> {
    tx.rows(&DUE, (channel, now, limit))
}

/// Deletes a cause, so that no further notice contains it.
pub fn delete(tx: &mut Tx<'_>, cause: &NoticeCause) -> Result<()> {
    tx.execute_guarded(&DELETE, (&cause.channel, &cause.pool_id, &cause.cause))
}

/// Deletes causes whose last notice is from before `notified_before`, with no error waiting, and
/// causes whose last error is from before `reported_before`. Call it again while it returns the
/// limit.
pub fn delete_settled(
    tx: &mut Tx<'_>,
    notified_before: Timestamp,
    reported_before: Timestamp,
    limit: u32,
) -> Result<u64> {
    let n_settled = tx.execute(&DELETE_SETTLED, (notified_before, limit))?;
    let n_old = tx.execute(&DELETE_OLDER, (reported_before, limit))?;
    Ok(n_settled + n_old)
}

/// Errors whose events have positions after `after`, up to `until`, in order. `None` stands for an
/// error that was deleted since.
pub fn list_errors_after(
    tx: &mut Tx<'_>,
    after: i64,
    until: i64,
    limit: u32,
) -> Result<Vec<(i64, Option<ErrorReport>)>> {
    let found = tx.rows_with(&EVENTS, (after, until, limit), |row| {
        let event: (i64, PoolId, Map<String, Json>) = Cells::of(row).next()?;
        let (position, pool_id, payload) = event;
        let error_id = payload.get("errorId").and_then(Json::as_str);
        let error_id = error_id.unwrap_or_default().parse::<ErrorId>()?;
        Ok((position, pool_id, error_id))
    })?;
    let reports = found.into_iter().map(|(position, pool_id, error_id)| {
        Ok((position, worker_errors::get(tx, &pool_id, &error_id)?))
    });
    reports.collect()
}
