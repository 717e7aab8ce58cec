//! Outcomes of the last runs of workers. A duplicate changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use domain::id::{ConfigurationId, PoolId, TaskId, WorkerKey};
use domain::run_outcome::RunOutcome;
use domain::time::Timestamp;

use crate::cost::meters;
use crate::engine::{AFTER_ALL, ALL_ROWS, Result, Table, Tx, columns, statements, to_json};
use crate::fleet::pool_news;
use crate::history::run_counts;

columns! { outcome: RunOutcome {
    task_id: Key "task_id",
    run_id: Key "run_id",
    worker: Fixed ["worker_pool_id", "worker_group", "worker_id"],
    reason: Fixed "reason",
    resolved: Fixed "resolved",
    started: Fixed "started",
} }

pub(crate) static TABLE: Table = Table::of::<RunOutcome>("run_outcomes");

statements! { TABLE;
    INSERT "run_outcome_insert" =
        "INSERT INTO run_outcomes ({written}) VALUES ({values}) ON CONFLICT DO NOTHING";
    // 1: the pool has a memory.
    POOL "run_outcome_pool" =
        "SELECT CAST(CASE WHEN m.worker_pool_id IS NULL THEN 0 ELSE 1 END AS BIGINT) \
         FROM worker_pools AS p \
         LEFT JOIN pool_memories AS m ON m.worker_pool_id = p.worker_pool_id \
         WHERE p.worker_pool_id = $1";
    OF_WORKER "run_outcome_list_of_worker" =
        "SELECT {columns} FROM run_outcomes \
         WHERE worker_pool_id = $1 AND worker_group = $2 AND worker_id = $3 \
         AND (resolved, task_id, run_id) < ($4, $5, $6) \
         ORDER BY resolved DESC, task_id DESC, run_id DESC LIMIT $7";
    // The last moment appears twice because the second condition bounds the search.
    OF_POOL "run_outcome_list_of_pool" =
        "SELECT {columns} FROM run_outcomes WHERE worker_pool_id = $1 \
         AND (resolved, task_id, run_id) < ($2, $3, $4) AND resolved >= $5 \
         ORDER BY resolved DESC, task_id DESC, run_id DESC LIMIT $6";
    SINCE "run_outcome_list_since" =
        "SELECT {columns} FROM json_each($1) AS v CROSS JOIN run_outcomes \
         WHERE worker_pool_id = v.value ->> 0 AND worker_group = v.value ->> 1 \
         AND worker_id = v.value ->> 2 AND resolved >= CAST(v.value ->> 3 AS BIGINT) \
         ORDER BY resolved, task_id, run_id LIMIT $2";
    POOLS "run_outcome_pools_of_configuration" =
        "SELECT worker_pool_id FROM worker_types WHERE worker_configuration_id = $1 \
         ORDER BY worker_pool_id LIMIT $2";
}

/// The last outcome of a page, where the next page continues.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunCursor {
    pub resolved: Timestamp,
    pub task_id: TaskId,
    pub run_id: u32,
}

impl From<&RunOutcome> for RunCursor {
    fn from(outcome: &RunOutcome) -> Self {
        Self {
            resolved: outcome.resolved,
            task_id: outcome.task_id.clone(),
            run_id: outcome.run_id,
        }
    }
}

/// Stores outcomes and counts them, unless they are known already or their pool does not exist.
/// They are news for the memory of their pool, if it has one.
/// Returns the new outcomes.
pub fn note(tx: &mut Tx<'_>, outcomes: &[RunOutcome]) -> Result<Vec<RunOutcome>> {
    let named: BTreeSet<&PoolId> = outcomes.iter().map(|known| &known.worker.pool_id).collect();
    let mut ours: BTreeMap<&PoolId, bool> = BTreeMap::new();
    for pool_id in named {
        if let Some(has_memory) = tx.row(&POOL, pool_id)? {
            ours.insert(pool_id, has_memory);
        }
    }
    // Sorted, so that two transactions that write the same rows do not wait for each other.
    let sorted: BTreeMap<RunCursor, &RunOutcome> = outcomes
        .iter()
        .filter(|outcome| ours.contains_key(&outcome.worker.pool_id))
        .map(|outcome| (RunCursor::from(outcome), outcome))
        .collect();
    let mut new = Vec::new();
    for outcome in sorted.into_values() {
        if tx.insert(&INSERT, outcome)? {
            new.push(outcome.clone());
        }
    }
    run_counts::add(tx, &new)?;
    meters::add_runs(tx, outcomes)?;
    let learns = |outcome: &&RunOutcome| ours.get(&outcome.worker.pool_id) == Some(&true);
    pool_news::add(tx, new.iter().filter(learns))?;
    Ok(new)
}

/// The last runs of a worker, newest first.
pub fn list_of_worker(
    tx: &mut Tx<'_>,
    worker: &WorkerKey,
    after: Option<&RunCursor>,
    limit: u32,
) -> Result<Vec<RunOutcome>> {
    tx.rows(&OF_WORKER, (worker, cursor_values(after), limit))
}

/// The last runs in these pools together, newest first.
///
/// Outcomes of one pool are in order already, so they are merged. Once `limit` outcomes are known,
/// only outcomes that are newer than the last of them are read.
pub fn list_of_pools(
    tx: &mut Tx<'_>,
    pools: &[PoolId],
    after: Option<&RunCursor>,
    limit: u32,
) -> Result<Vec<RunOutcome>> {
    let after = cursor_values(after);
    let mut newest: BTreeMap<RunCursor, RunOutcome> = BTreeMap::new();
    let mut since = i64::MIN;
    for pool_id in pools {
        let found = tx
            .rows(&OF_POOL, (pool_id, after, since, limit))?
            .into_iter();
        newest.extend(found.map(|outcome| (RunCursor::from(&outcome), outcome)));
        while newest.len() > limit as usize {
            newest.pop_first();
        }
        if newest.len() == limit as usize
            && let Some((oldest, _)) = newest.first_key_value()
        {
            since = oldest.resolved.as_millis();
        }
    }
    Ok(newest.into_values().rev().collect())
}

/// The runs on these workers that ended since a moment of each, the oldest first.
pub fn list_since(
    tx: &mut Tx<'_>,
    workers: &[(&WorkerKey, Timestamp)],
    limit: u32,
) -> Result<Vec<RunOutcome>> {
    let rows = workers.iter().map(|(key, since)| {
        let WorkerKey { pool_id, group, id } = key;
        (
            pool_id.as_str(),
            group.as_str(),
            id.as_str(),
            since.as_millis(),
        )
    });
    let rows: Vec<_> = rows.collect();
    tx.rows(&SINCE, (&to_json(&rows), limit))
}

/// The pools of a worker configuration.
pub fn pools_of_configuration(tx: &mut Tx<'_>, id: &ConfigurationId) -> Result<Vec<PoolId>> {
    tx.rows(&POOLS, (id, ALL_ROWS))
}

fn cursor_values(after: Option<&RunCursor>) -> (i64, &str, i64) {
    after.map_or((i64::MAX, AFTER_ALL, i64::MAX), |after| {
        (
            after.resolved.as_millis(),
            after.task_id.as_str(),
            i64::from(after.run_id),
        )
    })
}
