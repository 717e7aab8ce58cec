//! What there is: for a page of pools at a time, in a handful of grouped queries.

use std::collections::BTreeMap;

use domain::demand::Demand;
use domain::id::{LaunchConfigId, PoolId, ProviderId};
use domain::launch_config::LaunchConfig;
use domain::overrides::Override;
use domain::plan::{
    BadSettings, Bid, Candidate, Capacity, FIRST_CLAIM_MS, Offer, START_UP_MS, Settings, Snapshot,
    Source,
};
use domain::pool::Pool;
use domain::supply::{AHEAD_MS, Horizon, Inventory};
use domain::time::{HOUR_MS, Timestamp};
use store::launch_health::{HealthWindow, LaunchRecord};
use store::{StoreError, Tx};

/// Health looks back so far.
const HEALTH_WINDOW_MS: i64 = HOUR_MS;

/// What is true of one pool now.
#[derive(Clone, Debug)]
pub struct Facts {
    pub pool: Pool,
    /// The active ones, in their author's order.
    pub launch_configs: Vec<LaunchConfig>,
    pub demand: Demand,
    pub now: Timestamp,
    /// From which moments on signs of workers count.
    pub horizon: Horizon,
    /// Those in force that concern the pool.
    pub overrides: Vec<Override>,
    inventory: Inventory,
    /// Some running worker is of a launch config that is not active any more.
    has_archived: bool,
    records: Vec<(LaunchConfigId, LaunchRecord)>,
}

/// Facts about pools that follow each other in the order of their ids.
pub fn page_of_facts(
    tx: &mut Tx<'_>,
    pools: Vec<Pool>,
    demand: &BTreeMap<PoolId, Demand>,
    horizon: &Horizon,
) -> Result<Vec<Facts>, StoreError> {
    let mut facts = page_of_supply(tx, pools, demand, horizon)?;
    read_launch_configs(tx, &mut facts, horizon.now)?;
    Ok(facts)
}

/// The same without launch configs: enough to find out which pools are content.
pub fn page_of_supply(
    tx: &mut Tx<'_>,
    pools: Vec<Pool>,
    demand: &BTreeMap<PoolId, Demand>,
    horizon: &Horizon,
) -> Result<Vec<Facts>, StoreError> {
    let (Some(first), Some(last)) = (pools.first(), pools.last()) else {
        return Ok(Vec::new());
    };
    let (first, last) = (first.id.clone(), last.id.clone());
    let now = horizon.now;
    let mut inventories = inventories(tx, horizon, &first, &last)?;
    let archived = store::worker_supply::pools_with_archived_between(tx, &first, &last)?;
    let overrides = store::overrides::list_in_force(tx, now)?;
    let facts = pools.into_iter().map(|pool| {
        let id = &pool.id;
        let own = overrides.iter().filter(|given| given.concerns(&pool));
        Facts {
            overrides: own.cloned().collect(),
            launch_configs: Vec::new(),
            demand: what_matters(&pool, demand.get(id).copied().unwrap_or_default()),
            now,
            horizon: *horizon,
            inventory: inventories.remove(id).unwrap_or_default(),
            has_archived: archived.binary_search(id).is_ok(),
            records: Vec::new(),
            pool,
        }
    });
    Ok(facts.collect())
}

/// What each of the pools has; those that have nothing are absent.
fn inventories(
    tx: &mut Tx<'_>,
    horizon: &Horizon,
    first: &PoolId,
    last: &PoolId,
) -> Result<BTreeMap<PoolId, Inventory>, StoreError> {
    let mut all: BTreeMap<PoolId, Inventory> = BTreeMap::new();
    for group in store::worker_supply::between(tx, first, last)? {
        let own = all.entry(group.pool_id.clone()).or_default();
        own.workers.push(group);
    }
    for group in store::worker_supply::quarantined_between(tx, horizon.now, first, last)? {
        let own = all.entry(group.pool_id.clone()).or_default();
        own.quarantined.push(group);
    }
    for group in store::running_workers::silent_between(tx, horizon, first, last)? {
        let own = all.entry(group.pool_id.clone()).or_default();
        own.silent.push(group);
    }
    for group in store::running_workers::fresh_between(tx, horizon, first, last)? {
        let own = all.entry(group.pool_id.clone()).or_default();
        own.fresh.push(group);
    }
    let old = horizon.now.plus_millis(-START_UP_MS);
    for group in store::worker_supply::overdue_between(tx, old, first, last)? {
        let own = all.entry(group.pool_id.clone()).or_default();
        own.overdue.push(group);
    }
    for launches in store::launches::pending_between(tx, old, first, last)? {
        let own = all.entry(launches.pool_id.clone()).or_default();
        own.awaited.push(launches);
    }
    Ok(all)
}

/// Fills in the launch configs, and how they have been doing.
fn read_launch_configs(
    tx: &mut Tx<'_>,
    facts: &mut [Facts],
    now: Timestamp,
) -> Result<(), StoreError> {
    let (Some(first), Some(last)) = (facts.first(), facts.last()) else {
        return Ok(());
    };
    let (first, last) = (first.pool.id.clone(), last.pool.id.clone());
    let mut configs = grouped(
        store::launch_configs::active_between(tx, &first, &last)?,
        |config| config.pool_id.clone(),
    );
    let window = HealthWindow {
        since: now.plus_millis(-HEALTH_WINDOW_MS),
        until: now.plus_millis(AHEAD_MS),
        launched_before: now.plus_millis(-START_UP_MS),
        registered_before: now.plus_millis(-FIRST_CLAIM_MS),
    };
    let mut records = grouped(
        store::launch_health::between(tx, &window, &first, &last)?,
        |(pool, _, _)| pool.clone(),
    );
    for facts in facts {
        let id = &facts.pool.id;
        facts.launch_configs = configs.remove(id).unwrap_or_default();
        facts.records = of_pool(records.remove(id));
    }
    Ok(())
}

/// Tasks beyond what any plan of the pool could serve need not be counted, and do not count.
fn what_matters(pool: &Pool, demand: Demand) -> Demand {
    let pending = demand.pending.min(u64::from(most_pending(pool)));
    Demand { pending, ..demand }
}

/// How many waiting tasks of a pool are worth counting.
pub fn most_pending(pool: &Pool) -> u32 {
    let settings = Settings::parse(&pool.definition.config);
    let most = settings.map_or(u64::MAX, |settings| settings.most_pending());
    u32::try_from(most).unwrap_or(u32::MAX)
}

fn grouped<T>(rows: Vec<T>, pool: impl Fn(&T) -> PoolId) -> BTreeMap<PoolId, Vec<T>> {
    let mut groups: BTreeMap<PoolId, Vec<T>> = BTreeMap::new();
    for row in rows {
        groups.entry(pool(&row)).or_default().push(row);
    }
    groups
}

fn of_pool<T>(rows: Option<Vec<(PoolId, LaunchConfigId, T)>>) -> Vec<(LaunchConfigId, T)> {
    let rows = rows.unwrap_or_default().into_iter();
    rows.map(|(_, config, fact)| (config, fact)).collect()
}

impl Facts {
    /// With the launch configs, which a page of supply lacks.
    pub fn complete(mut self, tx: &mut Tx<'_>) -> Result<Self, StoreError> {
        let now = self.now;
        read_launch_configs(tx, std::slice::from_mut(&mut self), now)?;
        Ok(self)
    }

    /// Nothing is there, nothing is wanted, nothing waits: the usual pool at night.
    pub fn nothing_to_think_about(&self) -> bool {
        let min_capacity = self.pool.definition.config.get("minCapacity");
        let none_wanted = min_capacity
            .and_then(serde_json::Value::as_u64)
            .unwrap_or(0)
            == 0;
        none_wanted
            && !self.overrides.iter().any(Override::wants_capacity)
            && self.demand.pending == 0
            && self.inventory.is_empty()
    }

    /// Workers of archived launch configs, or of a provider that the pool has left, must be looked
    /// at one by one.
    pub fn has_strangers(&self) -> bool {
        !self.pool.previous_provider_ids.is_empty() || self.has_archived
    }

    pub fn capacity(&self) -> Capacity {
        self.inventory.capacity(|id| self.pool.has_provider(id))
    }

    /// How many workers run.
    pub fn n_running(&self) -> u64 {
        self.inventory.n_running()
    }

    /// What the planner sees.
    pub fn snapshot(
        &self,
        bids: &[Result<Bid, String>],
        rooms: &BTreeMap<ProviderId, u64>,
        workers: Vec<Candidate>,
    ) -> Result<Snapshot, BadSettings> {
        let offers = self.launch_configs.iter().zip(bids).map(|(config, bid)| {
            let live = self.inventory.live(&config.id);
            let provider_id = config.provider_id(&self.pool);
            let record = of_config(&self.records, &config.id);
            let health = record.map(|record| record.health).unwrap_or_default();
            let tries = record.map(|record| record.tries).unwrap_or_default();
            Offer::of(config, provider_id, live, health, bid.clone()).tried(tries)
        });
        let mut settings = Settings::parse(&self.pool.definition.config)?;
        let lines = self.overrides.iter().flat_map(|given| {
            let mut lines = given.limit(&mut settings);
            if given.pauses_any(bids.iter().filter_map(|bid| bid.as_ref().err())) {
                lines.push(given.headline());
            }
            lines
        });
        let overrides = lines.collect();
        let sources = self.pool.provider_ids().map(|id| Source {
            provider_id: id.clone(),
            room: rooms.get(id).copied(),
        });
        Ok(Snapshot {
            now: self.now,
            pool_id: self.pool.id.clone(),
            sources: sources.collect(),
            settings,
            demand: self.demand,
            capacity: self.capacity(),
            offers: offers.collect(),
            overrides,
            workers,
        })
    }
}

fn of_config<'a, T>(facts: &'a [(LaunchConfigId, T)], id: &LaunchConfigId) -> Option<&'a T> {
    let found = facts.iter().find(|(known, _)| known == id);
    found.map(|(_, fact)| fact)
}
