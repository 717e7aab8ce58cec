//! The accounts of waiting time, and the facts for which runs that stopped waiting are charged.

use std::collections::BTreeMap;

use domain::id::{LaunchToken, PoolId, TaskId, WorkerKey};
use domain::time::Timestamp;
use domain::waits::{AccountKey, AccountSum, Grouping, WaitCause};
use domain::worker::Terms;

use crate::engine::{ALL_ROWS, Result, Statement, Table, Tx, statements, to_json};

static TABLE: Table = Table::unlisted("wait_accounts", 1);

/// The sums of a time by account, and then by name; for all pools, or for those in a list.
macro_rules! sums {
    ($key:literal, $pools:literal) => {
        concat!(
            "SELECT ",
            $key,
            ", a.cause, CAST(SUM(w.runs) AS BIGINT), CAST(SUM(w.millis) AS BIGINT) \
             FROM (SELECT account, SUM(runs) AS runs, SUM(millis) AS millis FROM waits \
             WHERE span = $1 AND since >= $2 AND since < $3 GROUP BY account) AS w \
             CROSS JOIN wait_accounts AS a WHERE a.account = w.account ",
            $pools,
            "GROUP BY 1, 2 ORDER BY 1, 2 LIMIT "
        )
    };
}

/// The sums by period.
macro_rules! sums_by_time {
    ($pools:literal) => {
        concat!(
            "SELECT w.since, a.cause, CAST(SUM(w.runs) AS BIGINT), \
             CAST(SUM(w.millis) AS BIGINT) \
             FROM waits AS w CROSS JOIN wait_accounts AS a WHERE a.account = w.account \
             AND w.span = $1 AND w.since >= $2 AND w.since < $3 ",
            $pools,
            "GROUP BY 1, 2 ORDER BY 1, 2 LIMIT "
        )
    };
}

macro_rules! of_all {
    ($macro:ident$(, $key:literal)?) => {
        concat!($macro!($($key, )? ""), "$4 OFFSET $5")
    };
}

/// Only the pools in this list.
macro_rules! of_pools {
    ($macro:ident$(, $key:literal)?) => {
        concat!(
            $macro!(
                $($key, )?
                "AND a.worker_pool_id IN (SELECT v.value ->> 0 FROM json_each($4) AS v) "
            ),
            "$5 OFFSET $6"
        )
    };
}

statements! { TABLE;
    OPEN "wait_account_open" =
        "INSERT INTO wait_accounts (worker_pool_id, owner, cause) \
         SELECT DISTINCT v.value ->> 2, v.value ->> 3, v.value ->> 4 FROM json_each($1) AS v \
         WHERE NOT EXISTS (SELECT 1 FROM wait_accounts AS a WHERE a.worker_pool_id = v.value ->> 2 \
         AND a.owner = v.value ->> 3 AND a.cause = v.value ->> 4) ON CONFLICT DO NOTHING";
    ADD "wait_add" =
        "INSERT INTO waits (span, since, account, runs, millis) \
         SELECT CAST(v.value ->> 0 AS BIGINT), CAST(v.value ->> 1 AS BIGINT), a.account, \
         CAST(v.value ->> 5 AS BIGINT), CAST(v.value ->> 6 AS BIGINT) \
         FROM json_each($1) AS v CROSS JOIN wait_accounts AS a \
         WHERE a.worker_pool_id = v.value ->> 2 AND a.owner = v.value ->> 3 \
         AND a.cause = v.value ->> 4 ON CONFLICT (span, since, account) DO UPDATE SET \
         runs = waits.runs + excluded.runs, millis = waits.millis + excluded.millis";
    // A time is in the accounts of an hour and of a day.
    CHARGE "wait_account_charge" =
        "UPDATE wait_accounts SET charged = wait_accounts.charged + v.millis FROM (\
         SELECT e.value ->> 2 AS pool, e.value ->> 3 AS owner, e.value ->> 4 AS cause, \
         CAST(SUM(CAST(e.value ->> 6 AS BIGINT)) AS BIGINT) AS millis \
         FROM json_each($1) AS e WHERE CAST(e.value ->> 0 AS BIGINT) = 3600000 \
         GROUP BY 1, 2, 3) AS v \
         WHERE worker_pool_id = v.pool AND wait_accounts.owner = v.owner \
         AND wait_accounts.cause = v.cause";
    BY_POOL "wait_sum_by_pool" = of_all!(sums, "a.worker_pool_id");
    BY_OWNER "wait_sum_by_owner" = of_all!(sums, "a.owner");
    BY_TIME "wait_sum_by_time" = of_all!(sums_by_time);
    BY_CAUSE "wait_sum_by_cause" = of_all!(sums, "''");
    BY_POOL_OF "wait_sum_by_pool_of" = of_pools!(sums, "a.worker_pool_id");
    BY_OWNER_OF "wait_sum_by_owner_of" = of_pools!(sums, "a.owner");
    BY_TIME_OF "wait_sum_by_time_of" = of_pools!(sums_by_time);
    BY_CAUSE_OF "wait_sum_by_cause_of" = of_pools!(sums, "''");
    POOLS "wait_account_pools" =
        "SELECT DISTINCT a.worker_pool_id FROM (SELECT DISTINCT account FROM waits \
         WHERE span = $1 AND since >= $2 AND since < $3) AS w CROSS JOIN wait_accounts AS a \
         WHERE a.account = w.account ORDER BY a.worker_pool_id LIMIT $4";
    OWNERS "wait_account_owners" =
        "SELECT p.worker_pool_id, p.owner, p.created FROM json_each($1) AS v \
         CROSS JOIN worker_pools AS p WHERE p.worker_pool_id = v.value ->> 0 \
         ORDER BY p.worker_pool_id LIMIT $2";
    MACHINES "wait_account_machines" =
        "SELECT w.worker_pool_id, w.worker_group, w.worker_id, w.created, w.first_claim, \
         w.terms \
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
    DELETE_BEFORE "wait_delete_before" =
        "DELETE FROM waits WHERE (span, since, account) IN (SELECT span, since, account \
         FROM waits WHERE span = $1 AND since < $2 ORDER BY since LIMIT $3)";
    DELETE_UNUSED "wait_account_delete_unused" =
        "DELETE FROM wait_accounts WHERE account IN (SELECT a.account FROM wait_accounts AS a \
         WHERE a.account NOT IN (SELECT w.account FROM waits AS w) \
         ORDER BY a.account LIMIT $1)";
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
    let rows = to_json(&rows);
    tx.run(&OPEN, &rows)?;
    tx.run(&ADD, &rows)?;
    tx.run(&CHARGE, &rows)
}

/// The sums of the periods of this length from `since` up to `until`, by key and cause. `pools`:
/// only these; `None`: all.
pub fn sums(
    tx: &mut Tx<'_>,
    grouping: Grouping,
    (span_ms, since, until): (i64, Timestamp, Timestamp),
    pools: Option<&[PoolId]>,
) -> Result<Vec<AccountSum>> {
    tx.plan_for_values()?;
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

/// When a worker was made, when it first asked for work, and its terms.
pub type MachineMoments = (Timestamp, Option<Timestamp>, Terms);

/// The moments of these workers. Missing ones are left out.
pub fn machines(
    tx: &mut Tx<'_>,
    workers: &[WorkerKey],
) -> Result<Vec<(WorkerKey, MachineMoments)>> {
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

/// Deletes accounts of which no time is kept. It reads all times, so it is for once a day.
///
/// Transactions that add to accounts must not run at the same time: they could add to an account
/// that is deleted here.
pub fn delete_unused(tx: &mut Tx<'_>, limit: u32) -> Result<u64> {
    tx.plan_for_values()?;
    tx.execute(&DELETE_UNUSED, limit)
}

fn list(pools: &[PoolId]) -> String {
    let pools: Vec<[&str; 1]> = pools.iter().map(|pool| [pool.as_str()]).collect();
    to_json(&pools)
}
