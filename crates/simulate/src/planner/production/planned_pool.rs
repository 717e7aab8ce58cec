//! The facts about one simulated pool, as the server reads them, and its plans.

mod candidates;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use domain::demand::Demand;
use domain::facts::{ClaimSource, Facts, MarketFacts, Rooms, Starting, most_pending};
use domain::id::{BadId, LaunchConfigId, ProviderId, WorkerGroup};
use domain::market::{Announced, NEVER_LATE_MS, PoolMemory, PoolNews};
use domain::plan::{Bid, Bids, Input, Plan, Rival, START_UP_MS, StrategyDefaults, StrategyName};
use domain::supply::{FRESH_MS, Group, Horizon};
use domain::time::{DAY_MS, MINUTE_MS};
use domain::worker::{Advice, WorkerState};
use serde_json::Value;

use super::launch_log::{CloudAnswer, LaunchLog};
use super::market::Market;
use crate::fleet::{PoolState, SimulatedWorker};
use crate::planner::{Decision, LaunchOrder, Observation, View, WorkerAdvice};
use crate::scenario::{BadPool, OfferedConfig, SimulatedPool, Timing, provider_id};

pub(super) struct PlannedPool {
    facts: Facts,
    configs: Vec<OfferedConfig>,
    config_ids: Vec<LaunchConfigId>,
    /// The names of the offerings of the launch configs.
    places: Vec<String>,
    /// The groups of their workers.
    groups: Vec<WorkerGroup>,
    provider_id: ProviderId,
    most_pending: u64,
    max_capacity: u64,
    /// Of launch configs that set none.
    idle_hold_ms: i64,
    /// The shortest of all launch configs.
    least_hold_ms: i64,
    log: LaunchLog,
    /// The moment of the last answers of clouds, and how many came then.
    answers: (i64, i64),
    was_refused: bool,
    /// The count of changes of the fleet from which the inventory was made.
    n_changes: Option<u64>,
    /// Workers that have not registered.
    awaited: BTreeMap<usize, AwaitedWorker>,
    /// The prices of the workers that exist, as they were at their launches.
    prices: BTreeMap<usize, f64>,
    /// Workers that registered recently, oldest first.
    fresh: VecDeque<usize>,
    /// Workers that were asked to stop.
    asked: BTreeMap<usize, Advice>,
    registration_ms: i64,
    /// The memory of the tasks, if the strategy learns.
    memory: Option<PoolMemory>,
    /// The part that plans use, as of the last sample.
    news: PoolNews,
    wait_price: f64,
    /// The interval between two samples. `None`: every change is seen at once.
    sample_ms: Option<i64>,
    /// When the last sample was taken.
    sampled_ms: Option<i64>,
    /// Whether it looks ahead: until when arrivals are counted by hour, and those since then.
    by_hour: Option<(i64, u64)>,
}

/// How long tasks of a pool run.
#[derive(Clone, Copy)]
pub(super) struct TaskTime {
    mean_ms: f64,
    deviation_ms: f64,
}

/// A worker that has not registered.
#[derive(Clone, Copy)]
struct AwaitedWorker {
    /// The number of its launch in the log.
    launch: usize,
    config: usize,
    launched_ms: i64,
}

impl PlannedPool {
    pub(super) fn new(
        simulated: &SimulatedPool,
        places: Vec<String>,
        timing: &Timing,
        strategy: Option<StrategyName>,
        foresight: bool,
    ) -> Result<Self, BadPool> {
        let mut simulated = simulated.clone();
        let config = &mut simulated.pool.definition.config;
        if let Some(strategy) = strategy {
            config.insert("strategy".to_owned(), Value::from(strategy.as_str()));
        }
        if foresight {
            config.insert("foresight".to_owned(), Value::from(true));
        }
        let settings = simulated.settings()?;
        // No service can be asked in simulated time, so its fallback decides.
        let (idle_hold_ms, memory) = match settings.own_strategy_name() {
            StrategyName::Weighted | StrategyName::AwsProvisioner | StrategyName::External => {
                (timing.idle_ms, None)
            }
            StrategyName::Balanced => (timing.least_idle_ms, Some(PoolMemory::default())),
        };
        let looks_ahead = settings.foresight && memory.is_some();
        let SimulatedPool {
            pool,
            launch_configs,
        } = simulated;
        let configs = launch_configs.iter();
        let most_pending = u64::from(most_pending(&pool, StrategyDefaults::default()));
        let demand = Demand::default();
        let mut facts = Facts::new(
            pool,
            demand,
            horizon(timing.start),
            StrategyDefaults::default(),
        );
        facts.launch_configs = configs.clone().map(|it| it.config.clone()).collect();
        Ok(Self {
            facts,
            config_ids: configs.map(|it| it.config.id.clone()).collect(),
            groups: groups(&launch_configs, &places)?,
            configs: launch_configs.clone(),
            places,
            provider_id: provider_id()?,
            most_pending,
            max_capacity: settings.max_capacity,
            least_hold_ms: least_hold_ms(&launch_configs, idle_hold_ms),
            idle_hold_ms,
            log: LaunchLog::default(),
            answers: (i64::MIN, 0),
            was_refused: false,
            n_changes: None,
            awaited: BTreeMap::new(),
            prices: BTreeMap::new(),
            fresh: VecDeque::new(),
            asked: BTreeMap::new(),
            registration_ms: timing.registration_ms,
            memory,
            news: PoolNews::default(),
            wait_price: settings.wait_price,
            by_hour: looks_ahead.then_some((0, 0)),
            sample_ms: timing.reactions.map(|it| it.sample_ms),
            sampled_ms: None,
        })
    }

    /// Whether its strategy learns from launches, workers and tasks.
    pub(super) fn learns(&self) -> bool {
        self.memory.is_some()
    }

    /// Whether a launch of the last plan was refused.
    pub(super) fn was_refused(&self) -> bool {
        self.was_refused
    }

    pub(super) fn observe(&mut self, view: &View<'_>, observation: &Observation) {
        self.observe_tasks(view, observation);
        match observation {
            Observation::Answered {
                pool,
                config,
                machines,
                made,
                refusal,
            } => {
                let delay_ms = self.answer_delay_ms(view.at_ms);
                let number = self.log.add(CloudAnswer {
                    config: *config,
                    decided: view.now(),
                    answered: view.now().plus_millis(delay_ms),
                    machines: u64::from(*machines),
                    made: made.len() as u64,
                    refusal: *refusal,
                });
                let awaited = AwaitedWorker {
                    launch: number,
                    config: *config,
                    launched_ms: view.at_ms,
                };
                let price = view.price(view.offering(*pool, *config));
                self.awaited.extend(made.clone().map(|it| (it, awaited)));
                self.prices.extend(made.clone().map(|it| (it, price)));
                self.was_refused |= refusal.is_some();
            }
            Observation::Registered { worker } => {
                if let Some(awaited) = self.awaited.remove(worker) {
                    self.log.note_registered(awaited.launch, view.now());
                }
                self.fresh.push_back(*worker);
            }
            Observation::FailedLater { worker }
            | Observation::NeverRegistered { worker }
            | Observation::Interrupted { worker, .. } => {
                if let Some(awaited) = self.awaited.remove(worker) {
                    self.log.note_never_registered(awaited.launch, view.now());
                }
                self.forget(*worker);
            }
            Observation::Ended { worker } => self.forget(*worker),
            Observation::Arrived { .. }
            | Observation::Started { .. }
            | Observation::Finished { .. } => {}
        }
    }

    /// Follows the demand of the pool.
    fn observe_tasks(&mut self, view: &View<'_>, observation: &Observation) {
        let Some(memory) = &mut self.memory else {
            return;
        };
        let pool = match observation {
            Observation::Arrived { pool } => {
                memory.add_arrivals(1);
                if let Some((_, count)) = &mut self.by_hour {
                    *count += 1;
                }
                *pool
            }
            Observation::Finished {
                worker,
                duration_ms,
            } => {
                memory.add_task(*duration_ms);
                memory.add_ended(1);
                view.fleet.workers[*worker].pool
            }
            Observation::Started { .. }
            | Observation::Registered { .. }
            | Observation::Answered { .. }
            | Observation::FailedLater { .. }
            | Observation::NeverRegistered { .. }
            | Observation::Interrupted { .. }
            | Observation::Ended { .. } => return,
        };
        if self.sample_ms.is_none() {
            let state = &view.fleet.pools[pool];
            memory.reach_level(state.n_pending() + state.n_claimed(), view.now());
        }
    }

    fn forget(&mut self, worker: usize) {
        self.asked.remove(&worker);
        self.prices.remove(&worker);
    }

    fn idle_hold_ms(&self, config: usize) -> i64 {
        let of_config = self.configs[config].idle_hold_ms;
        of_config.unwrap_or(self.idle_hold_ms)
    }

    /// The offerings of its launch configs, by their indexes.
    pub(super) fn offerings(&self) -> BTreeSet<usize> {
        self.configs.iter().map(|config| config.offering).collect()
    }

    /// Units that its tasks need, up to its maximum.
    pub(super) fn wanted(&self, state: &PoolState) -> u64 {
        let needed = state.n_pending() + state.n_claimed();
        needed.min(self.max_capacity)
    }

    /// Units of these offerings that run or are to come.
    pub(super) fn held_units(&self, state: &PoolState, is_of: impl Fn(usize) -> bool) -> u64 {
        let counts = state.machines.iter().zip(&self.configs);
        let counts = counts.filter(|(_, config)| is_of(config.offering));
        let units = counts.map(|(machines, config)| {
            (machines.requested + machines.running) * u64::from(config.capacity)
        });
        units.sum()
    }

    /// Learns from the market, and adds what is known to the facts.
    pub(super) fn learn(
        &mut self,
        view: &View<'_>,
        index: usize,
        market: &Market,
        rivals: Vec<Rival>,
    ) {
        if let Some(memory) = &mut self.memory
            && is_due(view.at_ms, self.sampled_ms, self.sample_ms)
        {
            if self.sample_ms.is_some() {
                let state = &view.fleet.pools[index];
                memory.reach_level(state.n_pending() + state.n_claimed(), view.now());
            }
            self.sampled_ms = Some(view.at_ms);
            let best = market.best_offer(view);
            let missing_ms = memory.missing_ms(best.boot_ms, best.price, self.wait_price);
            memory.learn(missing_ms, view.now());
            self.news = memory.news();
            if let Some((counted_ms, count)) = &mut self.by_hour {
                memory.note_hour(view.now(), view.at_ms - *counted_ms, *count);
                (*counted_ms, *count) = (view.at_ms, 0);
                self.news.expected = memory.expected(view.now());
            }
        }
        self.read_memory(view, index, market, rivals);
    }

    /// Adds what is known to the facts.
    pub(super) fn read_memory(
        &mut self,
        view: &View<'_>,
        index: usize,
        market: &Market,
        rivals: Vec<Rival>,
    ) {
        if self.memory.is_none() {
            return;
        }
        self.facts.memory = Some(MarketFacts {
            pool: self.news.clone(),
            offerings: market.memories(),
            starting: self.starting(view),
            ordinary_runs: self.ordinary_runs(view, &view.fleet.pools[index]),
            rivals,
            held: BTreeMap::new(),
        });
    }

    /// How many tasks have been running for an ordinary time.
    fn ordinary_runs(&self, view: &View<'_>, state: &PoolState) -> Option<u64> {
        let since = self.news.ordinary_since(view.now())?;
        let since_ms = view.at_ms - view.now().millis_since(since);
        let started = state.claims.values();
        (!state.pending.is_empty())
            .then(|| started.filter(|at_ms| **at_ms >= since_ms).count() as u64)
    }

    pub(super) fn task_time(&self) -> Option<TaskTime> {
        let (mean_ms, deviation_ms) = self.memory.as_ref()?.known_task_ms()?;
        Some(TaskTime {
            mean_ms,
            deviation_ms,
        })
    }

    /// Adds the tasks that are announced to the facts. `times`: those of all pools.
    pub(super) fn look_ahead(&mut self, view: &View<'_>, index: usize, times: &[Option<TaskTime>]) {
        if self.by_hour.is_none() {
            return;
        }
        let mut counts: BTreeMap<(usize, i64), u64> = BTreeMap::new();
        for announced in view.fleet.pools[index].announced.values() {
            let minute = announced.since_ms / MINUTE_MS;
            *counts.entry((announced.run_by, minute)).or_default() += announced.count;
        }
        let since = |minute: i64| view.now().plus_millis(minute * MINUTE_MS - view.at_ms);
        let announced = counts.into_iter().filter_map(|((run_by, minute), count)| {
            let time = times[run_by]?;
            Some(Announced {
                count,
                since: since(minute),
                run_ms: time.mean_ms,
                deviation_ms: time.deviation_ms,
            })
        });
        self.facts.announced = announced.collect();
    }

    /// The machines that have not registered, by launch.
    fn starting(&self, view: &View<'_>) -> Vec<Starting> {
        let mut starting: Vec<Starting> = Vec::new();
        let mut last = None;
        for awaited in self.awaited.values() {
            match starting.last_mut() {
                Some(one) if last == Some(awaited.launch) => one.machines += 1,
                Some(_) | None => starting.push(Starting {
                    launch_config_id: self.config_ids[awaited.config].clone(),
                    provider_id: self.provider_id.clone(),
                    since: view.now().plus_millis(awaited.launched_ms - view.at_ms),
                    machines: 1,
                    capacity_each: self.configs[awaited.config].capacity,
                    offering: None,
                }),
            }
            last = Some(awaited.launch);
        }
        starting
    }

    /// Stops machines that have been starting for longer than machines of their offering do.
    pub(super) fn give_up(&self, view: &View<'_>, market: &Market, decision: &mut Decision) {
        if !self.learns() {
            return;
        }
        for (worker, awaited) in &self.awaited {
            let offering = self.configs[awaited.config].offering;
            let limit_ms = self.configs[awaited.config].registration_ms;
            let limit_ms = limit_ms.unwrap_or(self.registration_ms);
            let patience_ms = market.give_up_after_ms(offering, limit_ms);
            if (view.at_ms - awaited.launched_ms) as f64 > patience_ms {
                decision.advice.push(WorkerAdvice {
                    worker: *worker,
                    stop: true,
                });
            }
        }
    }

    /// The answers to the launches of one tick come one after another.
    fn answer_delay_ms(&mut self, at_ms: i64) -> i64 {
        let (last_ms, n_answers) = self.answers;
        let n_answers = if last_ms == at_ms { n_answers + 1 } else { 1 };
        self.answers = (at_ms, n_answers);
        n_answers
    }

    pub(super) fn plan(
        &mut self,
        view: &View<'_>,
        index: usize,
        seed: u64,
        decision: &mut Decision,
    ) {
        self.was_refused = false;
        self.read_facts(view, index);
        if self.facts.is_content() {
            return;
        }
        let Some(plan) = self.decide(view, index, seed) else {
            return;
        };
        self.log.begin_plan();
        for (key, advice) in plan.advice {
            let Ok(worker) = key.id.as_str().parse() else {
                continue;
            };
            let stop = advice.terminate;
            decision.advice.push(WorkerAdvice { worker, stop });
            if stop {
                self.asked.insert(worker, advice);
            } else {
                self.asked.remove(&worker);
            }
        }
        for award in plan.awards {
            let mut ids = self.config_ids.iter();
            let Some(config) = ids.position(|id| *id == award.launch_config_id) else {
                continue;
            };
            let parts = award.launches();
            decision.launches.extend(parts.map(|machines| LaunchOrder {
                pool: index,
                config,
                machines,
            }));
        }
    }

    /// The facts of this moment, except the launch records, which only few plans need.
    fn read_facts(&mut self, view: &View<'_>, index: usize) {
        let state = &view.fleet.pools[index];
        self.facts.horizon = horizon(view.now());
        self.facts.demand = Demand {
            pending: state.n_pending().min(self.most_pending),
            claimed: state.n_claimed(),
        };
        if self.n_changes != Some(state.n_changes) {
            self.n_changes = Some(state.n_changes);
            self.facts.inventory.workers = self.groups(view, index);
        }
        self.read_fresh(view);
        self.read_overdue(view);
    }

    /// The machines by launch config and state.
    fn groups(&self, view: &View<'_>, index: usize) -> Vec<Group> {
        let counts = view.fleet.pools[index].machines.iter().enumerate();
        let groups = counts.flat_map(|(config, machines)| {
            [
                (WorkerState::Requested, false, machines.requested),
                (WorkerState::Running, false, machines.running),
                (WorkerState::Running, true, machines.draining),
                (WorkerState::Stopping, false, machines.stopping),
            ]
            .map(|(state, draining, count)| self.group(config, state, draining, count))
        });
        groups.filter(|group| group.count > 0).collect()
    }

    fn group(&self, config: usize, state: WorkerState, draining: bool, count: u64) -> Group {
        Group {
            pool_id: self.facts.pool.id.clone(),
            launch_config_id: Some(self.config_ids[config].clone()),
            state,
            draining,
            count,
            capacity: count * u64::from(self.configs[config].capacity),
        }
    }

    /// Workers that registered recently and had no task yet.
    fn read_fresh(&mut self, view: &View<'_>) {
        let worker = |index: usize| &view.fleet.workers[index];
        let is_old = |worker: &SimulatedWorker| {
            let registered_ms = worker.registered_ms;
            registered_ms.is_none_or(|registered| view.at_ms - registered > FRESH_MS)
        };
        while self
            .fresh
            .front()
            .is_some_and(|index| is_old(worker(*index)))
        {
            self.fresh.pop_front();
        }
        let fresh = self.fresh.iter().map(|index| worker(*index));
        let fresh = fresh.filter(|worker| worker.is_idle() && worker.last_start_ms.is_none());
        let groups =
            fresh.map(|worker| self.group(worker.config, worker.state, worker.asked_to_stop, 1));
        self.facts.inventory.fresh = groups.collect();
    }

    /// Machines that should have registered by now.
    fn read_overdue(&mut self, view: &View<'_>) {
        let awaited = self.awaited.values();
        let overdue = awaited.take_while(|it| view.at_ms - it.launched_ms > START_UP_MS);
        let groups = overdue.map(|it| self.group(it.config, WorkerState::Requested, false, 1));
        self.facts.inventory.overdue = groups.collect();
        let oldest = self.awaited.values().next();
        self.facts.may_have_late =
            oldest.is_some_and(|oldest| view.at_ms - oldest.launched_ms > NEVER_LATE_MS);
    }

    /// The plan, unless it does nothing.
    fn decide(&mut self, view: &View<'_>, index: usize, seed: u64) -> Option<Plan> {
        let now = view.now();
        let snapshot = self.facts.snapshot(&[], &Rooms::new(), Vec::new()).ok()?;
        let mut candidates = Vec::new();
        if self.facts.needs_candidates(&snapshot) {
            let running = self.candidates(view, index);
            let providers = std::slice::from_ref(&self.provider_id);
            candidates = self
                .facts
                .candidates(running, &ClaimSource::Store, providers);
        }
        // A plan without missing capacity only gives advice to candidates.
        if candidates.is_empty() && snapshot.wants_nothing() {
            return None;
        }
        self.facts.records = self.log.records(now, &self.config_ids);
        let snapshot = self
            .facts
            .snapshot(&self.bids(view), &Rooms::new(), candidates)
            .ok()?;
        let plan = Input::plan(&snapshot, seed);
        (!plan.is_idle()).then_some(plan)
    }

    fn bids(&self, view: &View<'_>) -> Vec<Bids> {
        let places = self.configs.iter().zip(&self.places);
        let bids = places.map(|(config, place)| {
            Ok(vec![Bid {
                price: Some(view.price(config.offering)),
                reliability: view.promised_reliability(config.offering),
                ..Bid::plain(place.clone())
            }])
        });
        bids.collect()
    }
}

/// The name of an offering, or its number if the name cannot be that of a group.
fn groups(configs: &[OfferedConfig], places: &[String]) -> Result<Vec<WorkerGroup>, BadId> {
    let offerings = configs.iter().zip(places);
    let group = |(config, place): (&OfferedConfig, &String)| {
        let named = place.parse::<WorkerGroup>();
        named.or_else(|_| format!("offering-{}", config.offering).parse())
    };
    offerings.map(group).collect()
}

fn least_hold_ms(configs: &[OfferedConfig], usual_ms: i64) -> i64 {
    let holds = configs.iter();
    let holds = holds.map(|config| config.idle_hold_ms.unwrap_or(usual_ms));
    holds.min().unwrap_or(usual_ms)
}

/// Whether a sample is taken now.
fn is_due(at_ms: i64, last_ms: Option<i64>, interval_ms: Option<i64>) -> bool {
    match (last_ms, interval_ms) {
        (Some(last_ms), Some(interval_ms)) => at_ms - last_ms >= interval_ms,
        (None, _) | (_, None) => true,
    }
}

/// Workers have been heard for long.
fn horizon(now: domain::time::Timestamp) -> Horizon {
    Horizon::new(now, Some(now.plus_millis(-DAY_MS)))
}
