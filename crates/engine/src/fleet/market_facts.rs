//! Reads what the strategy of a pool has learned, in the transaction of its other facts.
//!
//! The memory of an offering is what is stored, with the news that it does not contain yet. So a
//! plan knows what happened until its transaction, whether the task `learn` has run since or not.

use std::collections::{BTreeMap, BTreeSet};

use domain::facts::{Facts, MarketFacts};
use domain::id::{LaunchConfigId, PoolId};
use domain::market::{OfferingId, OfferingMemory, PoolNews};
use domain::plan::{Bids, LOST_ANSWER_MS, Rival, START_UP_MS};
use domain::time::DAY_MS;
use store::Tx;

/// A plan adds at most this many news to the memory that is stored: the newest.
const MAX_NEWS: u32 = 1_000;
/// A plan reads at most this many other pools that compete for a quota.
const MAX_RIVALS: u32 = 200;
/// Machines of older launches are not starting any more.
const STARTING_MS: i64 = DAY_MS;

/// Where the tasks of pools are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueKind {
    Own,
    /// That of another deployment, which does not say when runs were claimed.
    Outside,
}

/// `None`: the strategy of the pool learns nothing, and nothing is read.
pub(super) fn read(
    tx: &mut Tx<'_>,
    facts: &Facts,
    bids: &[Bids],
    queue: QueueKind,
) -> store::Result<Option<MarketFacts>> {
    let Some(choice) = facts.strategies().filter(|choice| choice.learns()) else {
        return Ok(None);
    };
    let by_config = offerings(facts, bids);
    let held = read_held(tx, facts, &by_config)?;
    let offerings: BTreeSet<OfferingId> = by_config.into_values().flatten().collect();
    let offerings = if choice.own.learns() {
        read_memories(tx, &offerings)?
    } else {
        read_memories_for_shadow(tx, &offerings)?
    };
    let since = facts.horizon.now.plus_millis(-STARTING_MS);
    let lost_since = facts.horizon.now.plus_millis(-LOST_ANSWER_MS);
    let pool = store::pool_memories::learned(tx, facts.id())?;
    let ordinary_runs = match queue {
        QueueKind::Own => read_ordinary_runs(tx, facts, &pool)?,
        QueueKind::Outside => None,
    };
    Ok(Some(MarketFacts {
        pool,
        ordinary_runs,
        starting: store::launches::starting(tx, facts.id(), since, lost_since)?,
        rivals: read_rivals(tx, facts.id(), &used_up_quotas(&offerings))?,
        offerings,
        held,
    }))
}

/// The offerings of each launch config for which there is a bid.
pub(super) type OfferingsByConfig = BTreeMap<LaunchConfigId, BTreeSet<OfferingId>>;

/// Units that run or are to come, by launch config and offering.
type HeldUnits = BTreeMap<(LaunchConfigId, OfferingId), u64>;

pub(super) fn offerings(facts: &Facts, bids: &[Bids]) -> OfferingsByConfig {
    let offers = facts.launch_configs.iter().zip(bids);
    let of_config = offers.filter_map(|(config, bids)| {
        let bids = bids.as_ref().ok()?.iter();
        let provider_id = config.provider_id(&facts.pool);
        let offerings = bids.map(|bid| OfferingId::new(provider_id, &bid.place));
        Some((config.id.clone(), offerings.collect()))
    });
    of_config.collect()
}

/// The units of launch configs with several offerings. Of others, all units are of the one.
fn read_held(
    tx: &mut Tx<'_>,
    facts: &Facts,
    offerings: &OfferingsByConfig,
) -> store::Result<HeldUnits> {
    let mut held = HeldUnits::new();
    if offerings.values().all(|offerings| offerings.len() < 2) {
        return Ok(held);
    }
    let since = facts.horizon.now.plus_millis(-START_UP_MS);
    let workers = store::worker_supply::by_offering(tx, facts.id())?.into_iter();
    let workers = workers.filter(|group| !group.draining);
    let workers = workers.map(|group| (group.launch_config_id, group.offering, group.capacity));
    let lost_since = facts.horizon.now.plus_millis(-LOST_ANSWER_MS);
    let awaited = store::launches::pending_by_offering(tx, facts.id(), since, lost_since)?;
    for (config, offering, units) in workers.chain(awaited) {
        *held.entry((config, offering)).or_default() += units;
    }
    Ok(held)
}

/// The memory of these offerings now; offerings without any are absent.
pub(super) fn read_memories(
    tx: &mut Tx<'_>,
    offerings: &BTreeSet<OfferingId>,
) -> store::Result<BTreeMap<OfferingId, OfferingMemory>> {
    let ids: Vec<OfferingId> = offerings.iter().cloned().collect();
    let records = store::offering_memories::of(tx, &ids)?.into_iter();
    let mut memories: BTreeMap<OfferingId, OfferingMemory> = records
        .map(|record| (record.offering.clone(), record.memory()))
        .collect();
    for row in store::offering_news::newest_of(tx, &ids, MAX_NEWS)? {
        let Some(news) = row.news else {
            continue;
        };
        let unknown = || OfferingMemory::new(&row.offering);
        let memory = memories.entry(row.offering.clone());
        memory.or_insert_with(unknown).observe(news, row.observed);
    }
    Ok(memories)
}

/// The same for a shadow: what was learned from pools with a shadow, or else from other pools.
pub(super) fn read_memories_for_shadow(
    tx: &mut Tx<'_>,
    offerings: &BTreeSet<OfferingId>,
) -> store::Result<BTreeMap<OfferingId, OfferingMemory>> {
    if offerings.is_empty() {
        return Ok(BTreeMap::new());
    }
    let of_shadows = offerings.iter().map(|id| (id.for_shadows(), id));
    let of_shadows: BTreeMap<OfferingId, &OfferingId> = of_shadows.collect();
    let both = of_shadows.keys().chain(offerings).cloned().collect();
    let mut memories = read_memories(tx, &both)?;
    for (of_shadows, id) in of_shadows {
        if let Some(memory) = memories.remove(&of_shadows) {
            memories.insert(id.clone(), memory);
        }
    }
    Ok(memories)
}

/// The offerings that last failed because of a quota.
pub(super) fn used_up_quotas(
    memories: &BTreeMap<OfferingId, OfferingMemory>,
) -> BTreeSet<OfferingId> {
    let full = memories.iter().filter(|(_, memory)| memory.lacks_quota());
    full.map(|(id, _)| id.clone()).collect()
}

/// The other pools that compete for one of these quotas.
fn read_rivals(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    quotas: &BTreeSet<OfferingId>,
) -> store::Result<Vec<Rival>> {
    if quotas.is_empty() {
        return Ok(Vec::new());
    }
    let quotas: Vec<OfferingId> = quotas.iter().cloned().collect();
    let others = store::pool_memories::list_rivals(tx, pool_id, &quotas, MAX_RIVALS)?;
    let rivals = others.into_iter().map(|mut other| {
        other.quotas.retain(|offering, _| quotas.contains(offering));
        Rival {
            demand: other.wanted,
            held: other.held,
            quotas: other.quotas,
        }
    });
    Ok(rivals.collect())
}

/// The units of the pool that run or are to come, by offering. `offerings`: those of the launch
/// configs.
pub(super) fn held_units(
    tx: &mut Tx<'_>,
    facts: &Facts,
    offerings: &OfferingsByConfig,
) -> store::Result<BTreeMap<OfferingId, u64>> {
    let of_several = read_held(tx, facts, offerings)?;
    let mut held: BTreeMap<OfferingId, u64> = BTreeMap::new();
    for (config, units) in facts.held() {
        let Some(offerings) = offerings.get(config) else {
            continue;
        };
        for offering in offerings {
            let units = match offerings.len() {
                1 => units,
                _ => {
                    let key = (config.clone(), offering.clone());
                    of_several.get(&key).copied().unwrap_or(0)
                }
            };
            *held.entry(offering.clone()).or_default() += units;
        }
    }
    Ok(held)
}

/// How many tasks have been running for an ordinary time, if that is known and some wait.
fn read_ordinary_runs(
    tx: &mut Tx<'_>,
    facts: &Facts,
    learned: &PoolNews,
) -> store::Result<Option<u64>> {
    let now = facts.horizon.now;
    let since = learned
        .ordinary_since(now)
        .filter(|_| facts.demand.pending > 0);
    let count = since.map(|since| store::demand::claimed_since(tx, facts.id(), since, now));
    count.transpose()
}
