//! Samples the pools whose strategy learns: their tasks, their workers, and the hours of these.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use domain::facts::{Facts, MarketFacts, Rooms, decides_by_memory, foresees, learns};
use domain::id::{LaunchConfigId, PoolId, ProviderId};
use domain::market::{ObservedTime, OfferingId, OfferingMemory, PoolRecord, PoolSample};
use domain::plan::{Settings, Snapshot};
use domain::pool::Pool;
use domain::time::HOUR_MS;
use domain::worker::WorkerState;
use store::pool_news::EndedRuns;
use store::{StoreError, Tx};

use super::give_up::{give_up, late_machines};
use super::news::WorkerHours;
use super::{LearnLimits, LearnResult, SampledPool};
use crate::Engine;
use crate::demand::{DemandSource, Demands};
use crate::fleet::market_facts::OfferingsByConfig;
use crate::fleet::{bids, decide, facts, market_facts};

/// The rows that a sample writes.
#[derive(Clone)]
struct Observation {
    pool_id: PoolId,
    sample: PoolSample,
    /// The state from which the cost of a missing worker follows.
    snapshot: Snapshot,
    /// The running workers of each offering.
    running: Vec<(OfferingId, ProviderId, u64)>,
}

/// The pools with a memory, and whether each was at rest when it was last sampled.
type States = BTreeMap<PoolId, bool>;

/// A round of samples.
struct Round<'a> {
    engine: &'a Arc<Engine>,
    limits: &'a LearnLimits,
    time: ObservedTime,
    states: Arc<States>,
    /// The demand of all our queues; `None` for an outside queue, which is asked for each page.
    demand: Option<Arc<Demands>>,
}

/// Samples all pools. The memory of pools that no longer learn or no longer exist is deleted, and
/// so is the memory of pools that are not planned: the news of their runs would only pile up.
pub(super) async fn take(
    engine: &Arc<Engine>,
    limits: &LearnLimits,
    time: ObservedTime,
    done: &mut LearnResult,
) -> store::Result<()> {
    let own_demand = DemandSource::read_own(engine, "learn_demand", limits.queues).await?;
    let round = Round {
        engine,
        limits,
        time,
        states: Arc::new(read_states(engine, limits.pools).await?),
        demand: own_demand.map(Arc::new),
    };
    let mut learning = BTreeSet::new();
    let mut after: Option<PoolId> = None;
    loop {
        let (start, size) = (after.take(), limits.pools);
        let list = engine.store.survey("learn_pools", move |tx| {
            store::pools::list(tx, start.as_ref(), size)
        });
        let mut page = list.await?;
        let is_full = page.len() == size as usize;
        let last = page.last().map(|pool| pool.id.clone());
        page.retain(|pool| learns(pool, engine.strategies) && is_planned(engine, pool));
        learning.extend(page.iter().map(|pool| pool.id.clone()));
        if !page.is_empty() {
            round.take_page(page, done).await?;
        }
        if !is_full {
            break;
        }
        after = last;
    }
    let ended = round.states.keys().filter(|id| !learning.contains(*id));
    let ended: Vec<PoolId> = ended.cloned().collect();
    for some in ended.chunks(limits.pools as usize) {
        let some = some.to_vec();
        let deleted = engine.store.write("learn_delete", move |tx| {
            store::pool_memories::delete(tx, &some)
        });
        deleted.await?;
    }
    Ok(())
}

/// Whether plans are made of the pool.
fn is_planned(engine: &Engine, pool: &Pool) -> bool {
    let settings = Settings::parse_with(&pool.definition.config, engine.strategies);
    decide::is_planned(engine, pool) && settings.is_ok()
}

async fn read_states(engine: &Engine, limit: u32) -> store::Result<States> {
    let mut states = States::new();
    loop {
        let after = states.last_key_value().map(|(id, _)| PoolId::clone(id));
        let read = engine.store.survey("learn_states", move |tx| {
            store::pool_memories::list_states(tx, after.as_ref(), limit)
        });
        let some = read.await?;
        let is_full = some.len() == limit as usize;
        states.extend(some);
        if !is_full {
            return Ok(states);
        }
    }
}

impl Round<'_> {
    async fn take_page(&self, mut page: Vec<Pool>, done: &mut LearnResult) -> store::Result<()> {
        let demand = match &self.demand {
            Some(known) => Arc::clone(known),
            None => {
                let ids: Vec<PoolId> = page.iter().map(|pool| pool.id.clone()).collect();
                let Ok(known) = self.engine.demand_source.read(&ids).await else {
                    // Unknown demand is not zero: the next round samples these pools.
                    return Ok(());
                };
                page.retain(|pool| known.contains_key(&pool.id));
                Arc::new(known)
            }
        };
        let horizon = self.engine.horizon(self.time.clock);
        let defaults = self.engine.strategies;
        let (of_page, states) = (Arc::clone(&demand), Arc::clone(&self.states));
        let read = self.engine.store.survey("learn_supply", move |tx| {
            let mut awake = facts::read_supply(tx, page, &of_page, &horizon, defaults)?;
            let is_at_rest = |facts: &Facts| states.get(facts.id()).copied().unwrap_or(true);
            awake.retain(|facts| !facts.is_asleep() || !is_at_rest(facts));
            Ok::<_, StoreError>(awake)
        });
        for some in read.await?.chunks(self.limits.samples.max(1)) {
            let some = self.add_bids(some.to_vec(), &demand).await?;
            self.take_samples(some, done).await?;
        }
        Ok(())
    }

    /// Adds the launch configs and the bids for them.
    async fn add_bids(
        &self,
        pools: Vec<Facts>,
        demand: &Demands,
    ) -> store::Result<Vec<SampledPool>> {
        let read = self.engine.store.survey("learn_launch_configs", move |tx| {
            let ids: Vec<PoolId> = pools.iter().map(|facts| facts.id().clone()).collect();
            let configs = store::launch_configs::active_of(tx, &ids)?;
            Ok::<_, StoreError>((pools, configs))
        });
        let (mut pools, configs) = read.await?;
        let mut configs = facts::group_by_pool(configs, |config| config.pool_id.clone());
        for facts in &mut pools {
            let own = configs.remove(facts.id()).unwrap_or_default();
            facts.launch_configs = own.into_iter().map(Arc::new).collect();
        }
        let pools = pools.into_iter().map(|facts| SampledPool {
            bids: bids::collect_bids(self.engine, &facts),
            demand: demand.get(facts.id()).copied().unwrap_or_default(),
            decides_by_memory: decides_by_memory(&facts.pool, self.engine.strategies),
            facts,
        });
        Ok(pools.collect())
    }

    async fn take_samples(
        &self,
        pools: Vec<SampledPool>,
        done: &mut LearnResult,
    ) -> store::Result<()> {
        let (engine, limits, time) = (self.engine, self.limits, self.time);
        let gap = engine.availability.gap(time.clock);
        let n_given_up = usize::try_from(done.given_up).unwrap_or(usize::MAX);
        let limit = limits.give_ups.saturating_sub(n_given_up);
        let read = engine.store.survey("learn_memories", move |tx| {
            let (pools, shadows): (Vec<SampledPool>, Vec<SampledPool>) =
                pools.into_iter().partition(|pool| pool.decides_by_memory);
            let memories = market_facts::read_memories(tx, &named(&pools))?;
            // A shadow gives no machine up.
            let late = late_machines(tx, &pools, &memories, (time.clock, gap), limit)?;
            let of_shadows = market_facts::read_memories_for_shadow(tx, &named(&shadows))?;
            let mut observed = Vec::new();
            for (pools, memories) in [(pools, &memories), (shadows, &of_shadows)] {
                for pool in pools {
                    observed.extend(pool.observe(tx, memories)?);
                }
            }
            Ok::<_, StoreError>((observed, late))
        });
        let (observations, late) = read.await?;
        done.pools += observations.len() as u64;
        let max_ended = limits.news;
        let written = engine.store.write("learn_samples", move |tx| {
            write(tx, &observations, &time, max_ended)
        });
        written.await?;
        done.given_up += give_up(engine, late, limits.stops, time.clock).await?;
        Ok(())
    }
}

/// The offerings of these pools.
fn named(pools: &[SampledPool]) -> BTreeSet<OfferingId> {
    let offerings = pools.iter().flat_map(|pool| pool.offerings().into_values());
    offerings.flatten().collect()
}

impl SampledPool {
    pub(super) fn offerings(&self) -> OfferingsByConfig {
        market_facts::offerings(&self.facts, &self.bids.all)
    }

    /// `None`: the config of the pool is invalid for planning.
    fn observe(
        self,
        tx: &mut Tx<'_>,
        memories: &BTreeMap<OfferingId, OfferingMemory>,
    ) -> store::Result<Option<Observation>> {
        let offerings = self.offerings();
        let Self {
            mut facts,
            bids,
            demand,
            decides_by_memory,
        } = self;
        let own: BTreeMap<OfferingId, OfferingMemory> = offerings
            .values()
            .flatten()
            .filter_map(|id| Some((id.clone(), *memories.get(id)?)))
            .collect();
        let capacity = facts.capacity();
        let mut sample = PoolSample {
            level: demand.pending.saturating_add(demand.claimed),
            held: capacity.running.saturating_add(capacity.coming()),
            // Other pools make no room for a shadow.
            quotas: match decides_by_memory {
                true => used_up_quotas(tx, &facts, &offerings, &own)?,
                false => BTreeMap::new(),
            },
            foresight: foresees(&facts.pool, facts.defaults),
            ..PoolSample::default()
        };
        facts.memory = Some(MarketFacts {
            offerings: own,
            ..MarketFacts::default()
        });
        let Ok(snapshot) = facts.snapshot(&bids.usable, &Rooms::new(), Vec::new()) else {
            return Ok(None);
        };
        sample.wanted = sample.level.min(snapshot.settings.max_capacity);
        let mut offerings = offerings;
        if !decides_by_memory {
            for offerings in offerings.values_mut() {
                *offerings = offerings.iter().map(OfferingId::for_shadows).collect();
            }
        }
        Ok(Some(Observation {
            pool_id: facts.id().clone(),
            running: running(tx, &facts, &offerings)?,
            sample,
            snapshot: snapshot.for_learning(),
        }))
    }
}

/// The units that the pool has of each quota that is used up.
fn used_up_quotas(
    tx: &mut Tx<'_>,
    facts: &Facts,
    offerings: &OfferingsByConfig,
    memories: &BTreeMap<OfferingId, OfferingMemory>,
) -> store::Result<BTreeMap<OfferingId, u64>> {
    let full = market_facts::used_up_quotas(memories);
    if full.is_empty() {
        return Ok(BTreeMap::new());
    }
    let held = market_facts::held_units(tx, facts, offerings)?;
    let used = full.into_iter().map(|id| {
        let units = held.get(&id).copied().unwrap_or(0);
        (id, units)
    });
    Ok(used.collect())
}

/// The running workers by offering. Nothing is bid for archived launch configs: their offering is
/// that of their last launch.
fn running(
    tx: &mut Tx<'_>,
    facts: &Facts,
    offerings: &OfferingsByConfig,
) -> store::Result<Vec<(OfferingId, ProviderId, u64)>> {
    let mut counts: BTreeMap<&LaunchConfigId, u64> = BTreeMap::new();
    for group in &facts.inventory.workers {
        if let (WorkerState::Running, Some(id)) = (group.state, &group.launch_config_id) {
            *counts.entry(id).or_default() += group.count;
        }
    }
    let (mut running, mut several) = (Vec::new(), Vec::new());
    for (id, count) in counts {
        let mut configs = facts.launch_configs.iter();
        if let Some(config) = configs.find(|config| config.id == *id) {
            let provider_id = config.provider_id(&facts.pool);
            match offerings
                .get(id)
                .map(|offerings| (offerings.first(), offerings.len()))
            {
                Some((Some(only), 1)) => running.push((only.clone(), provider_id.clone(), count)),
                Some((Some(_), _)) => several.push((id, provider_id)),
                Some((None, _)) | None => {}
            }
        } else if let Some(last) = store::launches::last_with_offering(tx, facts.id(), id)? {
            let offering = last.offering;
            running.extend(offering.map(|offering| (offering, last.provider_id, count)));
        }
    }
    if several.is_empty() {
        return Ok(running);
    }
    // Of a launch config with several bids, each worker knows its offering.
    for group in store::worker_supply::by_offering(tx, facts.id())? {
        let own = several
            .iter()
            .find(|(id, _)| **id == group.launch_config_id);
        if let Some((_, provider_id)) = own.filter(|_| group.state == WorkerState::Running) {
            running.push((group.offering, ProviderId::clone(provider_id), group.count));
        }
    }
    Ok(running)
}

/// Adds the samples to the memory of their pools, with the runs that have ended.
fn write(
    tx: &mut Tx<'_>,
    observations: &[Observation],
    time: &ObservedTime,
    max_ended: u32,
) -> store::Result<()> {
    let ids: Vec<PoolId> = observations.iter().map(|one| one.pool_id.clone()).collect();
    let known = store::pool_memories::of(tx, &ids)?.into_iter();
    let mut known: BTreeMap<PoolId, PoolRecord> = known
        .map(|record| (record.pool_id.clone(), record))
        .collect();
    let mut ended = store::pool_news::of(tx, &ids, max_ended)?;
    let mut hours = WorkerHours::default();
    for Observation {
        pool_id,
        sample,
        snapshot,
        running,
    } in observations
    {
        let new = || PoolRecord::new(pool_id.clone(), sample.level, time);
        let mut record = known.remove(pool_id).unwrap_or_else(new);
        if record.sampled > time.observed {
            // Another process has begun a later round meanwhile.
            ended.retain(|runs| runs.pool_id != *pool_id);
            continue;
        }
        let passed_ms = record.add(with_ended(sample, pool_id, &ended), time);
        let missing_ms = snapshot.missing_ms(&record.memory);
        record.memory.learn(missing_ms, time.observed);
        store::pool_memories::write(tx, &record, time)?;
        for (offering, provider_id, count) in running {
            let worked = passed_ms as f64 / HOUR_MS as f64 * *count as f64;
            hours.add(offering, provider_id, worked);
        }
    }
    store::pool_news::delete(tx, &ended)?;
    hours.note(tx, time.clock)
}

fn with_ended(sample: &PoolSample, pool_id: &PoolId, ended: &[EndedRuns]) -> PoolSample {
    let mut sample = sample.clone();
    for runs in ended.iter().filter(|runs| runs.pool_id == *pool_id) {
        sample.n_ended = sample.n_ended.saturating_add(runs.n_ended);
        sample.durations_ms.extend(&runs.durations_ms);
    }
    sample
}
