//! The production planner: the server's own code.
//!
//! It keeps the facts that the server reads from its store, and calls the same functions:
//! `Facts::is_content`, `Facts::snapshot` and `domain::plan::plan`.

mod launch_log;
mod market;
mod planned_pool;

use domain::plan::{Rival, StrategyName};

use super::{Decision, Observation, Planner, View};
use crate::draws::Draws;
use crate::scenario::{BadPool, Scenario, provider_id};
use market::Market;
use planned_pool::{PlannedPool, TaskTime};

/// Decides with a strategy of the server.
pub struct Production {
    pools: Vec<PlannedPool>,
    /// The memory of offerings, if the strategy has one.
    market: Option<Market>,
    /// The pool that plans first at the next tick.
    first: usize,
    draws: Draws,
}

impl Production {
    /// Every pool of the scenario plans with this strategy. `None`: with its own.
    pub fn new(
        scenario: &Scenario,
        strategy: Option<StrategyName>,
        seed: u64,
    ) -> Result<Self, BadPool> {
        Self::of(scenario, strategy, false, seed)
    }

    /// Every pool of the scenario plans with `balanced`, and looks ahead.
    pub fn with_foresight(scenario: &Scenario, seed: u64) -> Result<Self, BadPool> {
        Self::of(scenario, Some(StrategyName::Balanced), true, seed)
    }

    fn of(
        scenario: &Scenario,
        strategy: Option<StrategyName>,
        foresight: bool,
        seed: u64,
    ) -> Result<Self, BadPool> {
        let pools = scenario.pools.iter().map(|pool| {
            let configs = pool.launch_configs.iter();
            let places = configs.map(|config| scenario.offerings[config.offering].name.clone());
            PlannedPool::new(
                pool,
                places.collect(),
                &scenario.timing,
                strategy,
                foresight,
            )
        });
        let pools = pools.collect::<Result<Vec<_>, _>>()?;
        let learns = pools.iter().any(PlannedPool::learns);
        let provider_id = provider_id()?;
        Ok(Self {
            pools,
            market: learns.then(|| Market::new(scenario, &provider_id)),
            first: 0,
            draws: Draws::new(seed, "production", &[]),
        })
    }

    fn task_times(&self) -> Vec<Option<TaskTime>> {
        self.pools.iter().map(PlannedPool::task_time).collect()
    }

    /// The pools that compete with a pool for quotas that are used up.
    fn rivals(&self, view: &View<'_>, own: usize) -> Vec<Rival> {
        let market = self.market.as_ref().filter(|_| self.pools.len() > 1);
        let full = market.map_or_else(Vec::new, Market::used_up_quotas);
        let own_offerings = self.pools[own].offerings();
        let full: Vec<_> = full
            .into_iter()
            .filter(|(at, _)| own_offerings.contains(at))
            .collect();
        if full.is_empty() {
            return Vec::new();
        }
        let pools = view.fleet.pools.iter().zip(&self.pools).enumerate();
        let others = pools.filter(|(index, _)| *index != own);
        let rivals = others.map(|(_, (state, pool))| {
            let offerings = pool.offerings();
            let shared = full.iter().filter(|(at, _)| offerings.contains(at));
            let held = |at: usize| pool.held_units(state, |offering| offering == at);
            Rival {
                demand: pool.wanted(state),
                held: pool.held_units(state, |_| true),
                quotas: shared.map(|(at, id)| ((*id).clone(), held(*at))).collect(),
            }
        });
        rivals.filter(|rival| !rival.quotas.is_empty()).collect()
    }
}

impl Planner for Production {
    fn observe(&mut self, view: &View<'_>, observation: &Observation) {
        let (pool, offering) = match observation {
            Observation::Arrived { pool } => (*pool, None),
            Observation::Answered { pool, config, .. } => {
                (*pool, Some(view.offering(*pool, *config)))
            }
            Observation::Started { worker, .. }
            | Observation::Finished { worker, .. }
            | Observation::Registered { worker }
            | Observation::FailedLater { worker }
            | Observation::NeverRegistered { worker }
            | Observation::Interrupted { worker, .. }
            | Observation::Ended { worker } => {
                let worker = &view.fleet.workers[*worker];
                (worker.pool, Some(worker.offering))
            }
        };
        self.pools[pool].observe(view, observation);
        if let (Some(market), Some(offering)) = (&mut self.market, offering) {
            market.observe(view, offering, observation);
        }
    }

    /// Each pool is planned once; then those whose launches were refused, as the server does when a
    /// refusal wakes a pool. No pool is always the first.
    fn plan(&mut self, view: &View<'_>, round: usize, decision: &mut Decision) {
        if let Some(market) = self.market.as_mut().filter(|_| round == 0) {
            market.pass_time(view);
        }
        let times = self.task_times();
        let n_pools = self.pools.len();
        for number in 0..n_pools {
            let index = (self.first + number) % n_pools;
            if round > 0 && !self.pools[index].was_refused() {
                continue;
            }
            let seed = self.draws.number();
            let rivals = self.rivals(view, index);
            let pool = &mut self.pools[index];
            if let Some(market) = &self.market {
                pool.learn(view, index, market, rivals);
                pool.look_ahead(view, index, &times);
            }
            let n_before = decision.launches.len();
            pool.plan(view, index, seed, decision);
            if let Some(market) = &mut self.market {
                // As in the server, the next pool knows what this one asks for.
                for order in &decision.launches[n_before..] {
                    market.ask(view, view.offering(order.pool, order.config));
                }
            }
        }
        if round == 0 {
            self.first = (self.first + 1) % n_pools.max(1);
        }
    }

    fn plan_pool(&mut self, view: &View<'_>, index: usize, decision: &mut Decision) {
        let seed = self.draws.number();
        let (rivals, times) = (self.rivals(view, index), self.task_times());
        let pool = &mut self.pools[index];
        if let Some(market) = &self.market {
            pool.read_memory(view, index, market, rivals);
            pool.look_ahead(view, index, &times);
        }
        pool.plan(view, index, seed, decision);
    }

    /// Gives up machines that have been starting for too long.
    fn scan(&mut self, view: &View<'_>, decision: &mut Decision) {
        if let Some(market) = &self.market {
            for pool in &self.pools {
                pool.give_up(view, market, decision);
            }
        }
    }
}
