//! Deletes run outcomes: the newest of each worker and each pool stay, unless they are old.
//!
//! Outcomes of the last minutes stay even if there are too many, because a broker delivers messages
//! again that were not confirmed, and duplicates must be recognized.

use std::sync::Arc;

use domain::id::PoolId;
use domain::time::{MINUTE_MS, Timestamp};

use crate::engine::{Result, Tx, statements};
use crate::history::run_outcomes::TABLE;

/// Duplicates arrive within this time.
const DUPLICATE_MS: i64 = 10 * MINUTE_MS;

macro_rules! delete_of_pool {
    ($condition:literal) => {
        concat!(
            "DELETE FROM run_outcomes WHERE (task_id, run_id) IN (SELECT task_id, run_id \
             FROM run_outcomes WHERE worker_pool_id = $1 AND ",
            $condition,
            " ORDER BY resolved"
        )
    };
}

statements! { TABLE;
    NEXT_POOL "run_outcome_next_pool" =
        "SELECT worker_pool_id FROM run_outcomes WHERE worker_pool_id > $1 \
         ORDER BY worker_pool_id LIMIT 1";
    NEWEST "run_outcome_newest" =
        "SELECT resolved FROM run_outcomes WHERE worker_pool_id = $1 \
         ORDER BY resolved DESC LIMIT 1";
    OLDEST "run_outcome_oldest" =
        "SELECT resolved FROM run_outcomes WHERE worker_pool_id = $1 \
         ORDER BY resolved LIMIT 1";
    DELETE_OLD "run_outcome_delete_before" =
        concat!(delete_of_pool!("resolved < $2"), " LIMIT $3)");
    FIRST_TOO_MANY "run_outcome_first_too_many" =
        "SELECT resolved, task_id, run_id FROM run_outcomes WHERE worker_pool_id = $1 \
         ORDER BY resolved DESC, task_id DESC, run_id DESC LIMIT 1 OFFSET $2";
    DELETE_TOO_MANY "run_outcome_delete_too_many" = concat!(delete_of_pool!(
        "(resolved, task_id, run_id) <= ($2, $3, $4) AND resolved < $5"), " LIMIT $6)");
    CROWDED "run_outcome_crowded_workers" =
        "SELECT worker_group, worker_id FROM run_outcomes WHERE worker_pool_id = $1 \
         GROUP BY worker_group, worker_id HAVING COUNT(*) > $2 AND MIN(resolved) < $3 LIMIT $4";
    FIRST_TOO_MANY_OF_WORKER "run_outcome_first_too_many_of_worker" =
        "SELECT resolved, task_id, run_id FROM run_outcomes WHERE worker_pool_id = $1 \
         AND worker_group = $2 AND worker_id = $3 \
         ORDER BY resolved DESC, task_id DESC, run_id DESC LIMIT 1 OFFSET $4";
    DELETE_TOO_MANY_OF_WORKER "run_outcome_delete_too_many_of_worker" = concat!(delete_of_pool!(
        "worker_group = $2 AND worker_id = $3 AND (resolved, task_id, run_id) <= ($4, $5, $6) \
         AND resolved < $7"), " LIMIT $8)");
}

/// Limits of the outcomes to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptRuns {
    pub of_pool: u32,
    pub of_worker: u32,
    /// Older outcomes are deleted.
    pub since: Timestamp,
}

/// The next pool with outcomes, in the order of ids. Without `after`, the first.
pub fn next_pool(tx: &mut Tx<'_>, after: Option<&PoolId>) -> Result<Option<PoolId>> {
    let after = after.map_or("", PoolId::as_str);
    tx.row(&NEXT_POOL, after)
}

/// Outcomes of a pool that are too old or too many.
#[derive(Clone, Debug)]
pub struct Excess {
    /// Later ones stay.
    settled: Timestamp,
    has_old: bool,
    of_pool: Option<Newest>,
    /// Group and id of each worker with too many, up to a limit.
    of_workers: Arc<[(String, String, Newest)]>,
    /// The first of these workers have none left to delete.
    n_done: usize,
}

/// The result of deleting some of an excess.
#[derive(Clone, Debug)]
pub struct Trimmed {
    pub n_deleted: u64,
    /// Where to go on.
    pub rest: Excess,
}

/// The newest outcome that is too many, as the time of its end, task and run: all older ones are,
/// too, whatever is added later.
type Newest = (i64, String, i64);

/// Looks for outcomes of a pool to delete; `None`: there are none. This reads all outcomes of the
/// pool, so do it outside of the transaction that deletes them.
pub fn find_excess(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    kept: KeptRuns,
    limit: u32,
) -> Result<Option<Excess>> {
    let pool = pool_id.as_str();
    let newest: Option<Timestamp> = tx.row(&NEWEST, pool)?;
    let oldest: Option<Timestamp> = tx.row(&OLDEST, pool)?;
    let (Some(newest), Some(oldest)) = (newest, oldest) else {
        return Ok(None);
    };
    let settled = newest.plus_millis(-DUPLICATE_MS);
    let of_pool: Option<Newest> = tx.row(&FIRST_TOO_MANY, (pool, kept.of_pool))?;
    // Only workers with outcomes that can be deleted: others would use up the limit.
    let crowded: Vec<(String, String)> =
        tx.rows(&CROWDED, (pool, kept.of_worker, settled, limit))?;
    let mut of_workers = Vec::new();
    for (group, worker_id) in crowded {
        let keys = (pool, &group, &worker_id, kept.of_worker);
        let first: Option<Newest> = tx.row(&FIRST_TOO_MANY_OF_WORKER, keys)?;
        of_workers.extend(first.map(|first| (group, worker_id, first)));
    }
    let has_old = oldest < kept.since;
    let is_too_many = of_pool.is_some() && oldest < settled;
    let is_any = has_old || is_too_many || !of_workers.is_empty();
    Ok(is_any.then(|| Excess {
        settled,
        has_old,
        of_pool,
        of_workers: of_workers.into(),
        n_done: 0,
    }))
}

/// Deletes up to `limit` of the outcomes that were found. Repeat it with the rest while it deletes
/// that many; afterwards, another look may find more.
pub fn trim(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    kept: KeptRuns,
    excess: &Excess,
    limit: u32,
) -> Result<Trimmed> {
    let (pool, settled) = (pool_id.as_str(), excess.settled);
    let (mut left, mut rest) = (limit, excess.clone());
    if rest.has_old {
        let deleted = tx.execute(&DELETE_OLD, (pool, kept.since, left))?;
        subtract(&mut left, deleted);
        rest.has_old = left == 0;
    }
    if left > 0
        && let Some(newest) = rest.of_pool.take()
    {
        let deleted = tx.execute(&DELETE_TOO_MANY, (pool, newest.clone(), settled, left))?;
        subtract(&mut left, deleted);
        rest.of_pool = (left == 0).then_some(newest);
    }
    for (group, worker_id, newest) in excess.of_workers.iter().skip(excess.n_done) {
        if left == 0 {
            break;
        }
        let values = ((pool, group, worker_id), newest.clone(), settled, left);
        let deleted = tx.execute(&DELETE_TOO_MANY_OF_WORKER, values)?;
        subtract(&mut left, deleted);
        rest.n_done += usize::from(left > 0);
    }
    Ok(Trimmed {
        n_deleted: u64::from(limit - left),
        rest,
    })
}

fn subtract(left: &mut u32, deleted: u64) {
    *left = left.saturating_sub(u32::try_from(deleted).unwrap_or(u32::MAX));
}
