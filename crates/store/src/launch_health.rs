//! What became of recent launches, by launch config: what the planner judges health by.

use domain::id::{LaunchConfigId, PoolId};
use domain::plan::{Health, Tries};
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
         CAST(SUM(never_registered) AS BIGINT), MAX(last_failure), \
         CAST(SUM(CASE WHEN failed + never_registered > 0 THEN 1 ELSE 0 END) AS BIGINT), \
         MAX(created), \
         MIN(CASE WHEN made > registered + never_registered THEN created END), \
         CAST(SUM(CASE WHEN cause IN ('quota', 'throttled', 'credentials', 'unavailable') \
         THEN 1 ELSE 0 END) AS BIGINT), \
         MAX(CASE WHEN cause IN ('quota', 'throttled', 'credentials', 'unavailable') \
         THEN last_modified END), \
         MAX(CASE WHEN state = 'accepted' THEN last_modified END), \
         CAST(SUM(claimed) AS BIGINT) FROM launches \
         WHERE created >= $1 AND worker_pool_id >= $2 AND worker_pool_id <= $3 \
         GROUP BY worker_pool_id, launch_config_id \
         ORDER BY worker_pool_id, launch_config_id LIMIT $4";
}

/// How a launch config has been doing.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub health: Health,
    pub tries: Tries,
    /// Launches that were refused for reasons that do not speak against it.
    pub turned_away: u64,
    pub last_turned_away: Option<Timestamp>,
    pub last_accepted: Option<Timestamp>,
    /// Machines that asked for work at least once. Always 0 where the queue is another deployment's.
    pub claimed: u64,
}

/// Of all pools from the first to the last; launch configs without launches since then are absent.
pub fn launch_health_between(
    tx: &mut Tx<'_>,
    since: Timestamp,
    first: &PoolId,
    last: &PoolId,
) -> Result<Vec<(PoolId, LaunchConfigId, Record)>, StoreError> {
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
        let tries = Tries {
            failed_launches: Some(row.number(8)?),
            last: row.optional_time(9)?,
            awaited_since: row.optional_time(10)?,
        };
        let record = Record {
            health,
            tries,
            turned_away: row.number(11)?,
            last_turned_away: row.optional_time(12)?,
            last_accepted: row.optional_time(13)?,
            claimed: row.number(14)?,
        };
        Ok((row.text(0)?.parse()?, row.text(1)?.parse()?, record))
    })
}
