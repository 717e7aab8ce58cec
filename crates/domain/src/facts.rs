//! The input of decisions about one pool, as plain values, and the snapshot made from it.
//!
//! The store fills them in, so the live loop, `explain`, simulations and tests plan from the same
//! snapshot.

mod candidates;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use candidates::{ClaimSource, MAX_CANDIDATES, RunningWorker, first_candidate};

use crate::demand::Demand;
use crate::id::{LaunchConfigId, PoolId, ProviderId};
use crate::launch_config::LaunchConfig;
use crate::market::{OfferingId, OfferingMemory, PoolNews};
use crate::overrides::Override;
use crate::plan::{
    BadSettings, Bid, Candidate, Capacity, Health, Offer, Rival, START_UP_MS, Settings, Snapshot,
    Source, StrategyName, Tries,
};
use crate::pool::Pool;
use crate::supply::{Horizon, Inventory};
use crate::time::Timestamp;

/// The state of one pool at one moment.
#[derive(Clone, Debug)]
pub struct Facts {
    pub pool: Pool,
    /// The active launch configs, in their author's order.
    pub launch_configs: Vec<Arc<LaunchConfig>>,
    pub demand: Demand,
    /// The current time, and since when signs of workers count.
    pub horizon: Horizon,
    /// The overrides that are in force and concern the pool.
    pub overrides: Vec<Override>,
    pub inventory: Inventory,
    /// Whether a running worker belongs to an archived launch config.
    pub has_archived: bool,
    pub records: BTreeMap<LaunchConfigId, LaunchRecord>,
    /// The memory of the strategy `balanced`; `None` for other strategies.
    pub memory: Option<MarketFacts>,
    /// A quota of the pool is used up, so it may have to give way to others.
    pub is_contending: bool,
}

/// The memory that concerns one pool.
#[derive(Clone, Debug, Default)]
pub struct MarketFacts {
    pub pool: PoolNews,
    /// The offerings of the pool's launch configs, as far as anything is known.
    pub offerings: BTreeMap<OfferingId, OfferingMemory>,
    /// Machines that have not registered.
    pub starting: Vec<Starting>,
    /// Other pools with the same offerings, if a quota is used up.
    pub rivals: Vec<Rival>,
}

/// Machines of one launch that have not registered, or are still to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct Starting {
    pub launch_config_id: LaunchConfigId,
    pub since: Timestamp,
    pub machines: u32,
}

/// The recent launches of one launch config.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LaunchRecord {
    pub health: Health,
    pub tries: Tries,
    /// Machines that asked for work at least once. Always 0 with the queue of another deployment.
    pub claimed: u64,
}

/// How many further machines each provider accepts; providers without a limit are absent.
pub type Rooms = BTreeMap<ProviderId, u64>;

impl Facts {
    /// The facts about a new pool.
    pub fn new(pool: Pool, demand: Demand, horizon: Horizon) -> Self {
        // Waiting tasks beyond what any plan of the pool could serve do not count.
        let pending = demand.pending.min(u64::from(most_pending(&pool)));
        Self {
            pool,
            launch_configs: Vec::new(),
            demand: Demand { pending, ..demand },
            horizon,
            overrides: Vec::new(),
            inventory: Inventory::default(),
            has_archived: false,
            records: BTreeMap::new(),
            memory: None,
            is_contending: false,
        }
    }

    /// Whether the pool has no worker, wants none, and no task waits. Most pools are like this.
    pub fn is_asleep(&self) -> bool {
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
        if self.is_contending {
            return false;
        }
        let Ok(snapshot) = self.snapshot(&[], &Rooms::new(), Vec::new()) else {
            return true;
        };
        snapshot.wants_nothing() && !self.needs_candidates(&snapshot)
    }

    /// Whether the advice to some worker may change, so that workers must be read individually.
    pub fn needs_candidates(&self, snapshot: &Snapshot) -> bool {
        snapshot.may_change_advice()
            || !snapshot.rivals.is_empty()
            || !self.pool.previous_provider_ids.is_empty()
            || self.has_archived
    }

    pub fn capacity(&self) -> Capacity {
        self.inventory.capacity(|id| self.pool.has_provider(id))
    }

    /// The planner's input. The bids are in the order of the launch configs.
    pub fn snapshot(
        &self,
        bids: &[Result<Bid, String>],
        rooms: &Rooms,
        workers: Vec<Candidate>,
    ) -> Result<Snapshot, BadSettings> {
        let mut settings = Settings::parse(&self.pool.definition.config)?;
        let lines = self.overrides.iter().flat_map(|given| {
            let mut lines = given.limit(&mut settings);
            if given.pauses_any(bids.iter().filter_map(|bid| bid.as_ref().err())) {
                lines.push(given.pause_text());
            }
            lines
        });
        let overrides = lines.collect();
        let sources = self.pool.provider_ids().map(|id| Source {
            provider_id: id.clone(),
            room: rooms.get(id).copied(),
        });
        Ok(Snapshot {
            now: self.horizon.now,
            pool_id: self.pool.id.clone(),
            sources: sources.collect(),
            settings,
            demand: self.demand,
            capacity: self.capacity(),
            offers: self.offers(bids),
            overrides,
            learned: self.memory.as_ref().map(|memory| memory.pool.clone()),
            rivals: self
                .memory
                .as_ref()
                .map_or_else(Vec::new, |memory| memory.rivals.clone()),
            workers,
        })
    }

    fn offers(&self, bids: &[Result<Bid, String>]) -> Vec<Offer> {
        let live = self.inventory.live();
        let offer = |(config, bid): (&Arc<LaunchConfig>, &Result<Bid, String>)| {
            let provider_id = config.provider_id(&self.pool);
            let record = self.records.get(&config.id);
            let (mut health, tries) = record
                .map(|record| (record.health, record.tries))
                .unwrap_or_default();
            if !self.horizon.hears_workers {
                health.silent = 0;
            }
            let live = live.get(&config.id).copied().unwrap_or(0);
            let bid = bid.clone().and_then(|bid| bid.checked(self.horizon.now));
            let mut offer = Offer::of(config, provider_id, live, health, bid).tried(tries);
            if let Some(memory) = &self.memory {
                memory.add_to(&mut offer, self.horizon.now);
            }
            offer
        };
        self.launch_configs.iter().zip(bids).map(offer).collect()
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
    /// Adds what is known about the offering, and about machines that are starting.
    fn add_to(&self, offer: &mut Offer, now: Timestamp) {
        let (Some(id), Ok(bid)) = (offer.offering(), &offer.bid) else {
            return;
        };
        let known = self.offerings.get(&id);
        let memory = known.copied().unwrap_or_else(|| OfferingMemory::new(&id));
        let late_after = memory.late_after_ms(bid.ready_ms);
        let own = self.starting.iter();
        for starting in own.filter(|one| one.launch_config_id == offer.launch_config_id) {
            offer.starting += u64::from(starting.machines);
            // Overdue machines no longer count as coming anyway.
            let age_ms = now.millis_since(starting.since);
            if age_ms as f64 > late_after && age_ms <= START_UP_MS {
                offer.late += u64::from(starting.machines) * u64::from(offer.capacity_each);
            }
        }
        offer.memory = Some(memory);
    }
}

/// Whether the strategy of the pool learns from launches, workers and tasks.
pub fn learns(pool: &Pool) -> bool {
    let name = pool.definition.config.get("strategy");
    let name = name.and_then(serde_json::Value::as_str);
    name.and_then(|name| name.parse().ok()) == Some(StrategyName::Balanced)
}

/// How many waiting tasks of a pool are worth counting.
pub fn most_pending(pool: &Pool) -> u32 {
    let settings = Settings::parse(&pool.definition.config);
    let most = settings.map_or(u64::MAX, |settings| settings.most_pending());
    u32::try_from(most).unwrap_or(u32::MAX)
}
