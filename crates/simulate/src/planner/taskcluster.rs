//! The baseline: Taskcluster's worker-manager.
//!
//! It counts as the service does, or as its simulator does.

mod weights;

use std::collections::VecDeque;

use domain::time::HOUR_MS;
use domain::worker::WorkerState;

use super::{BadPool, Decision, LaunchOrder, Observation, Planner, View, WorkerAdvice};
use crate::draws::Draws;
use crate::fleet::MachineCounts;
use crate::scenario::{Scenario, SimulatedPool};
use weights::{ConfigWeight, weigh};

/// Errors of this period lower the weight of a launch config.
const ERROR_WINDOW_MS: i64 = HOUR_MS;

/// How the estimator counts, and who decides that workers stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accounting {
    /// As the service does: requested capacity counts twice, as existing and as coming. The scanner
    /// asks the oldest workers beyond the demand to stop.
    Deployed,
    /// As its simulator does: requested capacity counts once. Workers stop after the idle time.
    Once,
}

/// Decides as Taskcluster's worker-manager does for Google and Azure.
pub struct Taskcluster {
    accounting: Accounting,
    pools: Vec<PoolPlanner>,
}

/// The decisions about one pool.
struct PoolPlanner {
    min_capacity: f64,
    max_capacity: f64,
    scaling_ratio: f64,
    capacities: Vec<u32>,
    configs: Vec<ConfigLimits>,
    errors: RecentErrors,
    draws: Draws,
}

/// The settings of a launch config.
struct ConfigLimits {
    initial_weight: f64,
    max_capacity: f64,
}

/// The errors of the last hour, by launch config.
struct RecentErrors {
    times: VecDeque<(i64, usize)>,
    by_config: Vec<u64>,
}

/// The counts that the estimator gets.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Estimate {
    pending: f64,
    claimed: f64,
    existing: f64,
    requested: f64,
    stopping: f64,
}

impl Taskcluster {
    pub fn new(scenario: &Scenario, accounting: Accounting, seed: u64) -> Result<Self, BadPool> {
        let pools = scenario.pools.iter().zip(0..);
        let pools = pools.map(|(pool, number)| PoolPlanner::new(pool, seed, number));
        Ok(Self {
            accounting,
            pools: pools.collect::<Result<_, _>>()?,
        })
    }
}

impl Planner for Taskcluster {
    fn observe(&mut self, view: &View<'_>, observation: &Observation) {
        let failed = match observation {
            Observation::Answered {
                pool,
                config,
                refusal: Some(_),
                ..
            } => Some((*pool, *config)),
            Observation::FailedLater { worker } => {
                let worker = &view.fleet.workers[*worker];
                Some((worker.pool, worker.config))
            }
            // A machine that never registers is no error for it.
            Observation::Answered { refusal: None, .. }
            | Observation::Arrived { .. }
            | Observation::Started { .. }
            | Observation::Finished { .. }
            | Observation::Registered { .. }
            | Observation::NeverRegistered { .. }
            | Observation::Interrupted { .. }
            | Observation::Ended { .. } => None,
        };
        if let Some((pool, config)) = failed {
            self.pools[pool].errors.add(view.at_ms, config);
        }
    }

    /// Refused machines are not tried again before the next tick.
    fn plan(&mut self, view: &View<'_>, round: usize, decision: &mut Decision) {
        if round > 0 {
            return;
        }
        for (index, pool) in self.pools.iter_mut().enumerate() {
            let wanted = pool.n_to_launch(self.accounting, view, index);
            if wanted > 0.0 {
                let drawn = pool.draw(view, index, wanted).into_iter();
                decision.launches.extend(drawn.map(|config| LaunchOrder {
                    pool: index,
                    config,
                    machines: 1,
                }));
            }
        }
    }

    /// Asks the oldest workers beyond the demand to stop, whether they work or not.
    fn scan(&mut self, view: &View<'_>, decision: &mut Decision) {
        if self.accounting == Accounting::Once {
            return;
        }
        for (index, pool) in self.pools.iter().enumerate() {
            let state = &view.fleet.pools[index];
            let demand = (state.n_pending() + state.n_claimed()) as f64;
            let target = demand * pool.scaling_ratio;
            let mut target = target.min(pool.max_capacity).max(pool.min_capacity);
            let newest_first = state.live.iter().rev();
            for worker in newest_first {
                let row = &view.fleet.workers[*worker];
                if row.state != WorkerState::Running {
                    continue;
                }
                let stop = target <= 0.0;
                if !stop {
                    target -= f64::from(row.capacity);
                }
                if stop || row.asked_to_stop {
                    decision.advice.push(WorkerAdvice {
                        worker: *worker,
                        stop,
                    });
                }
            }
        }
    }

    fn should_stop(&mut self, view: &View<'_>, worker: usize) -> bool {
        let row = &view.fleet.workers[worker];
        let pool = &self.pools[row.pool];
        match self.accounting {
            Accounting::Deployed => row.asked_to_stop,
            Accounting::Once => {
                let running = pool.running(view, row.pool);
                running - f64::from(row.capacity) >= pool.min_capacity
            }
        }
    }
}

impl PoolPlanner {
    fn new(pool: &SimulatedPool, seed: u64, number: u64) -> Result<Self, BadPool> {
        let settings = pool.settings()?;
        let offers = pool
            .launch_configs
            .iter()
            .map(|offered| offered.offer(&pool.pool));
        let configs = offers.map(|offer| ConfigLimits {
            initial_weight: offer.initial_weight,
            max_capacity: offer.max_capacity.unwrap_or(settings.max_capacity) as f64,
        });
        let capacities = pool.launch_configs.iter().map(|config| config.capacity);
        Ok(Self {
            min_capacity: settings.min_capacity as f64,
            max_capacity: settings.max_capacity as f64,
            scaling_ratio: settings.scaling_ratio,
            capacities: capacities.collect(),
            configs: configs.collect(),
            errors: RecentErrors {
                times: VecDeque::new(),
                by_config: vec![0; pool.launch_configs.len()],
            },
            draws: Draws::new(seed, "taskcluster", &[number]),
        })
    }

    fn running(&self, view: &View<'_>, pool: usize) -> f64 {
        let machines = |counts: &MachineCounts| counts.running + counts.draining;
        view.fleet.pools[pool].units(&self.capacities, machines) as f64
    }

    fn n_to_launch(&self, accounting: Accounting, view: &View<'_>, pool: usize) -> f64 {
        let state = &view.fleet.pools[pool];
        let requested = state.units(&self.capacities, |counts| counts.requested) as f64;
        let running = self.running(view, pool);
        let estimate = Estimate {
            pending: state.n_pending() as f64,
            claimed: state.n_claimed() as f64,
            existing: match accounting {
                Accounting::Deployed => running + requested,
                Accounting::Once => running,
            },
            requested,
            stopping: state.units(&self.capacities, |counts| counts.stopping) as f64,
        };
        estimate.n_to_launch(self.min_capacity, self.max_capacity, self.scaling_ratio)
    }

    /// The launch configs of this many units, drawn one machine at a time.
    fn draw(&mut self, view: &View<'_>, pool: usize, mut wanted: f64) -> Vec<usize> {
        self.errors.forget(view.at_ms);
        let machines = &view.fleet.pools[pool].machines;
        let configs = self.configs.iter().enumerate().map(|(index, config)| {
            let units = machines[index].all() * u64::from(self.capacities[index]);
            ConfigWeight {
                config: index,
                weight: config.initial_weight,
                max_capacity: config.max_capacity,
                capacity: units as f64,
                n_errors: self.errors.by_config[index] as f64,
                remaining: 0.0,
            }
        });
        let n_errors = self.errors.times.len() as f64;
        let mut urn = weigh(configs.collect(), n_errors);
        let mut total: f64 = urn.iter().map(|config| config.weight).sum();
        let mut drawn = Vec::new();
        while wanted > 0.0 && !urn.is_empty() {
            let point = self.draws.fraction() * total;
            let place = weights::place(&urn, point);
            let units = f64::from(self.capacities[urn[place].config]);
            drawn.push(urn[place].config);
            wanted -= units;
            urn[place].remaining -= units;
            if urn[place].remaining <= 0.0 {
                total -= urn.remove(place).weight;
            }
        }
        drawn
    }
}

impl Estimate {
    /// The formula of worker-manager's estimator.
    fn n_to_launch(&self, min: f64, max: f64, ratio: f64) -> f64 {
        let idle = (self.existing - self.claimed).max(0.0);
        let waiting = (self.pending - idle).max(0.0);
        let live = self.existing + self.stopping;
        let desired = (waiting * ratio + live).min(max).max(min);
        ((desired - live).max(0.0) - self.requested).max(0.0)
    }
}

impl RecentErrors {
    fn add(&mut self, at_ms: i64, config: usize) {
        self.times.push_back((at_ms, config));
        self.by_config[config] += 1;
    }

    fn forget(&mut self, now_ms: i64) {
        while let Some((at_ms, config)) = self.times.front().copied()
            && at_ms <= now_ms - ERROR_WINDOW_MS
        {
            self.times.pop_front();
            self.by_config[config] -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pending, claimed, existing, requested, stopping; min, max, ratio; launches: as
    /// worker-manager's estimator computes them.
    #[rustfmt::skip]
    const VECTORS: [([f64; 5], [f64; 3], f64); 25] = [
        ([0.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0], 0.0),
        ([0.0, 0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0], 1.0),
        ([0.0, 0.0, 1.0, 1.0, 0.0], [1.0, 1.0, 1.0], 0.0),
        ([100.0, 0.0, 0.0, 0.0, 0.0], [0.0, 100.0, 1.0], 100.0),
        ([100.0, 0.0, 0.0, 0.0, 0.0], [0.0, 50.0, 1.0], 50.0),
        ([100.0, 0.0, 0.0, 0.0, 0.0], [0.0, 100.0, 0.5], 50.0),
        ([100.0, 25.0, 25.0, 0.0, 0.0], [0.0, 100.0, 0.5], 50.0),
        ([0.0, 0.0, 50.0, 0.0, 0.0], [1.0, 1.0, 1.0], 0.0),
        ([0.0, 0.0, 5.0, 0.0, 0.0], [1.0, 1.0, 1.0], 0.0),
        ([26.0, 0.0, 26.0, 0.0, 0.0], [0.0, 20.0, 1.0], 0.0),
        ([20.0, 0.0, 0.0, 10.0, 10.0], [0.0, 50.0, 1.0], 10.0),
        ([11.0, 0.0, 10.0, 0.0, 0.0], [0.0, 50.0, 1.0], 1.0),
        ([5.0, 10.0, 10.0, 0.0, 0.0], [0.0, 50.0, 1.0], 5.0),
        ([0.0, 11.0, 10.0, 0.0, 0.0], [0.0, 50.0, 1.0], 0.0),
        ([10.0, 0.0, 0.0, 0.0, 100.0], [0.0, 50.0, 1.0], 0.0),
        ([10.0, 0.0, 0.0, 0.0, 45.0], [0.0, 50.0, 1.0], 5.0),
        ([100.0, 0.0, 100.0, 100.0, 0.0], [0.0, 1_000.0, 1.0], 0.0),
        // Of 50 and 150 further tasks, requested capacity hides 50 and 100; of 90, it hides 10.
        ([150.0, 0.0, 100.0, 100.0, 0.0], [0.0, 1_000.0, 1.0], 0.0),
        ([250.0, 0.0, 100.0, 100.0, 0.0], [0.0, 1_000.0, 1.0], 50.0),
        ([100.0, 0.0, 10.0, 10.0, 0.0], [0.0, 1_000.0, 1.0], 80.0),
        ([3.0, 0.0, 0.0, 0.0, 0.0], [0.0, 50.0, 0.5], 1.5),
        ([1.0, 0.0, 0.0, 0.0, 0.0], [0.0, 50.0, 0.1], 0.1),
        ([10.0, 0.0, 0.0, 0.0, 0.0], [20.0, 5.0, 1.0], 20.0),
        ([10.0, 0.0, 5.0, 2.0, 0.0], [0.0, 100.0, 1.0], 3.0),
        ([10.0, 3.0, 5.0, 2.0, 0.0], [0.0, 100.0, 1.0], 6.0),
    ];

    #[test]
    fn the_estimator_computes_what_worker_managers_does() {
        for (counts, [min, max, ratio], expected) in VECTORS {
            let [pending, claimed, existing, requested, stopping] = counts;
            let estimate = Estimate {
                pending,
                claimed,
                existing,
                requested,
                stopping,
            };
            let found = estimate.n_to_launch(min, max, ratio);
            assert!((found - expected).abs() < 1e-9, "{counts:?}: {found}");
        }
    }

    #[test]
    fn errors_count_for_an_hour() {
        let mut errors = RecentErrors {
            times: VecDeque::new(),
            by_config: vec![0; 2],
        };
        errors.add(5, 0);
        errors.add(10, 1);
        errors.add(10, 1);
        errors.forget(HOUR_MS + 4);
        assert_eq!(errors.by_config, [1, 2]);
        errors.forget(HOUR_MS + 5);
        assert_eq!(
            (errors.by_config.as_slice(), errors.times.len()),
            (&[0, 2][..], 2)
        );
        errors.forget(HOUR_MS + 10);
        assert_eq!(errors.by_config, [0, 0]);
    }
}
