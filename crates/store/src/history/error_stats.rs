//! Statistics of stored errors, grouped by the database.

use domain::error_report::{ErrorStats, Tallies};
use domain::id::PoolId;
use domain::status::ErrorRate;
use domain::time::{DAY_MS, HOUR_MS, Timestamp};

use crate::engine::{AFTER_ALL, ALL_ROWS, Result, Statement, Table, Tx, from_row, statements};

/// Workers choose titles and codes. At most this many of each are counted.
pub const MAX_GROUPS: u32 = 1_000;

static TABLE: Table = Table::unlisted("worker_errors", 1);

// One pool is the range from its id to its id. All pools are the range from the empty text to the
// highest.
statements! { TABLE;
    BY_PERIOD "error_stats_by_period" =
        "SELECT reported / $1, COUNT(*) FROM worker_errors \
         WHERE worker_pool_id >= $2 AND worker_pool_id <= $3 AND reported >= $4 \
         GROUP BY 1 ORDER BY 1 LIMIT $5";
    BY_TITLE "error_stats_by_title" =
        "SELECT title, COUNT(*) FROM worker_errors \
         WHERE worker_pool_id >= $1 AND worker_pool_id <= $2 \
         GROUP BY title ORDER BY COUNT(*) DESC, title LIMIT $3";
    BY_CODE "error_stats_by_code" =
        "SELECT code, COUNT(*) FROM worker_errors \
         WHERE worker_pool_id >= $1 AND worker_pool_id <= $2 \
         GROUP BY code ORDER BY COUNT(*) DESC, code LIMIT $3";
    BY_POOL "error_stats_by_pool" =
        "SELECT worker_pool_id, COUNT(*) FROM worker_errors \
         WHERE worker_pool_id >= $1 AND worker_pool_id <= $2 \
         GROUP BY worker_pool_id ORDER BY worker_pool_id LIMIT $3";
    // Few errors are recent: adding '' keeps the database from the index on pools.
    RECENT "error_stats_recent" =
        "SELECT worker_pool_id || '', COUNT(*) FROM worker_errors WHERE reported >= $1 \
         GROUP BY 1 ORDER BY 1 LIMIT $2";
    RATES "error_stats_rates" =
        "SELECT worker_pool_id, title, code, CAST(SUM(in_hour) AS BIGINT), \
         CAST(SUM(1 - in_hour) AS BIGINT), MIN(CASE WHEN in_hour = 1 THEN reported END) FROM (\
         SELECT worker_pool_id, title, code, reported, CASE WHEN reported >= $1 THEN 1 ELSE 0 END \
         AS in_hour FROM worker_errors WHERE reported >= $2) AS recent \
         GROUP BY worker_pool_id, title, code HAVING SUM(in_hour) > 0 \
         ORDER BY 4 DESC, 1, 2, 3 LIMIT $3";
    BY_LAUNCH_CONFIG "error_stats_by_launch_config" =
        "SELECT COALESCE(launch_config_id, 'unknown'), COUNT(*) FROM worker_errors \
         WHERE worker_pool_id >= $1 AND worker_pool_id <= $2 \
         GROUP BY COALESCE(launch_config_id, 'unknown') ORDER BY 1 LIMIT $3";
}

from_row! { ErrorRate { pool, title, code, in_hour, before, first } }

/// Counts the errors of one pool or of all, those of the most frequent titles and codes. Launch
/// configs are counted for one pool only, since their ids are unique only within a pool.
pub fn count(tx: &mut Tx<'_>, pool_id: Option<&PoolId>, now: Timestamp) -> Result<ErrorStats> {
    let range = pool_id.map_or(("", AFTER_ALL), |id| (id.as_str(), id.as_str()));
    let mut stats = ErrorStats::empty(now);
    for (start, count) in by_period(tx, range, now, DAY_MS, ErrorStats::DAYS)? {
        stats.count_day(start, count);
    }
    for (start, count) in by_period(tx, range, now, HOUR_MS, ErrorStats::HOURS)? {
        stats.count_hour(start, count);
    }
    stats.title = tallies(tx, &BY_TITLE, range, MAX_GROUPS)?;
    stats.code = tallies(tx, &BY_CODE, range, MAX_GROUPS)?;
    stats.worker_pool = tallies(tx, &BY_POOL, range, ALL_ROWS)?;
    if pool_id.is_some() {
        stats.launch_config = tallies(tx, &BY_LAUNCH_CONFIG, range, ALL_ROWS)?;
    }
    Ok(stats)
}

/// The errors of each pool since this moment. Pools without any are absent.
pub fn recent(tx: &mut Tx<'_>, since: Timestamp) -> Result<Vec<(PoolId, u64)>> {
    tx.rows(&RECENT, (since, ALL_ROWS))
}

/// The errors of the last hour by pool, title and code, beside those of the 23 hours before: the
/// most frequent, at most `MAX_GROUPS`.
pub fn rates(tx: &mut Tx<'_>, now: Timestamp) -> Result<Vec<ErrorRate>> {
    let (hour, day) = (now.plus_millis(-HOUR_MS), now.plus_millis(-DAY_MS));
    tx.rows(&RATES, (hour, day, MAX_GROUPS))
}

/// Number of errors in the current period and in each of those before it.
fn by_period(
    tx: &mut Tx<'_>,
    (first, last): (&str, &str),
    now: Timestamp,
    period_ms: i64,
    n_periods: i64,
) -> Result<Vec<(Timestamp, u64)>> {
    let since = now
        .start_of(period_ms)
        .plus_millis(-(n_periods - 1) * period_ms);
    let values = (period_ms, first, last, since, ALL_ROWS);
    let counts = tx.rows::<(i64, u64)>(&BY_PERIOD, values)?;
    let start = |period: i64| Timestamp::from_millis(period.saturating_mul(period_ms));
    Ok(counts
        .into_iter()
        .map(|(period, count)| (start(period), count))
        .collect())
}

fn tallies(
    tx: &mut Tx<'_>,
    statement: &'static Statement,
    (first, last): (&str, &str),
    limit: u32,
) -> Result<Tallies> {
    let groups = tx.rows(statement, (first, last, limit))?;
    Ok(groups.into_iter().collect())
}
