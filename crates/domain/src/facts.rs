//! The input of decisions about one pool, as plain values, and the snapshot made from it.
//!
//! The store fills them in, so the live loop, `explain`, simulations and tests plan from the same
//! snapshot.

mod bids;
mod candidates;
mod money;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

pub use candidates::{ClaimSource, MAX_CANDIDATES, RunningWorker, TURN_MS, first_candidate};

use crate::budgets::{BudgetRoom, MoneyBudget};
use crate::demand::Demand;
use crate::id::{ImageName, LaunchConfigId, PoolId, ProviderId, StrategyServiceId};
use crate::launch::LaunchState;
use crate::launch_config::LaunchConfig;
use crate::market::{Announced, OfferingId, OfferingMemory, PoolNews};
use crate::overrides::Override;
use crate::plan::{
    BadSettings, Bid, Bids, Candidate, Capacity, Health, Offer, OfferKnowledge, PoolWait, Rival,
    START_UP_MS, Settings, Shadow, Snapshot, Source, StrategyChoice, StrategyDefaults,
    StrategyName, Tries, separate_bids,
};
use crate::pool::Pool;
use crate::supply::{Horizon, Inventory};
use crate::time::Timestamp;
use crate::waits::WaitCause;

/// How long the workers of a large pool count after they were read.
const MOMENT_MS: i64 = 5_000;

/// The state of one pool at one moment.
#[derive(Clone, Debug)]
pub struct Facts {
    pub pool: Pool,
    /// The active launch configs, in their author's order.
    pub launch_configs: Vec<Arc<LaunchConfig>>,
    /// Waiting tasks count as far as a plan may depend on them.
    pub demand: Demand,
    /// All waiting tasks, or at least one more than may count for a plan.
    pub n_pending: u64,
    /// The strategies of pools whose config names none.
    pub defaults: StrategyDefaults,
    /// The current time, and since when signs of workers count.
    pub horizon: Horizon,
    /// The overrides that are in force and concern the pool.
    pub overrides: Vec<Override>,
    /// The budgets that limit the pool, or one of its providers.
    pub budgets: Vec<MoneyBudget>,
    pub inventory: Inventory,
    /// The number of the last turn of a pool with many workers. A plan with the next number knows
    /// all launches that others have decided.
    pub turn: Option<i64>,
    pub records: BTreeMap<LaunchConfigId, LaunchRecord>,
    /// The images with a canary of which no start is known to be good, each with the number of
    /// further machines that may start from it in all pools.
    pub canary_rooms: BTreeMap<ImageName, u64>,
    /// The memory of the strategy `balanced`; `None` if no strategy of the pool learns.
    pub memory: Option<MarketFacts>,
    /// Tasks that wait for tasks that run, if the pool looks ahead.
    pub announced: Vec<Announced>,
    /// A quota of the pool is used up, so it may have to give way to others.
    pub is_contending: bool,
    /// Whether machines of the pool may be late for their offering.
    pub may_have_late: bool,
    /// The cause in the timeline of the pool for which its tasks wait; `None`: it has none yet.
    pub wait: Option<WaitCause>,
}

/// The memory that concerns one pool.
#[derive(Clone, Debug, Default)]
pub struct MarketFacts {
    pub pool: PoolNews,
    /// The offerings of the pool's launch configs, as far as anything is known.
    pub offerings: BTreeMap<OfferingId, OfferingMemory>,
    /// Machines that have not registered.
    pub starting: Vec<Starting>,
    /// See [`Snapshot::ordinary_runs`].
    pub ordinary_runs: Option<u64>,
    /// Other pools with the same offerings, if a quota is used up.
    pub rivals: Vec<Rival>,
    /// The units that run or are to come by offering, of launch configs with several bids.
    pub held: BTreeMap<(LaunchConfigId, OfferingId), u64>,
}

/// Machines of one launch that have not registered, or are still to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct Starting {
    pub launch_config_id: LaunchConfigId,
    pub provider_id: ProviderId,
    pub since: Timestamp,
    pub machines: u32,
    /// Units of a machine.
    pub capacity_each: u32,
    /// `None`: no strategy of the pool learned when it was launched.
    pub offering: Option<OfferingId>,
}

/// The outcome of one launch, as far as it is known.
#[derive(Clone, Debug, PartialEq)]
pub struct RecentLaunch {
    pub launch_config_id: LaunchConfigId,
    pub since: Timestamp,
    pub state: LaunchState,
}

/// The recent launches of one launch config.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LaunchRecord {
    pub health: Health,
    pub tries: Tries,
    /// Machines that asked for work at least once, as far as it was heard.
    pub claimed: u64,
}

/// How many further machines each provider accepts; providers without a limit are absent.
pub type Rooms = BTreeMap<ProviderId, u64>;

impl Facts {
    /// The facts about a new pool.
    pub fn new(pool: Pool, demand: Demand, horizon: Horizon, defaults: StrategyDefaults) -> Self {
        let n_pending = demand.pending;
        // Waiting tasks beyond what any plan of the pool could serve do not count.
        let demand = up_to(demand, u64::from(most_pending(&pool, defaults)));
        Self {
            pool,
            launch_configs: Vec::new(),
            demand,
            n_pending,
            defaults,
            horizon,
            overrides: Vec::new(),
            budgets: Vec::new(),
            inventory: Inventory::default(),
            turn: None,
            records: BTreeMap::new(),
            canary_rooms: BTreeMap::new(),
            memory: None,
            announced: Vec::new(),
            is_contending: false,
            may_have_late: true,
            wait: None,
        }
    }

    /// Whether a plan of the pool reads only a part of its workers, and takes long to count them.
    pub fn is_large(&self) -> bool {
        self.inventory.n_running() > u64::from(MAX_CANDIDATES)
    }

    /// Whether the plan with this turn may use the workers of these facts: they were read a moment
    /// ago, and no other plan has launched since.
    pub fn has_workers_for(&self, turn: i64, now: Timestamp) -> bool {
        self.turn.is_some_and(|last| last + 1 == turn)
            // After the clock was set back, their age is not known.
            && (0..=MOMENT_MS).contains(&now.millis_since(self.horizon.now))
    }

    /// Whether the pool has no worker, wants none, and no task waits. Most pools are like this.
    pub fn is_asleep(&self) -> bool {
        if foresees(&self.pool, self.defaults) {
            return false;
        }
        let min_capacity = self.pool.definition.config.get("minCapacity");
        let min_capacity = min_capacity.and_then(serde_json::Value::as_u64);
        min_capacity.unwrap_or(0) == 0
            && !self.overrides.iter().any(Override::wants_capacity)
            && self.demand.pending == 0
            && self.inventory.is_empty()
    }

    /// Whether the pool needs no decision, whatever its launch configs are. Does not read the
    /// launch configs, so they may be missing.
    pub fn is_content(&self) -> bool {
        if self.is_asleep() {
            return true;
        }
        if self.is_contending
            || strategy_service(&self.pool).is_some()
            || foresees(&self.pool, self.defaults)
        {
            return false;
        }
        let Ok(snapshot) = self.snapshot(&[], &Rooms::new(), Vec::new()) else {
            return true;
        };
        // Whether machines are late is only known with the memory, which is not read for this.
        let all_come = !self.may_have_late && snapshot.capacity.intended == 0;
        let wants_nothing = |snapshot: &Snapshot| match all_come {
            true => snapshot.wants_nothing_if_all_come(),
            false => snapshot.wants_nothing(),
        };
        let is_content =
            |snapshot: &Snapshot| wants_nothing(snapshot) && !self.needs_candidates(snapshot);
        is_content(&snapshot)
            && snapshot
                .for_shadow()
                .is_none_or(|shadow| is_content(&shadow))
    }

    /// Whether the advice to some worker may change, so that workers must be read individually.
    pub fn needs_candidates(&self, snapshot: &Snapshot) -> bool {
        snapshot.may_change_advice()
            || (snapshot.settings.external.is_some() && snapshot.capacity.running > 0)
            || !snapshot.rivals.is_empty()
            || !self.pool.previous_provider_ids.is_empty()
            || self.inventory.has_archived
    }

    /// The cause for which tasks of the pool wait while it needs no decision.
    pub fn quiet_wait(&self) -> WaitCause {
        let (max, lowered_from) = match self.n_pending {
            0 => (u64::MAX, None),
            _ => self.max_capacity(),
        };
        let demand = Demand {
            pending: self.n_pending,
            ..self.demand
        };
        let capacity = self.capacity();
        let cause = PoolWait::of_supply(demand, &capacity, max).of_pool();
        cause.of_budgets(lowered_from, capacity.all())
    }

    /// The maximum of the pool with overrides and budgets; `None` if its config is invalid.
    pub fn maximum(&self) -> Option<u64> {
        let (maximum, _) = self.max_capacity();
        (maximum != u64::MAX).then_some(maximum)
    }

    /// The maximum of the pool with overrides and budgets, and the one that budgets lowered; there
    /// is none if its config is invalid.
    fn max_capacity(&self) -> (u64, Option<u64>) {
        let config = &self.pool.definition.config;
        let Ok(mut settings) = Settings::parse_with(config, self.defaults) else {
            return (u64::MAX, None);
        };
        for given in &self.overrides {
            given.limit(&mut settings);
        }
        let limited = money::limit(&self.budgets, &mut settings, self.horizon.now);
        (settings.max_capacity, limited.lowered_from)
    }

    pub fn capacity(&self) -> Capacity {
        self.inventory.capacity(|id| self.pool.has_provider(id))
    }

    /// The units of each launch config that run or are to come.
    pub fn held(&self) -> HashMap<&LaunchConfigId, u64> {
        self.inventory.held(|id| self.pool.has_provider(id))
    }

    /// The planner's input. The bids are in the order of the launch configs.
    pub fn snapshot(
        &self,
        bids: &[Bids],
        rooms: &Rooms,
        workers: Vec<Candidate>,
    ) -> Result<Snapshot, BadSettings> {
        let config = &self.pool.definition.config;
        let mut settings = Settings::parse_with(config, self.defaults)?;
        let demand = up_to(self.demand, settings.most_pending());
        let mut offers = self.offers(bids);
        let now = self.horizon.now;
        let budgets: Vec<BudgetRoom> = self.budgets.iter().map(|it| it.room(now)).collect();
        money::refuse_bids(&mut offers, &budgets);
        let shadow = self.shadow(&offers);
        // Only a strategy that learns sees the memory.
        let memory = self.memory.as_ref();
        let memory = memory.filter(|_| settings.own_strategy_name().learns());
        if let Some(memory) = memory {
            // A bad image must not give its kind of machine a bad name.
            let known = memory.all_knowledge(&offers, self.horizon.now);
            for (offer, knowledge) in offers.iter_mut().zip(known) {
                if offer.canary.is_none() {
                    knowledge.add_to(offer);
                }
            }
            memory.split_held(&mut offers);
        }
        let lines = self.overrides.iter().flat_map(|given| {
            let mut lines = given.limit(&mut settings);
            if given.pauses_any(bids.iter().filter_map(|bids| bids.as_ref().err())) {
                lines.push(given.pause_text());
            }
            lines
        });
        let mut overrides: Vec<String> = lines.collect();
        let limited = money::limit(&self.budgets, &mut settings, now);
        overrides.extend(limited.lines);
        let sources = self.pool.provider_ids().map(|id| Source {
            provider_id: id.clone(),
            room: rooms.get(id).copied(),
        });
        Ok(Snapshot {
            now: self.horizon.now,
            pool_id: self.pool.id.clone(),
            sources: sources.collect(),
            settings,
            demand,
            capacity: self.capacity(),
            offers,
            overrides,
            budgets,
            lowered_from: limited.lowered_from,
            learned: memory.map(|memory| memory.pool.clone()),
            announced: self.announced.clone(),
            ordinary_runs: self.memory.as_ref().and_then(|memory| memory.ordinary_runs),
            rivals: memory.map_or_else(Vec::new, |memory| memory.rivals.clone()),
            answer: None,
            workers,
            shadow,
        })
    }

    /// The input of the shadow, without workers. `None`: the pool has no shadow, or the settings of
    /// the pool are not valid for it.
    fn shadow(&self, offers: &[Offer]) -> Option<Box<Shadow>> {
        let config = &self.pool.definition.config;
        let parsed = Settings::parse_shadow(config, self.defaults);
        let mut settings = parsed.ok().flatten()?;
        let demand = up_to(self.demand, settings.most_pending());
        for given in &self.overrides {
            given.limit(&mut settings);
        }
        money::limit(&self.budgets, &mut settings, self.horizon.now);
        let memory = self.memory.as_ref();
        let memory = memory.filter(|_| settings.own_strategy_name().learns());
        let now = self.horizon.now;
        let knowledge = memory.map_or_else(Vec::new, |memory| memory.all_knowledge(offers, now));
        Some(Box::new(Shadow {
            settings,
            demand,
            learned: memory.map(|memory| memory.pool.clone()),
            rivals: memory.map_or_else(Vec::new, |memory| memory.rivals.clone()),
            offers: knowledge,
            workers: Vec::new(),
        }))
    }

    /// The strategies of the pool. `None`: its config is invalid for planning.
    pub fn strategies(&self) -> Option<StrategyChoice> {
        self.defaults.choose(&self.pool.definition.config).ok()
    }

    /// Leaves out silent workers where nothing is heard of claims. An outside queue may have no
    /// tasks for some workers, or its messages may be late: its silence closes no launch config.
    fn bound_silence(&self, health: &mut Health) {
        if self.horizon.hears_workers {
            return;
        }
        let hears_claims =
            self.horizon.hears_claims && self.records.values().any(|record| record.claimed > 0);
        let most = if hears_claims {
            health.registered.saturating_sub(1)
        } else {
            0
        };
        health.silent = health.silent.min(most);
    }

    /// An offer for each bid of each launch config, or one with the reason why there is no bid.
    fn offers(&self, bids: &[Bids]) -> Vec<Offer> {
        let live = self.inventory.live();
        let held = self.held();
        let of_config = |(config, bids): (&Arc<LaunchConfig>, &Bids)| {
            let provider_id = config.provider_id(&self.pool);
            let record = self.records.get(&config.id);
            let (mut health, tries) = record
                .map(|record| (record.health, record.tries))
                .unwrap_or_default();
            self.bound_silence(&mut health);
            let live = live.get(&config.id).copied().unwrap_or(0);
            let offer = |(bid_number, bid): (u32, Result<Bid, String>)| {
                let mut offer = Offer {
                    bid_number,
                    held: held.get(&config.id).copied().unwrap_or(0),
                    ..Offer::of(config, provider_id, live, health, bid).tried(tries)
                };
                if health.reporters > 0 {
                    offer.health.machines = live / u64::from(offer.capacity_each.max(1));
                }
                if let Some(canary) = &mut offer.canary {
                    canary.limit(config, &self.canary_rooms);
                }
                offer
            };
            let bids = separate_bids(bids, self.horizon.now);
            (0..).zip(bids).map(offer).collect::<Vec<Offer>>()
        };
        // Nothing is launched from the others.
        let launching = self.launch_configs.iter().zip(bids);
        let launching = launching.filter(|(config, _)| !config.is_for_hosts());
        let mut offers: Vec<Offer> = launching.flat_map(of_config).collect();
        add_canaries(&mut offers);
        offers
    }

    /// The launch configs with their providers. Bids remain valid while these are equal.
    pub fn places(&self) -> Vec<(LaunchConfigId, ProviderId)> {
        let configs = self.launch_configs.iter();
        let place = |config: &Arc<LaunchConfig>| {
            (config.id.clone(), config.provider_id(&self.pool).clone())
        };
        configs.map(place).collect()
    }

    pub fn id(&self) -> &PoolId {
        &self.pool.id
    }
}

impl MarketFacts {
    /// The knowledge about each of these offers, in their order.
    fn all_knowledge(&self, offers: &[Offer], now: Timestamp) -> Vec<OfferKnowledge> {
        let knowledge = |(index, offer)| self.knowledge(offers, index, offer, now);
        offers.iter().enumerate().map(knowledge).collect()
    }

    /// The memory of an offer's offering, and its machines that are starting.
    fn knowledge(
        &self,
        offers: &[Offer],
        index: usize,
        offer: &Offer,
        now: Timestamp,
    ) -> OfferKnowledge {
        let mut knowledge = OfferKnowledge::default();
        let (Some(id), Ok(bid)) = (offer.offering(), &offer.bid) else {
            return knowledge;
        };
        let known = self.offerings.get(&id);
        let memory = known.copied().unwrap_or_else(|| OfferingMemory::new(&id));
        let late_after = memory.late_after_ms(bid.ready_ms);
        // Launches at a provider that the pool has left are no machines of this offering.
        let own = self.starting.iter().filter(|one| {
            one.launch_config_id == offer.launch_config_id
                && one.provider_id == offer.provider_id
                && one.is_of(offers, index)
        });
        for starting in own {
            knowledge.starting += u64::from(starting.machines);
            // Overdue machines no longer count as coming anyway.
            let age_ms = now.millis_since(starting.since);
            if age_ms as f64 > late_after && age_ms <= START_UP_MS {
                knowledge.late += u64::from(starting.machines) * u64::from(starting.capacity_each);
            }
        }
        knowledge.memory = Some(memory);
        knowledge
    }
}

/// Machines of a canary count against the maximum of the launch config beside it.
fn add_canaries(offers: &mut [Offer]) {
    let canaries = offers.iter().filter(|offer| offer.bid_number == 0);
    let canaries =
        canaries.filter_map(|offer| Some((offer.canary.as_ref()?.of.clone(), offer.live)));
    for (of, live) in canaries.collect::<Vec<_>>() {
        for offer in offers
            .iter_mut()
            .filter(|offer| offer.launch_config_id == of)
        {
            offer.live = offer.live.saturating_add(live);
        }
    }
}

fn up_to(demand: Demand, most_pending: u64) -> Demand {
    Demand {
        pending: demand.pending.min(most_pending),
        ..demand
    }
}

/// The strategy service that plans the pool, if one does.
pub fn strategy_service(pool: &Pool) -> Option<StrategyServiceId> {
    let text = |key| pool.definition.config.get(key)?.as_str();
    text("strategy").filter(|name| *name == StrategyName::External.as_str())?;
    text("externalStrategy")?.parse().ok()
}

/// Whether a strategy of the pool learns from launches, workers and tasks: the one that decides, or
/// its shadow.
pub fn learns(pool: &Pool, defaults: StrategyDefaults) -> bool {
    let choice = defaults.choose(&pool.definition.config);
    choice.is_ok_and(StrategyChoice::learns)
}

/// Whether the strategy that decides about the pool learns.
pub fn decides_by_memory(pool: &Pool, defaults: StrategyDefaults) -> bool {
    let choice = defaults.choose(&pool.definition.config);
    choice.is_ok_and(|choice| choice.own.learns())
}

/// How many waiting tasks of a pool are worth counting, for its strategy and its shadow.
pub fn most_pending(pool: &Pool, defaults: StrategyDefaults) -> u32 {
    let config = &pool.definition.config;
    let settings = Settings::parse_with(config, defaults);
    let most = settings.map_or(u64::MAX, |settings| settings.most_pending());
    let shadow = Settings::parse_shadow(config, defaults).ok().flatten();
    let most_of_shadow = shadow.map_or(0, |settings| settings.most_pending());
    u32::try_from(most.max(most_of_shadow)).unwrap_or(u32::MAX)
}

/// Whether plans of the pool count on tasks to come, so that it is never at rest.
pub fn foresees(pool: &Pool, defaults: StrategyDefaults) -> bool {
    let foresight = pool.definition.config.get("foresight");
    foresight.and_then(serde_json::Value::as_bool) == Some(true) && learns(pool, defaults)
}
