//! The accounts of waiting time, and the facts for which runs that stopped waiting are charged.

use std::collections::BTreeMap;

use domain::id::{LaunchToken, PoolId, TaskId, WorkerKey};
use domain::time::Timestamp;
use domain::waits::{AccountKey, AccountSum, Grouping, WaitCause};
use domain::worker::Terms;

use crate::engine::{ALL_ROWS, Result, Statement, Table, Tx, statements, to_json};

static TABLE: Table = Table::unlisted("wait_accounts", 1);

/// The rows of a time, for all pools or for those in a list.
macro_rules! sums {
    ($key:literal, $pools:literal) => {
        concat!(
            "SELECT ",
            $key,
            ", cause, CAST(SUM(runs) AS BIGINT), CAST(SUM(millis) AS BIGINT) \
             FROM wait_accounts WHERE span = $1 AND since >= $2 AND since < $3 ",
            $pools,
            "GROUP BY 1, 2 ORDER BY 1, 2 LIMIT "
        )
    };
}

/// Only the pools in this list.
macro_rules! sums_of {
    ($key:literal) => {
        concat!(
            sums!(
                $key,
                "AND worker_pool_id IN (SELECT v.value ->> 0 FROM json_each($4) AS v) "
            ),
            "$5 OFFSET $6"
        )
    };
}

macro_rules! all_sums {
    ($key:literal) => {
        concat!(sums!($key, ""), "$4 OFFSET $5")
    };
}

statements! { TABLE;
    ADD "wait_account_add" =
        "INSERT INTO wait_accounts (span, since, worker_pool_id, owner, cause, runs, millis) \
         SELECT CAST(v.value ->> 0 AS BIGINT), CAST(v.value ->> 1 AS BIGINT), v.value ->> 2, \
         v.value ->> 3, v.value ->> 4, CAST(v.value ->> 5 AS BIGINT), \
         CAST(v.value ->> 6 AS BIGINT) FROM json_each($1) AS v WHERE 1 = 1 \
         ON CONFLICT (span, since, worker_pool_id, owner, cause) DO UPDATE SET \
         runs = wait_accounts.runs + excluded.runs, millis = wait_accounts.millis + excluded.millis";
    BY_POOL "wait_account_by_pool" = all_sums!("worker_pool_id");
    BY_OWNER "wait_account_by_owner" = all_sums!("owner");
    BY_TIME "wait_account_by_time" = all_sums!("since");
    BY_CAUSE "wait_account_by_cause" = all_sums!("''");
    BY_POOL_OF "wait_account_by_pool_of" = sums_of!("worker_pool_id");
    BY_OWNER_OF "wait_account_by_owner_of" = sums_of!("owner");
    BY_TIME_OF "wait_account_by_time_of" = sums_of!("since");
    BY_CAUSE_OF "wait_account_by_cause_of" = sums_of!("''");
    POOLS "wait_account_pools" =
        "SELECT DISTINCT worker_pool_id FROM wait_accounts \
         WHERE span = $1 AND since >= $2 AND since < $3 ORDER BY worker_pool_id LIMIT $4";
    OWNERS "wait_account_owners" =
        "SELECT p.worker_pool_id, p.owner, p.created FROM json_each($1) AS v \
         CROSS JOIN worker_pools AS p WHERE p.worker_pool_id = v.value ->> 0 \
         ORDER BY p.worker_pool_id LIMIT $2";
    MACHINES "wait_account_machines" =
        "SELECT w.worker_pool_id, w.worker_group, w.worker_id, w.created, w.terms \
         FROM json_each($1) AS v CROSS JOIN workers AS w WHERE w.worker_pool_id = v.value ->> 0 \
         AND w.worker_group = v.value ->> 1 AND w.worker_id = v.value ->> 2 \
         ORDER BY w.worker_pool_id, w.worker_group, w.worker_id LIMIT $2";
    LAUNCHES "wait_account_launches" =
        "SELECT l.token, l.created FROM json_each($1) AS v CROSS JOIN launches AS l \
         WHERE l.token = v.value ->> 0 ORDER BY l.token LIMIT $2";
    INSERTED "wait_account_inserted" =
        "SELECT t.task_id, t.inserted FROM json_each($1) AS v CROSS JOIN tasks AS t \
         WHERE t.task_id = v.value ->> 0 AND t.inserted IS NOT NULL ORDER BY t.task_id LIMIT $2";
    GAPS "wait_account_gaps" =
        "SELECT since, until FROM recorded_gaps WHERE until > $1 ORDER BY until, sequence LIMIT $2";
    DELETE_BEFORE "wait_account_delete_before" =
        "DELETE FROM wait_accounts WHERE (span, since, worker_pool_id, owner, cause) IN (\
         SELECT span, since, worker_pool_id, owner, cause FROM wait_accounts \
         WHERE span = $1 AND since < $2 ORDER BY since LIMIT $3)";
}

/// Adds to the accounts.
pub fn add(tx: &mut Tx<'_>, charges: &BTreeMap<AccountKey, (u64, i64)>) -> Result<()> {
    let rows = charges.iter().map(|(key, (runs, millis))| {
        let (pool, owner) = (key.pool_id.as_str(), key.owner.as_str());
        let period = (key.span_ms, key.since.as_millis());
        let cause = key.cause.as_str();
        (period.0, period.1, pool, owner, cause, *runs, *millis)
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return Ok(());
    }
    tx.execute(&ADD, to_json(&rows)).map(drop)
}

/// The sums of the periods of this length from `since` up to `until`, by key and cause. `pools`:
/// only these; `None`: all.
pub fn sums(
    tx: &mut Tx<'_>,
    grouping: Grouping,
    (span_ms, since, until): (i64, Timestamp, Timestamp),
    pools: Option<&[PoolId]>,
) -> Result<Vec<AccountSum>> {
    let (all, of) = statements_by(grouping);
    let time = (span_ms, since, until);
    let listed = pools.map(list);
    match grouping {
        Grouping::Day | Grouping::Hour => {
            let rows: Vec<(Timestamp, Sum)> = match &listed {
                None => tx.rows_in_pages(all, time)?,
                Some(pools) => tx.rows_in_pages(of, (time, pools))?,
            };
            Ok(rows
                .into_iter()
                .map(|(since, sum)| named(since.to_string(), sum))
                .collect())
        }
        Grouping::Pool | Grouping::Queue | Grouping::Owner | Grouping::Cause => {
            let rows: Vec<(String, Sum)> = match &listed {
                None => tx.rows_in_pages(all, time)?,
                Some(pools) => tx.rows_in_pages(of, (time, pools))?,
            };
            Ok(rows.into_iter().map(|(key, sum)| named(key, sum)).collect())
        }
    }
}

/// A cause, with its runs and milliseconds.
type Sum = (WaitCause, u64, i64);

fn named(key: String, (cause, runs, millis): Sum) -> AccountSum {
    AccountSum {
        key,
        cause,
        runs,
        millis,
    }
}

fn statements_by(grouping: Grouping) -> (&'static Statement, &'static Statement) {
    match grouping {
        Grouping::Pool | Grouping::Queue => (&BY_POOL, &BY_POOL_OF),
        Grouping::Owner => (&BY_OWNER, &BY_OWNER_OF),
        Grouping::Day | Grouping::Hour => (&BY_TIME, &BY_TIME_OF),
        Grouping::Cause => (&BY_CAUSE, &BY_CAUSE_OF),
    }
}

/// The pools with accounts in this time.
pub fn pools(
    tx: &mut Tx<'_>,
    (span_ms, since, until): (i64, Timestamp, Timestamp),
) -> Result<Vec<PoolId>> {
    tx.rows(&POOLS, (span_ms, since, until, ALL_ROWS))
}

/// The owner of each of these pools, and when it was made. Missing pools are left out.
pub fn owners(tx: &mut Tx<'_>, pools: &[PoolId]) -> Result<Vec<(PoolId, (String, Timestamp))>> {
    tx.rows(&OWNERS, (&list(pools), ALL_ROWS))
}

/// When these workers were made, and their terms. Missing ones are left out.
pub fn machines(
    tx: &mut Tx<'_>,
    workers: &[WorkerKey],
) -> Result<Vec<(WorkerKey, (Timestamp, Terms))>> {
    let keys = workers.iter();
    let keys: Vec<(&str, &str, &str)> = keys
        .map(|key| (key.pool_id.as_str(), key.group.as_str(), key.id.as_str()))
        .collect();
    tx.rows(&MACHINES, (&to_json(&keys), ALL_ROWS))
}

/// When these launches were decided.
pub fn launched(tx: &mut Tx<'_>, tokens: &[LaunchToken]) -> Result<Vec<(LaunchToken, Timestamp)>> {
    let tokens: Vec<[&str; 1]> = tokens.iter().map(|token| [token.as_str()]).collect();
    tx.rows(&LAUNCHES, (&to_json(&tokens), ALL_ROWS))
}

/// When these tasks were created, as far as it is known.
pub fn inserted(tx: &mut Tx<'_>, tasks: &[TaskId]) -> Result<Vec<(TaskId, Timestamp)>> {
    let tasks: Vec<[&str; 1]> = tasks.iter().map(|task| [task.as_str()]).collect();
    tx.rows(&INSERTED, (&to_json(&tasks), ALL_ROWS))
}

/// The times without a planner that ended after this moment, in their order.
pub fn gaps(tx: &mut Tx<'_>, after: Timestamp) -> Result<Vec<(Timestamp, Timestamp)>> {
    tx.rows(&GAPS, (after, ALL_ROWS))
}

/// Deletes the accounts of periods of this length that began before this moment. Call it again
/// while it returns the limit.
pub fn delete_before(tx: &mut Tx<'_>, span_ms: i64, before: Timestamp, limit: u32) -> Result<u64> {
    tx.execute(&DELETE_BEFORE, (span_ms, before, limit))
}

fn list(pools: &[PoolId]) -> String {
    let pools: Vec<[&str; 1]> = pools.iter().map(|pool| [pool.as_str()]).collect();
    to_json(&pools)
}
