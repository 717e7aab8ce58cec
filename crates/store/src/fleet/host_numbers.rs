//! Declared hosts by launch config: how many were declared, registered and asked for work lately.
//!
//! For machines, the rows of launches have these numbers.

use domain::id::{LaunchConfigId, PoolId};
use domain::launch_failures::LaunchNumbers;

use crate::engine::{ALL_ROWS, BadRow, Cells, FromRow, Result, Table, Tx, statements};
use crate::launch_health::HealthWindow;

/// Groups have no key but the columns by which they are grouped.
static TABLE: Table = Table::unlisted("workers", 2);

statements! { TABLE;
    BETWEEN "host_numbers_between" =
        "SELECT worker_pool_id, launch_config_id, \
         CAST(SUM(CASE WHEN created >= $1 AND created <= $2 THEN 1 ELSE 0 END) AS BIGINT), \
         CAST(SUM(CASE WHEN registered >= $1 AND registered <= $2 THEN 1 ELSE 0 END) AS BIGINT), \
         CAST(SUM(CASE WHEN first_claim >= $1 AND first_claim <= $2 THEN 1 ELSE 0 END) AS BIGINT), \
         CAST(SUM(CASE WHEN created >= $1 AND created < $3 AND registered IS NULL \
         THEN 1 ELSE 0 END) AS BIGINT), \
         CAST(SUM(CASE WHEN registered >= $1 AND registered < $4 AND first_claim IS NULL \
         THEN 1 ELSE 0 END) AS BIGINT) FROM workers \
         WHERE declared = 1 AND worker_pool_id >= $5 AND worker_pool_id <= $6 \
         AND launch_config_id IS NOT NULL \
         GROUP BY worker_pool_id, launch_config_id \
         ORDER BY worker_pool_id, launch_config_id LIMIT $7";
}

/// The numbers of one launch config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostNumbers {
    pub pool_id: PoolId,
    pub launch_config_id: LaunchConfigId,
    pub numbers: LaunchNumbers,
}

impl FromRow for HostNumbers {
    fn read(cells: &mut Cells<'_, '_>) -> Result<Self, BadRow> {
        let (pool_id, launch_config_id) = (cells.next()?, cells.next()?);
        let declared = cells.next()?;
        Ok(Self {
            pool_id,
            launch_config_id,
            numbers: LaunchNumbers {
                attempts: declared,
                made: declared,
                registered: cells.next()?,
                claimed: cells.next()?,
                never_registered: cells.next()?,
                never_claimed: cells.next()?,
                ..LaunchNumbers::default()
            },
        })
    }
}

/// Covers all pools from the first to the last. Launch configs without hosts are absent.
pub fn between(
    tx: &mut Tx<'_>,
    window: &HealthWindow,
    first: &PoolId,
    last: &PoolId,
) -> Result<Vec<HostNumbers>> {
    let times = (window.since, window.until);
    let late = (window.launched_before, window.registered_before);
    tx.rows(&BETWEEN, (times, late, first, last, ALL_ROWS))
}
