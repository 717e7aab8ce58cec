//! Reported errors of workers and providers.

use domain::error_cause::cause_of;
use domain::error_report::ErrorReport;
use domain::id::{ErrorId, LaunchConfigId, PoolId};
use domain::time::Timestamp;

use crate::engine::{AFTER_ALL, ALL_ROWS, Entity, Result, Table, Tx, columns, statements};

columns! { report: ErrorReport {
    pool_id: Key "worker_pool_id",
    error_id: Key "error_id",
    reported: Fixed "reported",
    kind: Fixed "kind",
    title: Fixed "title",
    description: Fixed "description",
    extra: Mutable "extra",
    launch_config_id: Fixed "launch_config_id",
}
also {
    Fixed "code" = report.code(),
    Fixed "reporter" = report.reporter(),
    Fixed "cause" = cause_of(report),
} }

pub(crate) static TABLE: Table = Table::of::<ErrorReport>("worker_errors");

/// The newest of these errors about each launch config.
macro_rules! newest {
    ($errors:literal, $limit:literal) => {
        concat!(
            "SELECT {columns} FROM (SELECT e.*, ROW_NUMBER() \
             OVER (PARTITION BY worker_pool_id, launch_config_id \
             ORDER BY reported DESC, error_id DESC) AS age FROM worker_errors AS e WHERE ",
            $errors,
            " AND launch_config_id IS NOT NULL) AS ranked WHERE age = 1 \
             ORDER BY worker_pool_id, launch_config_id LIMIT ",
            $limit
        )
    };
}

/// The number of workers that reported these errors, by launch config. COALESCE keeps SQLite from
/// the index on reporters.
macro_rules! reporters {
    ($errors:literal, $limit:literal) => {
        concat!(
            "SELECT worker_pool_id, launch_config_id, COUNT(DISTINCT reporter) \
             FROM worker_errors WHERE ",
            $errors,
            " AND COALESCE(reporter, '') <> '' AND launch_config_id IS NOT NULL \
             GROUP BY worker_pool_id, launch_config_id \
             ORDER BY worker_pool_id, launch_config_id LIMIT ",
            $limit
        )
    };
}

// An empty text means no filter, since ids are never empty.
statements! { TABLE;
    INSERT "error_insert" =
        "INSERT INTO worker_errors ({written}) VALUES ({values}) ON CONFLICT DO NOTHING";
    GET "error_get" =
        "SELECT {columns} FROM worker_errors WHERE worker_pool_id = $1 AND error_id = $2";
    LIST "error_list" =
        "SELECT {columns} FROM worker_errors WHERE worker_pool_id = $1 \
         AND (reported, error_id) < ($2, $3) \
         AND ($4 = '' OR launch_config_id = $4) AND ($5 = '' OR error_id = $5) \
         ORDER BY reported DESC, error_id DESC LIMIT $6";
    NEWEST_OF_POOL "error_newest_of_pool" =
        newest!("worker_pool_id = $1 AND reported >= $2", "$3");
    REPORTERS_OF_POOL "error_reporters_of_pool" =
        reporters!("worker_pool_id = $1 AND reported >= $2", "$3");
    // Few errors are recent, as above.
    REPORTERS_BETWEEN "error_reporters_between" = reporters!(
        "worker_pool_id || '' >= $1 AND worker_pool_id || '' <= $2 AND reported >= $3", "$4");
    COUNT_OF_REPORTER "error_count_of_reporter" =
        "SELECT COUNT(*) FROM worker_errors \
         WHERE worker_pool_id = $1 AND reporter = $2 AND reported >= $3";
    NEWEST_OF_REPORTER "error_newest_of_reporter" =
        "SELECT {columns} FROM worker_errors \
         WHERE worker_pool_id = $1 AND reporter = $2 AND reported >= $3 AND kind = $4 \
         ORDER BY reported DESC LIMIT 1";
    // Workers may report errors of any kind. As above, few are recent.
    WITHOUT_REPORTER_BETWEEN "error_without_reporter_between" =
        "SELECT {columns} FROM worker_errors \
         WHERE worker_pool_id || '' >= $1 AND worker_pool_id || '' <= $2 AND reported > $3 \
         AND kind = $4 AND COALESCE(reporter, '') = '' LIMIT $5";
    UPDATE "error_update" = "UPDATE worker_errors SET {changes} WHERE {key}";
    // Few errors are recent: adding '' keeps the database from the index on pools.
    NEWEST_BETWEEN "error_newest_between" = newest!(
        "worker_pool_id || '' >= $1 AND worker_pool_id || '' <= $2 AND reported >= $3", "$4");
    DELETE_OLDER "error_delete_older_than" =
        "DELETE FROM worker_errors WHERE (worker_pool_id, error_id) IN (\
         SELECT worker_pool_id, error_id FROM worker_errors \
         WHERE reported < $1 ORDER BY reported LIMIT $2)";
}

/// Selects errors of a pool; an empty filter selects all.
#[derive(Clone, Debug, Default)]
pub struct ErrorFilter {
    pub launch_config_id: Option<LaunchConfigId>,
    pub error_id: Option<ErrorId>,
}

/// Returns `false` if the error exists already.
pub fn insert(tx: &mut Tx<'_>, report: &ErrorReport) -> Result<bool> {
    tx.insert(&INSERT, report)
}

pub fn get(tx: &mut Tx<'_>, pool_id: &PoolId, error_id: &ErrorId) -> Result<Option<ErrorReport>> {
    tx.row(&GET, (pool_id, error_id))
}

/// Ordered from newest to oldest. `after` is the time and id of the last error of the previous
/// page.
pub fn list(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    filter: &ErrorFilter,
    after: Option<(Timestamp, &ErrorId)>,
    limit: u32,
) -> Result<Vec<ErrorReport>> {
    let after = after.map_or((i64::MAX, AFTER_ALL), |(reported, id)| {
        (reported.as_millis(), id.as_str())
    });
    let launch_config_id = filter.launch_config_id.as_ref();
    let launch_config = launch_config_id.map_or("", LaunchConfigId::as_str);
    let error_id = filter.error_id.as_ref().map_or("", ErrorId::as_str);
    tx.rows(&LIST, (pool_id, after, launch_config, error_id, limit))
}

/// The newest error of each launch config since this moment, of all pools from the first to the
/// last.
pub fn newest_between(
    tx: &mut Tx<'_>,
    first: &PoolId,
    last: &PoolId,
    since: Timestamp,
) -> Result<Vec<ErrorReport>> {
    if first == last {
        tx.rows(&NEWEST_OF_POOL, (first, since, ALL_ROWS))
    } else {
        tx.rows(&NEWEST_BETWEEN, (first, last, since, ALL_ROWS))
    }
}

/// How many workers of each launch config have reported errors since this moment, in all pools from
/// the first to the last. Launch configs without any are absent.
pub fn reporters_between(
    tx: &mut Tx<'_>,
    first: &PoolId,
    last: &PoolId,
    since: Timestamp,
) -> Result<Vec<(PoolId, LaunchConfigId, u64)>> {
    if first == last {
        tx.rows(&REPORTERS_OF_POOL, (first, since, ALL_ROWS))
    } else {
        tx.rows(&REPORTERS_BETWEEN, (first, last, since, ALL_ROWS))
    }
}

/// How many errors a worker has reported since this moment.
pub fn count_of_reporter(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    reporter: &str,
    since: Timestamp,
) -> Result<u64> {
    tx.number(&COUNT_OF_REPORTER, (pool_id, reporter, since))
}

/// The newest error of this kind that a worker has reported since this moment.
pub fn newest_of_reporter(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    reporter: &str,
    since: Timestamp,
    kind: &str,
) -> Result<Option<ErrorReport>> {
    tx.row(&NEWEST_OF_REPORTER, (pool_id, reporter, since, kind))
}

/// The errors of this kind after this moment that no worker reported, of all pools from the first
/// to the last.
pub fn without_reporter_between(
    tx: &mut Tx<'_>,
    first: &PoolId,
    last: &PoolId,
    after: Timestamp,
    kind: &str,
) -> Result<Vec<ErrorReport>> {
    tx.rows(
        &WITHOUT_REPORTER_BETWEEN,
        (first, last, after, kind, ALL_ROWS),
    )
}

/// Writes the mutable columns.
pub fn update(tx: &mut Tx<'_>, report: &ErrorReport) -> Result<()> {
    tx.run(&UPDATE, report.updated())
}

/// Deletes the oldest errors first. Call it again while it returns the limit.
pub fn delete_older_than(tx: &mut Tx<'_>, before: Timestamp, limit: u32) -> Result<u64> {
    tx.execute(&DELETE_OLDER, (before, limit))
}
