//! The workers of each provider by place and state, with their prices, and its recent failures.

use domain::id::{ProviderId, WorkerGroup};
use domain::launch_failures::FailureCause;
use domain::time::Timestamp;
use domain::worker::WorkerState;

use crate::engine::{ALL_ROWS, Result, Table, Tx, from_row, statements};

static TABLE: Table = Table::unlisted("workers", 2);

statements! { TABLE;
    WORKERS "provider_worker_counts" =
        "SELECT provider_id, worker_group, state, COUNT(*), CAST(SUM(capacity) AS BIGINT), \
         COUNT(price), MIN(price), MAX(price), CAST(COALESCE(SUM(price), 0) AS BIGINT) \
         FROM workers WHERE state <> 'stopped' GROUP BY provider_id, worker_group, state \
         ORDER BY provider_id, worker_group, state LIMIT $1";
    // The same failures as those of launch configs, without machines that are only late.
    FAILURES "provider_launch_failures" =
        "SELECT provider_id, COALESCE(cause, 'capacity'), \
         CAST(SUM(CASE WHEN state = 'refused' THEN machines ELSE failed END) AS BIGINT), \
         MAX(last_modified) FROM launches WHERE last_event >= $1 AND last_modified >= $1 \
         AND (state = 'refused' OR (state = 'accepted' AND failed > 0)) \
         GROUP BY provider_id, COALESCE(cause, 'capacity') UNION ALL \
         SELECT provider_id, 'never-registered', CAST(SUM(never_registered) AS BIGINT), \
         MAX(COALESCE(last_failure, last_event)) FROM launches \
         WHERE last_event >= $1 AND never_registered > 0 GROUP BY provider_id \
         ORDER BY 1, 2 LIMIT $2";
}

/// Workers of a provider at one place in one state.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaceCount {
    pub provider_id: ProviderId,
    pub place: WorkerGroup,
    pub state: WorkerState,
    pub workers: u64,
    pub capacity: u64,
    /// Those of them whose price is known.
    pub priced: u64,
    /// Per hour.
    pub lowest: Option<f64>,
    pub highest: Option<f64>,
    pub sum: f64,
}

from_row! { PlaceCount {
    provider_id, place, state, workers, capacity, priced, lowest, highest, sum
} }

/// Machines of a provider that could not be launched, for one cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureCount {
    pub provider_id: ProviderId,
    pub cause: FailureCause,
    pub machines: u64,
    pub last: Timestamp,
}

/// The workers of all providers that are not stopped.
pub fn workers(tx: &mut Tx<'_>) -> Result<Vec<PlaceCount>> {
    tx.rows(&WORKERS, ALL_ROWS)
}

/// The machines of all providers that failed since then, by cause.
pub fn failures(tx: &mut Tx<'_>, since: Timestamp) -> Result<Vec<FailureCount>> {
    tx.rows(&FAILURES, (since, ALL_ROWS))
}

from_row! { FailureCount { provider_id, cause, machines, last } }
