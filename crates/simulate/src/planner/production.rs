//! The production planner: the code that decides in the server, about a simulated fleet.
//!
//! It keeps the facts that the server reads from its store, and calls the same functions:
//! `Facts::is_content`, `Facts::snapshot` and `domain::plan::plan`.

mod launch_log;
mod planned_pool;

use domain::plan::StrategyName;

use super::{BadPool, Decision, Observation, Planner, View};
use crate::draws::Draws;
use crate::scenario::Scenario;
use planned_pool::PlannedPool;

/// Decides with a strategy of the server.
pub struct Production {
    pools: Vec<PlannedPool>,
    /// The pool that plans first at the next tick.
    first: usize,
    draws: Draws,
}

impl Production {
    /// Every pool of the scenario plans with this strategy.
    pub fn new(scenario: &Scenario, strategy: StrategyName, seed: u64) -> Result<Self, BadPool> {
        let pools = scenario.pools.iter().map(|pool| {
            let configs = pool.launch_configs.iter();
            let places = configs.map(|config| scenario.offerings[config.offering].name.clone());
            PlannedPool::new(pool, places.collect(), &scenario.timing, strategy)
        });
        Ok(Self {
            pools: pools.collect::<Result<_, _>>()?,
            first: 0,
            draws: Draws::new(seed, "production", &[]),
        })
    }
}

impl Planner for Production {
    fn observe(&mut self, view: &View<'_>, observation: &Observation) {
        let pool = match observation {
            Observation::Arrived { pool } | Observation::Answered { pool, .. } => *pool,
            Observation::Started { worker, .. }
            | Observation::Finished { worker, .. }
            | Observation::Registered { worker }
            | Observation::FailedLater { worker }
            | Observation::NeverRegistered { worker }
            | Observation::Interrupted { worker }
            | Observation::Ended { worker } => view.fleet.workers[*worker].pool,
        };
        self.pools[pool].observe(view, observation);
    }

    /// Each pool is planned once; then those whose launches were refused, as the server does when a
    /// refusal wakes a pool. No pool is always the first.
    fn plan(&mut self, view: &View<'_>, round: usize, decision: &mut Decision) {
        let n_pools = self.pools.len();
        for number in 0..n_pools {
            let index = (self.first + number) % n_pools;
            let pool = &mut self.pools[index];
            if round > 0 && !pool.was_refused() {
                continue;
            }
            let seed = self.draws.number();
            pool.plan(view, index, seed, decision);
        }
        if round == 0 {
            self.first = (self.first + 1) % n_pools.max(1);
        }
    }
}
