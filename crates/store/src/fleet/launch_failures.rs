//! Failures of recent launches, by launch config and cause.
//!
//! The same launches as for the health of launch configs, but refusals of every cause, and lost
//! answers.

use domain::id::PoolId;
use domain::launch_failures::LaunchFailures;

use super::launch_health::HealthWindow;
use crate::engine::{Result, Table, Tx, from_row, statements};

/// Groups have no key but the columns by which they are grouped.
static TABLE: Table = Table::unlisted("launches", 3);

/// The launches of these pools. Machines are late as in the health of launch configs.
macro_rules! of {
    ($($condition:literal),+) => {
        concat!(
            "SELECT worker_pool_id, launch_config_id, token, state, problem, machines, \
             CASE WHEN state = 'unknown' THEN 'lost' ELSE cause END AS cause, \
             failed, made, registered, claimed, never_registered, last_modified, \
             COALESCE(last_failure, last_event) AS noticed, \
             CASE WHEN state = 'accepted' AND created < $1 \
             AND made > registered + never_registered \
             THEN made - registered - never_registered ELSE 0 END AS overdue, \
             CASE WHEN last_registered < $2 AND registered > claimed \
             THEN registered - claimed ELSE 0 END AS silent FROM launches WHERE ",
            $($condition),+
        )
    };
}

/// An example has at most 1,000 characters.
macro_rules! failures {
    ($pools:literal, $limit:literal) => {
        concat!(
            "WITH recent AS (",
            of!("last_event <= $3 AND last_event >= $4 AND ", $pools),
            " UNION ALL ",
            of!(
                "state = 'accepted' AND made > registered + never_registered \
                 AND last_event < $4 AND ",
                $pools
            ),
            "), accepted AS (SELECT worker_pool_id, launch_config_id, MAX(last_modified) AS at \
             FROM recent WHERE state = 'accepted' AND failed = 0 \
             GROUP BY worker_pool_id, launch_config_id), \
             failures AS (SELECT worker_pool_id, launch_config_id, token, \
             COALESCE(cause, 'capacity') AS cause, \
             CASE WHEN state IN ('refused', 'unknown') THEN machines ELSE failed END AS machines, \
             last_modified AS at, SUBSTR(COALESCE(problem, ''), 1, 1000) AS example FROM recent \
             WHERE state = 'refused' OR state = 'unknown' AND made = 0 \
             OR state = 'accepted' AND failed > 0 \
             UNION ALL \
             SELECT worker_pool_id, launch_config_id, token, 'never-registered', \
             never_registered + overdue, noticed, '' FROM recent \
             WHERE never_registered + overdue > 0 \
             UNION ALL \
             SELECT worker_pool_id, launch_config_id, token, 'never-claimed', \
             silent, noticed, '' FROM recent WHERE silent > 0), \
             ranked AS (SELECT f.*, a.at AS accepted, FIRST_VALUE(f.example) \
             OVER (PARTITION BY f.worker_pool_id, f.launch_config_id, f.cause \
             ORDER BY f.at DESC, f.token) AS newest FROM failures AS f LEFT JOIN accepted AS a \
             ON a.worker_pool_id = f.worker_pool_id \
             AND a.launch_config_id = f.launch_config_id) \
             SELECT worker_pool_id, launch_config_id, cause, CAST(SUM(machines) AS BIGINT), \
             MIN(at), MAX(at), MIN(CASE WHEN accepted IS NULL OR at > accepted THEN at END), \
             MAX(newest) FROM ranked GROUP BY worker_pool_id, launch_config_id, cause \
             ORDER BY worker_pool_id, launch_config_id, cause LIMIT ",
            $limit
        )
    };
}

statements! { TABLE;
    OF_POOL "launch_failures_of_pool" = failures!("worker_pool_id = $5", "$6");
    // As for the health: adding '' keeps the database from the index on pools.
    BETWEEN "launch_failures_between" =
        failures!("worker_pool_id || '' >= $5 AND worker_pool_id || '' <= $6", "$7");
}

/// Of all pools from the first to the last, ordered by pool, launch config and cause.
pub fn between(
    tx: &mut Tx<'_>,
    window: &HealthWindow,
    first: &PoolId,
    last: &PoolId,
) -> Result<Vec<LaunchFailures>> {
    // The failures are joined with what the statement counts, which has no index.
    tx.plan_for_values()?;
    window.rows(tx, [&OF_POOL, &BETWEEN], first, last)
}

from_row! { LaunchFailures {
    pool_id, launch_config_id, cause, machines, first, last, since, example
} }
