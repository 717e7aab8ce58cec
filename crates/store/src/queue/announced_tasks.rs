//! Tasks that are announced: unscheduled, and all that they still wait for runs.

use domain::id::PoolId;
use domain::market::{Announced, PoolNews};
use domain::time::{MINUTE_MS, Timestamp};

use crate::engine::{Result, Table, Tx, from_row, statements};
use crate::fleet::pool_memories;

/// At most this many dependencies on running tasks are read; the tasks behind them do not count.
const MAX_DEPENDENCIES: u32 = 5_000;

/// Counts have no key but the columns by which they are grouped.
static TABLE: Table = Table::unlisted("task_dependencies", 1);

statements! { TABLE;
    // Of the runs for which a task waits, only the one that was claimed last counts it.
    ANNOUNCED "task_count_announced" =
        "SELECT a.waiting, a.minute, a.tasks, m.learned FROM (\
         SELECT t.task_queue_id AS waiting, r.running, r.claimed / 60000 AS minute, \
         COUNT(*) AS tasks FROM (\
         SELECT c.task_id AS required, c.task_queue_id AS running, c.claimed, e.task_id \
         FROM claimed_tasks AS c CROSS JOIN task_dependencies AS e \
         WHERE e.required_task_id = c.task_id AND e.released = 0 AND c.taken_until > $1 \
         ORDER BY c.task_id, e.task_id LIMIT $2) AS r CROSS JOIN tasks AS t \
         WHERE t.task_id = r.task_id AND t.state = 'unscheduled' AND t.deadline > $1 \
         AND t.task_queue_id IN (SELECT member.value ->> 0 FROM json_each($3) AS member) \
         AND NOT EXISTS (SELECT 1 FROM task_dependencies AS o \
         LEFT JOIN claimed_tasks AS oc ON oc.task_id = o.required_task_id \
         WHERE o.task_id = r.task_id AND o.released = 0 AND (oc.task_id IS NULL \
         OR oc.claimed > r.claimed OR (oc.claimed = r.claimed AND oc.task_id > r.required))) \
         GROUP BY t.task_queue_id, r.running, r.claimed / 60000) AS a \
         CROSS JOIN pool_memories AS m WHERE m.worker_pool_id = a.running \
         ORDER BY a.waiting, a.minute, a.running";
}

struct Row {
    waiting: PoolId,
    minute: i64,
    tasks: u64,
    learned: String,
}

from_row! { Row { waiting, minute, tasks, learned } }

/// The tasks that are announced to these pools, by the minute in which the runs that they wait for
/// were claimed. Runs of pools that do not know how long their tasks take announce nothing.
pub fn of(tx: &mut Tx<'_>, pools: &[PoolId], now: Timestamp) -> Result<Vec<(PoolId, Announced)>> {
    let rows: Vec<Row> = tx.rows(
        &ANNOUNCED,
        (now, MAX_DEPENDENCIES, pool_memories::list(pools)),
    )?;
    let announced = rows.into_iter().filter_map(|row| {
        // Another version of the program wrote it if it cannot be read.
        let learned: PoolNews = serde_json::from_str(&row.learned).ok()?;
        let announced = Announced {
            count: row.tasks,
            since: Timestamp::from_millis(row.minute.saturating_mul(MINUTE_MS)),
            run_ms: learned.task_ms?,
            deviation_ms: learned.deviation_ms?,
        };
        Some((row.waiting, announced))
    });
    Ok(announced.collect())
}
