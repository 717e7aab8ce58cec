//! Results of recent launches, by launch config and provider: a launch config keeps its id when its
//! pool moves to another provider. The planner derives the health of launch configs from them.
//!
//! A launch is recent if it had an event lately, whenever it was created. A launch with machines
//! that have not registered yet is always included.

use domain::facts::LaunchRecord;
use domain::id::{LaunchConfigId, PoolId, ProviderId};
use domain::plan::{Health, Refusals, Tries};
use domain::time::Timestamp;

use crate::engine::{
    ALL_ROWS, BadRow, Cells, FromRow, Result, Statement, Table, Tx, from_row, statements,
};

/// Groups have no key but the columns by which they are grouped.
static TABLE: Table = Table::unlisted("launches", 2);

/// The launches of these pools, each with the columns that describe the health of its launch
/// config. A lost answer pauses it, too.
macro_rules! of {
    ($($condition:literal),+) => {
        concat!(
            "SELECT worker_pool_id, launch_config_id, provider_id, token, plan, machines, state, \
             CASE WHEN state = 'unknown' THEN 'lost' ELSE COALESCE(cause, 'capacity') END \
             AS cause, made, failed, registered, never_registered, \
             last_failure, \
             CASE WHEN state = 'accepted' AND created < $1 \
             AND made > registered + never_registered \
             THEN made - registered - never_registered ELSE 0 END AS overdue, \
             CASE WHEN last_registered < $2 AND registered > claimed \
             THEN registered - claimed ELSE 0 END AS silent, claimed, \
             CASE WHEN state = 'refused' OR state = 'unknown' AND made = 0 \
             OR state = 'accepted' AND failed > 0 THEN last_modified ELSE 0 END AS refused_at, \
             CASE WHEN state <> 'withdrawn' AND created <= $3 THEN created END AS tried_at, \
             CASE WHEN state = 'accepted' AND failed = 0 \
             THEN last_modified ELSE 0 END AS accepted_at FROM launches WHERE ",
            $($condition),+
        )
    };
}

/// Adding 0 keeps the database from an index on times for launches before the recent ones: those
/// are all of months. It uses the index of launches with machines that have not registered.
macro_rules! health {
    ($pools:literal, $limit:literal) => {
        concat!(
            "SELECT worker_pool_id, launch_config_id, provider_id, \
             CAST(SUM(CASE WHEN state IN ('open', 'unknown', 'accepted') OR failed > 0 \
             THEN machines ELSE 0 END) AS BIGINT), \
             CAST(SUM(CASE WHEN state = 'refused' THEN failed ELSE 0 END) AS BIGINT), \
             CAST(SUM(CASE WHEN state = 'refused' AND cause = 'quota' THEN machines ELSE 0 END) \
             AS BIGINT), \
             CAST(SUM(CASE WHEN state = 'accepted' THEN failed ELSE 0 END) AS BIGINT), \
             CAST(SUM(made) AS BIGINT), CAST(SUM(registered) AS BIGINT), \
             CAST(SUM(never_registered) AS BIGINT), CAST(SUM(overdue) AS BIGINT), \
             CAST(SUM(silent) AS BIGINT), MAX(last_failure), \
             COUNT(DISTINCT CASE WHEN refused_at > last_accepted THEN plan END), \
             MAX(last_cause), MAX(refused_at), \
             COUNT(DISTINCT CASE WHEN never_registered + overdue + silent > 0 THEN plan END), \
             MAX(tried_at), \
             CAST(SUM(claimed) AS BIGINT) FROM (\
             SELECT recent.*, MAX(accepted_at) \
             OVER (PARTITION BY worker_pool_id, launch_config_id, provider_id) AS last_accepted, \
             FIRST_VALUE(cause) OVER (PARTITION BY worker_pool_id, launch_config_id, provider_id \
             ORDER BY refused_at DESC, token) AS last_cause FROM (",
            of!("last_event <= $3 AND last_event >= $4 AND ", $pools),
            " UNION ALL ",
            of!(
                "state = 'accepted' AND made > registered + never_registered \
                 AND last_event + 0 < $4 AND ",
                $pools
            ),
            ") AS recent) AS ranked GROUP BY worker_pool_id, launch_config_id, provider_id \
             ORDER BY worker_pool_id, launch_config_id, provider_id LIMIT ",
            $limit
        )
    };
}

statements! { TABLE;
    OF_POOL "launch_health_of_pool" = health!("worker_pool_id = $5", "$6");
    // Few launches are recent. Adding '' keeps the database from the index on pools, so that it
    // uses the index on times.
    BETWEEN "launch_health_between" =
        health!("worker_pool_id || '' >= $5 AND worker_pool_id || '' <= $6", "$7");
}

/// Selects launches, and says when machines are late.
#[derive(Clone, Copy, Debug)]
pub struct HealthWindow {
    /// Their last event is not before this moment.
    pub since: Timestamp,
    /// Later events do not count: they were written by a clock that is ahead.
    pub until: Timestamp,
    /// Machines of launches before this moment should have registered.
    pub launched_before: Timestamp,
    /// Workers that registered before this moment should have asked for work.
    pub registered_before: Timestamp,
}

impl HealthWindow {
    /// The groups of one pool, or of all pools from the first to the last.
    pub(super) fn rows<T: FromRow>(
        &self,
        tx: &mut Tx<'_>,
        [of_pool, between]: [&'static Statement; 2],
        first: &PoolId,
        last: &PoolId,
    ) -> Result<Vec<T>> {
        let times = (
            self.launched_before,
            self.registered_before,
            self.until,
            self.since,
        );
        if first == last {
            tx.rows(of_pool, (times, first, ALL_ROWS))
        } else {
            tx.rows(between, (times, first, last, ALL_ROWS))
        }
    }
}

/// The results of a launch config at a provider.
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchResults {
    pub pool_id: PoolId,
    pub launch_config_id: LaunchConfigId,
    pub provider_id: ProviderId,
    pub record: LaunchRecord,
}

from_row! { LaunchResults { pool_id, launch_config_id, provider_id, record } }

/// Covers all pools from the first to the last. Launch configs without a recent launch are absent.
pub fn between(
    tx: &mut Tx<'_>,
    window: &HealthWindow,
    first: &PoolId,
    last: &PoolId,
) -> Result<Vec<LaunchResults>> {
    window.rows(tx, [&OF_POOL, &BETWEEN], first, last)
}

impl FromRow for Health {
    fn read(cells: &mut Cells<'_, '_>) -> Result<Self, BadRow> {
        Ok(Self {
            attempted: cells.next()?,
            failed: cells.next()?,
            quota: cells.next()?,
            short: cells.next()?,
            created: cells.next()?,
            registered: cells.next()?,
            never_registered: cells.next()?,
            overdue: cells.next()?,
            silent: cells.next()?,
            last_failure: cells.next()?,
            // Reports of workers are in another table.
            ..Self::default()
        })
    }
}

impl FromRow for LaunchRecord {
    fn read(cells: &mut Cells<'_, '_>) -> Result<Self, BadRow> {
        let health = cells.next()?;
        let (in_a_row, cause, last): (u64, String, Timestamp) = cells.next()?;
        let refusals = match in_a_row {
            0 => None,
            _ => Some(Refusals {
                in_a_row,
                cause: cause.parse()?,
                last,
            }),
        };
        Ok(Self {
            health,
            tries: Tries {
                refusals,
                plans_without_workers: cells.next()?,
                last: cells.next()?,
            },
            claimed: cells.next()?,
        })
    }
}
