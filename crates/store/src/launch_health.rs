//! What became of recent launches, by launch config: what the planner judges health by.

use domain::id::{LaunchConfigId, PoolId};
use domain::plan::Health;
use domain::time::Timestamp;

use crate::error::StoreError;
use crate::statement::{Table, statements};
use crate::tx::{ALL_ROWS, Tx};

/// Groups have no key but what they are grouped by.
static TABLE: Table = Table {
    name: "launches",
    key_columns: 2,
};

statements! { TABLE;
    BETWEEN "launch_health_between" =
        "SELECT worker_pool_id, launch_config_id, CAST(SUM(machines) AS BIGINT), \
         CAST(SUM(failed) AS BIGINT), CAST(SUM(made) AS BIGINT), CAST(SUM(registered) AS BIGINT), \
         CAST(SUM(never_registered) AS BIGINT), MAX(last_failure) FROM launches \
         WHERE created >= $1 AND worker_pool_id >= $2 AND worker_pool_id <= $3 \
         GROUP BY worker_pool_id, launch_config_id \
         ORDER BY worker_pool_id, launch_config_id LIMIT $4";
}

/// Of all pools from the first to the last; launch configs without launches since then are absent.
pub fn launch_health_between(
    tx: &mut Tx<'_>,
    since: Timestamp,
    first: &PoolId,
    last: &PoolId,
) -> Result<Vec<(PoolId, LaunchConfigId, Health)>, StoreError> {
    let values = [
        since.into(),
        first.as_str().into(),
        last.as_str().into(),
        ALL_ROWS.into(),
    ];
    tx.rows(&BETWEEN, &values, |row| {
        let health = Health {
            attempted: row.number(2)?,
            failed: row.number(3)?,
            created: row.number(4)?,
            registered: row.number(5)?,
            never_registered: row.number(6)?,
            last_failure: row.optional_time(7)?,
        };
        Ok((row.text(0)?.parse()?, row.text(1)?.parse()?, health))
    })
}
