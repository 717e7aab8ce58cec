//! The recorded fleet, in the measures of a simulation.

use std::collections::{BTreeMap, BTreeSet};

use domain::id::PoolId;
use domain::time::{MINUTE_MS, Timestamp};
use serde::Serialize;

use super::Recording;
use super::entry::{RunEntry, WorkerEntry};
use crate::metrics::{Delay, PoolDelay};
use crate::study::Series;
use crate::units::to_hours;

/// Costs are in dollars, times in seconds, unless names say otherwise.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Past {
    pub tasks: usize,
    pub delay: Delay,
    pub pools: Vec<PoolDelay>,
    pub cost: f64,
    /// All machines, from their launch to their end.
    pub machine_hours: f64,
    /// The hours of all machines without those of finished tasks.
    pub over_provisioned_hours: f64,
    /// Of the machine-hours, those without a known price.
    pub unpriced_hours: f64,
    /// Machines that were made or refused.
    pub launches: u64,
    pub refused: u64,
    pub interrupted: u64,
}

impl Past {
    /// About these pools.
    pub fn of(recording: &Recording, pools: &BTreeSet<PoolId>) -> Self {
        let header = &recording.header;
        let (since, until) = (header.since, header.until);
        let mut waits: BTreeMap<&PoolId, Vec<i64>> = BTreeMap::new();
        let runs = recording.runs.iter();
        for run in runs.filter(|run| run.ends_task() && pools.contains(&run.worker_pool_id)) {
            let of_pool = waits.entry(&run.worker_pool_id).or_default();
            of_pool.push(wait_ms(run, since));
        }
        let durations = recording
            .runs
            .iter()
            .filter(|run| waits.contains_key(&run.worker_pool_id));
        let durations = durations.filter(|run| run.ends_task());
        let used_ms: i64 = durations.map(RunEntry::duration_ms).sum();
        let mut all: Vec<i64> = waits.values().flatten().copied().collect();
        all.sort_unstable();
        let pool_delay = |(pool, mut waits): (&PoolId, Vec<i64>)| {
            waits.sort_unstable();
            PoolDelay {
                pool: pool.to_string(),
                delay: Delay::of(&waits),
            }
        };
        let mut past = Self {
            tasks: all.len(),
            delay: Delay::of(&all),
            pools: waits.into_iter().map(pool_delay).collect(),
            cost: 0.0,
            machine_hours: 0.0,
            over_provisioned_hours: 0.0,
            unpriced_hours: 0.0,
            launches: 0,
            refused: 0,
            interrupted: 0,
        };
        let workers = recording.workers.iter();
        for worker in workers.filter(|worker| pools.contains(&worker.worker_pool_id)) {
            let hours = to_hours(paid_ms(worker, since, until));
            past.machine_hours += hours;
            past.over_provisioned_hours += hours * f64::from(worker.capacity);
            match worker.price {
                Some(price) => past.cost += hours * price,
                None => past.unpriced_hours += hours,
            }
            past.launches += u64::from(worker.created >= since);
            past.interrupted += u64::from(worker.interrupted);
        }
        past.over_provisioned_hours -= to_hours(used_ms);
        let launches = recording.launches.iter();
        let launches = launches.filter(|launch| pools.contains(&launch.worker_pool_id));
        let refused = launches.filter(|launch| launch.cause.is_some() || launch.made > 0);
        let refused = refused.map(|launch| u64::from(launch.machines.saturating_sub(launch.made)));
        past.refused = refused.sum();
        past.launches += past.refused;
        past
    }
}

impl Series {
    /// The recorded fleet of these pools.
    pub(super) fn of_recording(recording: &Recording, pools: &BTreeSet<PoolId>) -> Self {
        let header = &recording.header;
        let since_start = |at: Timestamp| at.millis_since(header.since).max(0);
        let runs = || {
            let runs = recording.runs.iter();
            runs.filter(|run| pools.contains(&run.worker_pool_id))
        };
        let wanted = runs().filter(|run| run.ends_task()).map(|run| {
            let from_ms = since_start(run.waiting_since);
            (from_ms, from_ms.saturating_add(run.duration_ms()))
        });
        let waiting = runs().map(|run| (since_start(run.waiting_since), since_start(run.started)));
        let workers = recording.workers.iter();
        let machines = workers
            .filter(|worker| pools.contains(&worker.worker_pool_id))
            .map(|worker| {
                let end = worker.end(header.until);
                (since_start(worker.created), since_start(end))
            });
        Self::of_spans(recording.length_ms(), wanted, waiting, machines)
    }
}

/// A wait that began before the recording counts from there.
fn wait_ms(run: &RunEntry, since: Timestamp) -> i64 {
    run.started
        .max(since)
        .millis_since(run.waiting_since.max(since))
}

/// At least a minute, as in simulations, and only within the recording.
fn paid_ms(worker: &WorkerEntry, since: Timestamp, until: Timestamp) -> i64 {
    let end = worker
        .end(until)
        .max(worker.created.plus_millis(MINUTE_MS))
        .min(until);
    end.millis_since(worker.created.max(since)).max(0)
}
