//! Runs that ended in pools with a memory, until they are in the memory.

use std::collections::BTreeMap;

use domain::id::PoolId;
use domain::run_outcome::RunOutcome;

use crate::engine::{BadRow, Cells, FromRow, Result, Table, Tx, statements, to_json};
use crate::fleet::pool_memories;

static TABLE: Table = Table::unlisted("pool_news", 1);

statements! { TABLE;
    INSERT "pool_news_insert" =
        "INSERT INTO pool_news (worker_pool_id, n_ended, durations) VALUES ($1, $2, $3)";
    // With `+ 0`, the order does not come from the key, which would be read completely.
    OF "pool_news_list" =
        "SELECT n.sequence, n.worker_pool_id, n.n_ended, n.durations \
         FROM json_each($1) AS v CROSS JOIN pool_news AS n \
         WHERE n.worker_pool_id = v.value ->> 0 ORDER BY n.sequence + 0 LIMIT $2";
    DELETE "pool_news_delete" =
        "DELETE FROM pool_news WHERE sequence IN (\
         SELECT CAST(v.value ->> 0 AS BIGINT) FROM json_each($1) AS v)";
    DELETE_ORPHANS "pool_news_delete_orphans" =
        "DELETE FROM pool_news WHERE sequence IN (SELECT n.sequence FROM pool_news AS n \
         WHERE NOT EXISTS (SELECT 1 FROM pool_memories AS m \
         WHERE m.worker_pool_id = n.worker_pool_id) ORDER BY n.sequence LIMIT $1)";
}

/// Runs of one pool that were heard of together.
#[derive(Clone, Debug, PartialEq)]
pub struct EndedRuns {
    pub sequence: i64,
    pub pool_id: PoolId,
    /// Tasks that are over.
    pub n_ended: u64,
    /// Of tasks that ended by themselves, in milliseconds.
    pub durations_ms: Vec<i64>,
}

impl FromRow for EndedRuns {
    fn read(cells: &mut Cells<'_, '_>) -> Result<Self, BadRow> {
        let (sequence, pool_id, n_ended) = (cells.next()?, cells.next()?, cells.next()?);
        let durations: String = cells.next()?;
        let durations_ms = serde_json::from_str(&durations);
        Ok(Self {
            sequence,
            pool_id,
            n_ended,
            durations_ms: durations_ms.map_err(|error| BadRow(error.to_string()))?,
        })
    }
}

/// Adds a row for each of the pools. The outcomes are new, and their pools have a memory.
pub(crate) fn add<'a>(
    tx: &mut Tx<'_>,
    outcomes: impl Iterator<Item = &'a RunOutcome>,
) -> Result<()> {
    let mut pools: BTreeMap<&PoolId, (u64, Vec<i64>)> = BTreeMap::new();
    for outcome in outcomes {
        let (n_ended, durations) = pools.entry(&outcome.worker.pool_id).or_default();
        *n_ended += u64::from(outcome.ends_task());
        durations.extend(outcome.duration_ms());
    }
    for (pool_id, (n_ended, durations)) in pools {
        let durations = to_json(&durations);
        tx.run(&INSERT, (pool_id, &n_ended, &durations))?;
    }
    Ok(())
}

/// The oldest rows of these pools together.
pub fn of(tx: &mut Tx<'_>, pools: &[PoolId], limit: u32) -> Result<Vec<EndedRuns>> {
    tx.rows(&OF, (&pool_memories::list(pools), limit))
}

pub fn delete(tx: &mut Tx<'_>, rows: &[EndedRuns]) -> Result<()> {
    let rows: Vec<[i64; 1]> = rows.iter().map(|row| [row.sequence]).collect();
    tx.run(&DELETE, to_json(&rows))
}

/// Deletes rows of pools without a memory. Call it again while it returns the limit.
pub fn delete_orphans(tx: &mut Tx<'_>, limit: u32) -> Result<u64> {
    tx.execute(&DELETE_ORPHANS, limit)
}
