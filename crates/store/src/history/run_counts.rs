//! Number of ended runs by pool, hour and reason.

use std::collections::BTreeMap;

use domain::id::{ConfigurationId, PoolId};
use domain::run_outcome::{OutcomeCounts, RunOutcome, Window};
use domain::task::EndReason;
use domain::time::{HOUR_MS, Timestamp};

use crate::engine::{Result, Statement, Table, Tx, statements};

static TABLE: Table = Table::unlisted("run_counts", 3);

/// One sum for each window. The longest, which is last, bounds the rows that are read.
macro_rules! sums {
    () => {
        "SELECT reason, CAST(SUM(CASE WHEN hour >= $1 THEN runs ELSE 0 END) AS BIGINT), \
         CAST(SUM(CASE WHEN hour >= $2 THEN runs ELSE 0 END) AS BIGINT), \
         CAST(SUM(runs) AS BIGINT) FROM run_counts WHERE hour >= $3 AND worker_pool_id "
    };
}

statements! { TABLE;
    ADD "run_count_add" =
        "INSERT INTO run_counts (worker_pool_id, hour, reason, runs) VALUES ($1, $2, $3, $4) \
         ON CONFLICT (worker_pool_id, hour, reason) \
         DO UPDATE SET runs = run_counts.runs + excluded.runs";
    OF_POOL "run_count_of_pool" = concat!(sums!(), "= $4 GROUP BY reason");
    OF_CONFIGURATION "run_count_of_configuration" = concat!(sums!(),
        "IN (SELECT worker_pool_id FROM worker_types WHERE worker_configuration_id = $4) \
         GROUP BY reason");
    DELETE_OLDER "run_count_delete_before" =
        "DELETE FROM run_counts WHERE (worker_pool_id, hour, reason) IN (\
         SELECT worker_pool_id, hour, reason FROM run_counts WHERE hour < $1 \
         ORDER BY hour LIMIT $2)";
}

/// How many runs ended how, in each of the windows.
pub type Tallies = [OutcomeCounts; Window::ALL.len()];

pub(crate) fn add(tx: &mut Tx<'_>, outcomes: &[RunOutcome]) -> Result<()> {
    let mut counts: BTreeMap<(&PoolId, Timestamp, &str), u32> = BTreeMap::new();
    for outcome in outcomes {
        let hour = outcome.resolved.start_of(HOUR_MS);
        let key = (&outcome.worker.pool_id, hour, outcome.reason.as_str());
        *counts.entry(key).or_default() += 1;
    }
    for ((pool_id, hour, reason), count) in counts {
        tx.run(&ADD, (pool_id, hour, reason, count))?;
    }
    Ok(())
}

pub fn of_pool(tx: &mut Tx<'_>, pool_id: &PoolId, now: Timestamp) -> Result<Tallies> {
    tallies(tx, &OF_POOL, pool_id.as_str(), now)
}

/// Counts the runs in all pools of a worker configuration.
pub fn of_configuration(tx: &mut Tx<'_>, id: &ConfigurationId, now: Timestamp) -> Result<Tallies> {
    tallies(tx, &OF_CONFIGURATION, id.as_str(), now)
}

/// Deletes the counts of hours that began before this moment. Call it again while it returns the
/// limit.
pub fn delete_before(tx: &mut Tx<'_>, before: Timestamp, limit: u32) -> Result<u64> {
    tx.execute(&DELETE_OLDER, (before, limit))
}

fn tallies(
    tx: &mut Tx<'_>,
    statement: &'static Statement,
    name: &str,
    now: Timestamp,
) -> Result<Tallies> {
    let [hour, day, week] = Window::ALL.map(|window| window.since(now));
    let rows = tx.rows::<(EndReason, u64, u64, u64)>(statement, (hour, day, week, name))?;
    let mut tallies = Tallies::default();
    for (reason, of_hour, of_day, of_week) in rows {
        for (tally, count) in tallies.iter_mut().zip([of_hour, of_day, of_week]) {
            tally.add(reason, count);
        }
    }
    Ok(tallies)
}
