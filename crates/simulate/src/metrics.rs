//! Metrics of one simulation, from its history.

use serde::Serialize;

use crate::fleet::SimulatedWorker;
use crate::history::{History, TaskRecord};
use crate::scenario::Scenario;
use crate::statistics::quantile;
use crate::units::{to_hours, to_seconds};

/// A task that waits an hour longer than necessary costs as many dollars in [`Metrics::j`].
const DOLLARS_PER_TASK_HOUR: f64 = 1.0;

/// Times are in seconds unless their names say otherwise, and amounts are in dollars.
///
/// The delay of a task is the time from its creation to its end, without the duration of one run.
/// So work that is repeated after an interruption counts.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Metrics {
    pub tasks: usize,
    /// Tasks that had not ended when the simulation ended.
    pub unfinished: usize,
    pub delay: Delay,
    /// The delay of each pool, in the order of the pools.
    pub pools: Vec<PoolDelay>,
    /// All machines from their launch to their end, as they are paid.
    pub cost: f64,
    /// The cost, and a dollar for each hour of delay.
    pub j: f64,
    /// The hours of all machines without those of finished tasks.
    pub over_provisioned_hours: f64,
    /// Machines that were made or refused.
    pub launches: u64,
    /// Machines that were refused.
    pub refused: u64,
    /// Machines without use: refused, failed after the launch, or ended without a task.
    pub wasted: u64,
    /// The cost of machines without a task.
    pub wasted_cost: f64,
    /// Machines that the clouds took back.
    pub interrupted: u64,
    /// From the first launch after an outage to the first machine of that offering, on average over
    /// the outages. `None`: nothing was launched between the end of an outage and the next one.
    pub recovery: Option<f64>,
    /// How equal the mean delays of the pools are: 1 if they are, 1/n if one pool has all delay.
    pub fairness: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Delay {
    pub mean: f64,
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
    pub worst: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolDelay {
    pub pool: String,
    #[serde(flatten)]
    pub delay: Delay,
}

impl Metrics {
    pub fn of(scenario: &Scenario, history: &History) -> Self {
        let delays = |tasks: &mut dyn Iterator<Item = &TaskRecord>| {
            let delays = tasks.map(|task| task.delay_ms(history.end_ms));
            let mut delays: Vec<i64> = delays.collect();
            delays.sort_unstable();
            delays
        };
        let all = delays(&mut history.tasks.iter());
        let pools = scenario.pools.iter().enumerate().map(|(index, pool)| {
            let mut own = history.tasks.iter().filter(|task| task.pool == index);
            PoolDelay {
                pool: pool.pool.id.to_string(),
                delay: Delay::of(&delays(&mut own)),
            }
        });
        let pools: Vec<PoolDelay> = pools.collect();
        let bills = history.workers.iter().filter_map(|worker| worker.bill);
        let cost: f64 = bills.map(|bill| bill.dollars).sum();
        let idle = || {
            history
                .workers
                .iter()
                .filter(|it| it.last_start_ms.is_none())
        };
        let n_made = history.workers.len() as u64;
        let n_refused = history.attempts.n_refused;
        Self {
            tasks: history.tasks.len(),
            unfinished: history
                .tasks
                .iter()
                .filter(|it| it.end_ms.is_none())
                .count(),
            delay: Delay::of(&all),
            cost,
            j: cost + DOLLARS_PER_TASK_HOUR * to_hours(all.iter().sum()),
            over_provisioned_hours: to_hours(unused_ms(&history.workers)),
            launches: n_made + n_refused,
            refused: n_refused,
            wasted: n_refused + idle().count() as u64,
            wasted_cost: idle().filter_map(|it| Some(it.bill?.dollars)).sum(),
            interrupted: history.n_interrupted,
            recovery: recovery(scenario, history),
            fairness: (pools.len() > 1).then(|| fairness(&pools)),
            pools,
        }
    }
}

impl TaskRecord {
    /// A task that was not finished has waited until the end.
    fn delay_ms(&self, end_ms: i64) -> i64 {
        match self.end_ms {
            Some(ended_ms) => ended_ms - self.created_ms - self.duration_ms,
            None => (end_ms - self.created_ms).max(0),
        }
    }
}

impl Delay {
    pub(crate) fn of(sorted_ms: &[i64]) -> Self {
        let at = |share| to_seconds(quantile(sorted_ms, share));
        let sum: i64 = sorted_ms.iter().sum();
        Self {
            mean: to_seconds(sum) / sorted_ms.len().max(1) as f64,
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            worst: at(1.0),
        }
    }
}

/// The capacity of the machines while they were paid for, without finished tasks.
fn unused_ms(workers: &[SimulatedWorker]) -> i64 {
    let unused = workers.iter().filter_map(|worker| {
        let paid_ms = worker.bill?.until_ms - worker.launched_ms;
        Some(paid_ms * i64::from(worker.capacity) - worker.useful_ms)
    });
    unused.sum()
}

/// An outage after which nothing was launched before the next one says nothing.
fn recovery(scenario: &Scenario, history: &History) -> Option<f64> {
    let last_ms = scenario.arrivals.last().map_or(0, |last| last.at_ms);
    let first_since = |times: &[i64], since_ms: i64| {
        let place = times.partition_point(|at_ms| *at_ms < since_ms);
        times.get(place).copied()
    };
    let mut recoveries = Vec::new();
    for (offering, made_ms) in scenario.offerings.iter().zip(&history.attempts.made_ms) {
        for (number, outage) in offering.outages.iter().enumerate() {
            let next = offering.outages.get(number + 1);
            let until_ms = next.map_or(last_ms, |next| next.from_ms);
            let tried_ms = first_since(&history.attempts.tried_ms, outage.to_ms);
            let Some(tried_ms) = tried_ms.filter(|tried_ms| *tried_ms < until_ms) else {
                continue;
            };
            let made_ms = first_since(made_ms, outage.to_ms).unwrap_or(until_ms);
            recoveries.push((made_ms.min(until_ms) - tried_ms).max(0));
        }
    }
    let n = recoveries.len();
    (n > 0).then(|| to_seconds(recoveries.iter().sum()) / n as f64)
}

/// Jain's index of the mean delays.
fn fairness(pools: &[PoolDelay]) -> f64 {
    let sum: f64 = pools.iter().map(|pool| pool.delay.mean).sum();
    let squares: f64 = pools.iter().map(|pool| pool.delay.mean.powi(2)).sum();
    if squares > 0.0 {
        sum * sum / (pools.len() as f64 * squares)
    } else {
        1.0
    }
}
