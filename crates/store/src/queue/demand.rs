//! Demand: pending and claimed tasks of a pool.

use std::collections::BTreeMap;

use domain::demand::Demand;
use domain::id::PoolId;
use domain::time::Timestamp;

use crate::engine::{Result, Table, Tx, statements};

/// Counts have no key but the column by which they are grouped.
static TABLE: Table = Table::unlisted("pending_tasks", 1);

statements! { TABLE;
    PENDING "task_count_pending" =
        "SELECT COUNT(*) FROM pending_tasks WHERE task_queue_id = $1 AND deadline > $2";
    PENDING_UP_TO "task_count_pending_up_to" =
        "SELECT COUNT(*) FROM (SELECT task_id FROM pending_tasks \
         WHERE task_queue_id = $1 AND deadline > $2 LIMIT $3) AS waiting";
    PENDING_ALL "task_count_pending_all" =
        "SELECT task_queue_id, COUNT(*) FROM pending_tasks \
         WHERE task_queue_id > $1 AND deadline > $2 \
         GROUP BY task_queue_id ORDER BY task_queue_id LIMIT $3";
    OLDEST_PENDING "task_oldest_pending" =
        "SELECT task_queue_id, MIN(inserted) FROM pending_tasks WHERE sequence IN \
           (SELECT MIN(sequence) FROM pending_tasks WHERE task_queue_id > $1 AND deadline > $2 \
            GROUP BY task_queue_id, priority) \
         GROUP BY task_queue_id ORDER BY task_queue_id LIMIT $3";
    CLAIMED "task_count_claimed" =
        "SELECT COUNT(*) FROM claimed_tasks WHERE task_queue_id = $1 AND taken_until > $2";
    CLAIMED_SINCE "task_count_claimed_since" =
        "SELECT COUNT(*) FROM claimed_tasks WHERE task_queue_id = $1 AND claimed >= $2 \
         AND claimed <= $3 AND taken_until > $3";
    PENDING_TOTAL "task_count_pending_total" =
        "SELECT COUNT(*) FROM pending_tasks WHERE deadline > $1";
    CLAIMED_TOTAL "task_count_claimed_total" =
        "SELECT COUNT(*) FROM claimed_tasks WHERE taken_until > $1";
    CLAIMED_ALL "task_count_claimed_all" =
        "SELECT task_queue_id, COUNT(*) FROM claimed_tasks \
         WHERE task_queue_id > $1 AND taken_until > $2 \
         GROUP BY task_queue_id ORDER BY task_queue_id LIMIT $3";
}

pub fn of(tx: &mut Tx<'_>, pool_id: &PoolId, now: Timestamp) -> Result<Demand> {
    Ok(Demand {
        pending: tx.number(&PENDING, (pool_id, now))?,
        claimed: tx.number(&CLAIMED, (pool_id, now))?,
    })
}

/// Like `of`, but counts at most `most_pending` pending tasks.
pub fn up_to(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    now: Timestamp,
    most_pending: u32,
) -> Result<Demand> {
    Ok(Demand {
        pending: tx.number(&PENDING_UP_TO, (pool_id, now, most_pending))?,
        claimed: tx.number(&CLAIMED, (pool_id, now))?,
    })
}

/// How many runs were claimed since this moment, and still are.
pub fn claimed_since(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    since: Timestamp,
    now: Timestamp,
) -> Result<u64> {
    tx.number(&CLAIMED_SINCE, (pool_id, since, now))
}

/// The demand of all pools together.
pub fn total(tx: &mut Tx<'_>, now: Timestamp) -> Result<Demand> {
    Ok(Demand {
        pending: tx.number(&PENDING_TOTAL, now)?,
        claimed: tx.number(&CLAIMED_TOTAL, now)?,
    })
}

/// The demand of every pool that has any, ordered by pool id. Call it again while there are as many
/// as the limit.
pub fn all(
    tx: &mut Tx<'_>,
    after: Option<&PoolId>,
    limit: u32,
    now: Timestamp,
) -> Result<Vec<(PoolId, Demand)>> {
    let after = after.map_or("", PoolId::as_str);
    let pending = tx.rows(&PENDING_ALL, (after, now, limit))?;
    let claimed = tx.rows(&CLAIMED_ALL, (after, now, limit))?;
    Ok(merge(pending, claimed, limit))
}

/// When the longest waiting task of each queue began to wait, ordered by queue. Call it again while
/// there are as many as the limit.
pub fn oldest_pending(
    tx: &mut Tx<'_>,
    after: Option<&PoolId>,
    limit: u32,
    now: Timestamp,
) -> Result<Vec<(PoolId, Timestamp)>> {
    let after = after.map_or("", PoolId::as_str);
    tx.rows(&OLDEST_PENDING, (after, now, limit))
}

/// Merges two ordered lists. Leaves out pools behind the end of a list that reached the limit,
/// since their counts would be incomplete.
fn merge(
    pending: Vec<(PoolId, u64)>,
    claimed: Vec<(PoolId, u64)>,
    limit: u32,
) -> Vec<(PoolId, Demand)> {
    let end_of = |list: &[(PoolId, u64)]| {
        let last = list.last().filter(|_| list.len() >= limit as usize);
        last.map(|(id, _)| id.clone())
    };
    let ends = [end_of(&pending), end_of(&claimed)];
    let end = ends.into_iter().flatten().min();
    let mut all = BTreeMap::<PoolId, Demand>::new();
    for (id, count) in pending {
        all.entry(id).or_default().pending = count;
    }
    for (id, count) in claimed {
        all.entry(id).or_default().claimed = count;
    }
    all.into_iter()
        .filter(|(id, _)| end.as_ref().is_none_or(|end| id <= end))
        .take(limit as usize)
        .collect()
}
