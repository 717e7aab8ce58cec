//! Reads the facts about pools: a page of pools at a time, in a few grouped queries.

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::demand::Demand;
use domain::facts::{Facts, LaunchRecord, decides_by_memory, foresees, learns};
use domain::id::{ImageName, LaunchConfigId, PoolId};
use domain::image::most_open_starts;
use domain::image_reference::canary_mark;
use domain::market::{Announced, NEVER_LATE_MS};
use domain::plan::{FIRST_CLAIM_MS, LOST_ANSWER_MS, START_UP_MS, StrategyDefaults};
use domain::pool::Pool;
use domain::supply::{AHEAD_MS, Horizon, Inventory};
use domain::time::{HOUR_MS, Timestamp};
use domain::waits::WaitCause;
use domain::worker::WorkerState;
use store::Tx;
use store::launch_health::{HealthWindow, LaunchResults};
use store::started_workers::OpenSince;

use super::overrides_in_force::OverridesInForce;

/// Launches of this period count for the health of their launch config.
pub(super) const HEALTH_WINDOW_MS: i64 = HOUR_MS;

/// Facts about pools that follow each other in the order of their ids.
pub fn read_facts(
    tx: &mut Tx<'_>,
    pools: Vec<Pool>,
    demand: &BTreeMap<PoolId, Demand>,
    horizon: &Horizon,
    defaults: StrategyDefaults,
) -> store::Result<Vec<Facts>> {
    tx.ask(|tx| read_facts(tx, pools.clone(), demand, horizon, defaults));
    let mut facts = read_supply(tx, pools, demand, horizon, defaults)?;
    read_launch_configs(tx, &mut facts, horizon.now)?;
    Ok(facts)
}

/// Facts about one pool, in the transaction that writes. The workers of a large pool take long to
/// count: they are those that were seen a moment ago, unless another plan was made since.
pub(super) fn read_again(
    tx: &mut Tx<'_>,
    pool: Pool,
    demand: Demand,
    horizon: &Horizon,
    defaults: StrategyDefaults,
    seen: Option<&Facts>,
) -> store::Result<Option<Facts>> {
    let demand = BTreeMap::from([(pool.id.clone(), demand)]);
    let mut facts = supply(tx, vec![pool], &demand, horizon, defaults, seen)?;
    read_launch_configs(tx, &mut facts, horizon.now)?;
    Ok(facts.pop())
}

/// The name under which plans of the pool take turns.
pub(super) fn turn_of(pool: &PoolId) -> String {
    format!("pool:{pool}")
}

/// The same without launch configs: enough to find out which pools need no plan.
pub fn read_supply(
    tx: &mut Tx<'_>,
    pools: Vec<Pool>,
    demand: &BTreeMap<PoolId, Demand>,
    horizon: &Horizon,
    defaults: StrategyDefaults,
) -> store::Result<Vec<Facts>> {
    tx.ask(|tx| supply(tx, pools.clone(), demand, horizon, defaults, None));
    supply(tx, pools, demand, horizon, defaults, None)
}

fn supply(
    tx: &mut Tx<'_>,
    pools: Vec<Pool>,
    demand: &BTreeMap<PoolId, Demand>,
    horizon: &Horizon,
    defaults: StrategyDefaults,
    seen: Option<&Facts>,
) -> store::Result<Vec<Facts>> {
    let (Some(first), Some(last)) = (pools.first(), pools.last()) else {
        return Ok(Vec::new());
    };
    let (first, last) = (first.id.clone(), last.id.clone());
    if first != last {
        tx.plan_for_values()?;
    }
    let now = horizon.now;
    let mut workers = match seen {
        Some(seen) => Workers::of(seen),
        None => Workers::read(tx, &pools, (&first, &last), horizon, defaults)?,
    };
    let overrides = OverridesInForce::read(tx, now, &first, &last)?;
    let budgets = match pools.as_slice() {
        [pool] => store::budgets::list_limiting(tx, pool)?,
        _ => store::budgets::list_all(tx)?,
    };
    let contending = read_contending(tx, &pools, defaults)?;
    let mut announced = read_announced(tx, &pools, defaults, now)?;
    let waits = store::pool_waits::between(tx, &first, &last)?;
    let waits: BTreeMap<PoolId, WaitCause> = waits.into_iter().collect();
    let facts = pools.into_iter().map(|pool| {
        let demand = demand.get(&pool.id).copied().unwrap_or_default();
        let mut facts = Facts::new(pool, demand, *horizon, defaults);
        facts.overrides = overrides.of_pool(&facts.pool);
        let own = budgets.iter();
        let own = own.filter(|budget| budget.scope.concerns(&facts.pool));
        facts.budgets = own.cloned().collect();
        facts.inventory = workers.inventories.remove(facts.id()).unwrap_or_default();
        facts.announced = announced.remove(facts.id()).unwrap_or_default();
        facts.is_contending = contending.binary_search(facts.id()).is_ok();
        facts.may_have_late = workers.late.binary_search(facts.id()).is_ok();
        facts.wait = waits.get(facts.id()).copied();
        facts
    });
    let mut facts: Vec<Facts> = facts.collect();
    for facts in facts.iter_mut().filter(|facts| facts.is_large()) {
        facts.turn = match seen {
            Some(seen) => seen.turn,
            None => Some(store::turns::last(tx, &turn_of(facts.id()))?),
        };
    }
    Ok(facts)
}

/// The facts that take long to read about pools with many workers.
struct Workers {
    inventories: BTreeMap<PoolId, Inventory>,
    /// The pools with machines that may be late, in the order of their ids.
    late: Vec<PoolId>,
}

impl Workers {
    fn of(seen: &Facts) -> Self {
        let id = seen.id();
        Self {
            inventories: BTreeMap::from([(id.clone(), seen.inventory.clone())]),
            late: seen.may_have_late.then(|| id.clone()).into_iter().collect(),
        }
    }

    fn read(
        tx: &mut Tx<'_>,
        pools: &[Pool],
        (first, last): (&PoolId, &PoolId),
        horizon: &Horizon,
        defaults: StrategyDefaults,
    ) -> store::Result<Self> {
        Ok(Self {
            inventories: read_inventories(tx, horizon, (first, last))?,
            late: read_possibly_late(tx, pools, defaults, horizon.now)?,
        })
    }
}

/// The pools that decide by memory and for which a quota is used up, in the order of their ids.
fn read_contending(
    tx: &mut Tx<'_>,
    pools: &[Pool],
    defaults: StrategyDefaults,
) -> store::Result<Vec<PoolId>> {
    let learning = pools
        .iter()
        .filter(|pool| decides_by_memory(pool, defaults));
    let learning: Vec<&PoolId> = learning.map(|pool| &pool.id).collect();
    let (Some(first), Some(last)) = (learning.first(), learning.last()) else {
        return Ok(Vec::new());
    };
    let mut contending = store::pool_memories::contending_between(tx, first, last)?;
    contending.retain(|id| learning.contains(&id));
    Ok(contending)
}

/// The pools that decide by memory with machines that may be late for their offering, in the order
/// of their ids.
fn read_possibly_late(
    tx: &mut Tx<'_>,
    pools: &[Pool],
    defaults: StrategyDefaults,
    now: Timestamp,
) -> store::Result<Vec<PoolId>> {
    let mut learning = pools.iter().filter(|pool| learns(pool, defaults));
    let Some(first) = learning.next() else {
        return Ok(Vec::new());
    };
    let last = learning.next_back().unwrap_or(first);
    let before = now.plus_millis(-NEVER_LATE_MS);
    store::worker_supply::pools_with_starting_between(tx, before, &first.id, &last.id)
}

/// The tasks that are announced to pools that look ahead. An outside queue announces none.
fn read_announced(
    tx: &mut Tx<'_>,
    pools: &[Pool],
    defaults: StrategyDefaults,
    now: Timestamp,
) -> store::Result<BTreeMap<PoolId, Vec<Announced>>> {
    let foreseeing = pools.iter().filter(|pool| foresees(pool, defaults));
    let ids: Vec<PoolId> = foreseeing.map(|pool| pool.id.clone()).collect();
    if ids.is_empty() {
        return Ok(BTreeMap::new());
    }
    let announced = store::announced_tasks::of(tx, &ids, now)?;
    let by_pool = group_by_pool(announced, |(pool, _)| pool.clone());
    let tasks = |(id, rows): (PoolId, Vec<(PoolId, Announced)>)| {
        (id, rows.into_iter().map(|(_, tasks)| tasks).collect())
    };
    Ok(by_pool.into_iter().map(tasks).collect())
}

/// The workers and launches of each pool; pools without any are absent.
fn read_inventories(
    tx: &mut Tx<'_>,
    horizon: &Horizon,
    (first, last): (&PoolId, &PoolId),
) -> store::Result<BTreeMap<PoolId, Inventory>> {
    fn of<'a>(all: &'a mut BTreeMap<PoolId, Inventory>, id: &PoolId) -> &'a mut Inventory {
        all.entry(id.clone()).or_default()
    }
    let mut all = BTreeMap::new();
    for (group, is_archived) in store::worker_supply::between(tx, first, last)? {
        let inventory = of(&mut all, &group.pool_id);
        inventory.has_archived |= is_archived && group.state == WorkerState::Running;
        inventory.workers.push(group);
    }
    for group in store::worker_supply::quarantined_between(tx, horizon.now, first, last)? {
        of(&mut all, &group.pool_id).quarantined.push(group);
    }
    for group in store::running_workers::silent_between(tx, horizon, first, last)? {
        of(&mut all, &group.pool_id).silent.push(group);
    }
    for group in store::running_workers::fresh_between(tx, horizon, first, last)? {
        of(&mut all, &group.pool_id).fresh.push(group);
    }
    let old = horizon.now.plus_millis(-START_UP_MS);
    for group in store::worker_supply::overdue_between(tx, old, first, last)? {
        of(&mut all, &group.pool_id).overdue.push(group);
    }
    let lost = horizon.now.plus_millis(-LOST_ANSWER_MS);
    for launches in store::launches::pending_between(tx, (old, lost), first, last)? {
        of(&mut all, &launches.pool_id).awaited.push(launches);
    }
    Ok(all)
}

/// Adds the launch configs and their health.
fn read_launch_configs(tx: &mut Tx<'_>, facts: &mut [Facts], now: Timestamp) -> store::Result<()> {
    let (Some(first), Some(last)) = (facts.first(), facts.last()) else {
        return Ok(());
    };
    let (first, last) = (first.pool.id.clone(), last.pool.id.clone());
    let window = health_window(now, now.plus_millis(-HEALTH_WINDOW_MS));
    tx.ask(|tx| {
        store::launch_configs::active_between(tx, &first, &last)?;
        store::worker_errors::reporters_between(tx, &first, &last, window.since)?;
        store::launch_health::between(tx, &window, &first, &last)
    });
    let mut configs = group_by_pool(
        store::launch_configs::active_between(tx, &first, &last)?,
        |config| config.pool_id.clone(),
    );
    let reporters = store::worker_errors::reporters_between(tx, &first, &last, window.since)?;
    let mut reporters = group_by_pool(reporters, |(pool_id, ..)| pool_id.clone());
    let mut records = group_by_pool(
        store::launch_health::between(tx, &window, &first, &last)?,
        |results| results.pool_id.clone(),
    );
    for facts in facts.iter_mut() {
        let configs = configs.remove(facts.id()).unwrap_or_default();
        facts.launch_configs = configs.into_iter().map(Arc::new).collect();
        let records = records.remove(facts.id()).unwrap_or_default();
        facts.records = at_present_providers(facts, records);
        for (_, id, n_reporters) in reporters.remove(facts.id()).unwrap_or_default() {
            let record = facts.records.entry(id).or_default();
            record.health.reporters = n_reporters;
        }
    }
    read_canary_starts(tx, facts, now)
}

/// Adds how many further machines of canaries may start. Few pools have a launch config of one.
fn read_canary_starts(tx: &mut Tx<'_>, facts: &mut [Facts], now: Timestamp) -> store::Result<()> {
    let configs = facts.iter().flat_map(|facts| &facts.launch_configs);
    let marks = configs.filter_map(|config| canary_mark(&config.configuration));
    let mut shares: BTreeMap<ImageName, f64> = marks.map(|mark| (mark.image, mark.share)).collect();
    if shares.is_empty() {
        return Ok(());
    }
    let images: Vec<ImageName> = shares.keys().cloned().collect();
    for rollout in store::image_rollouts::of(tx, &images)? {
        let run = rollout.canary.as_ref();
        let evidence = run.and_then(|run| run.evidence.as_ref());
        if evidence.is_some_and(|evidence| evidence.canary.good > 0) {
            shares.remove(&rollout.image);
        }
    }
    if shares.is_empty() {
        return Ok(());
    }
    let since = OpenSince {
        created: now.plus_millis(-START_UP_MS),
        registered: now.plus_millis(-FIRST_CLAIM_MS),
    };
    let images: Vec<ImageName> = shares.keys().cloned().collect();
    let open = store::started_workers::count_open(tx, &images, since)?;
    let rooms = shares.into_iter().map(|(image, share)| {
        let open = open.get(&image).copied().unwrap_or_default();
        (
            image,
            u64::from(most_open_starts(share)).saturating_sub(open),
        )
    });
    let rooms: BTreeMap<ImageName, u64> = rooms.collect();
    for facts in facts {
        facts.canary_rooms.clone_from(&rooms);
    }
    Ok(())
}

/// The results of launch configs at the providers that they have now.
pub(super) fn at_present_providers(
    facts: &Facts,
    results: Vec<LaunchResults>,
) -> BTreeMap<LaunchConfigId, LaunchRecord> {
    let is_present = |results: &LaunchResults| {
        let mut configs = facts.launch_configs.iter();
        let config = configs.find(|config| config.id == results.launch_config_id);
        config.is_none_or(|config| *config.provider_id(&facts.pool) == results.provider_id)
    };
    let results = results.into_iter().filter(is_present);
    results
        .map(|one| (one.launch_config_id, one.record))
        .collect()
}

/// The launches that count at this moment, if launches since then count.
pub(super) fn health_window(now: Timestamp, since: Timestamp) -> HealthWindow {
    HealthWindow {
        since,
        until: now.plus_millis(AHEAD_MS),
        launched_before: now.plus_millis(-START_UP_MS),
        registered_before: now.plus_millis(-FIRST_CLAIM_MS),
    }
}

pub(super) fn group_by_pool<T>(
    rows: Vec<T>,
    pool: impl Fn(&T) -> PoolId,
) -> BTreeMap<PoolId, Vec<T>> {
    let mut groups: BTreeMap<PoolId, Vec<T>> = BTreeMap::new();
    for row in rows {
        groups.entry(pool(&row)).or_default().push(row);
    }
    groups
}

/// Adds the launch configs, which `read_supply` leaves out.
pub fn add_launch_configs(tx: &mut Tx<'_>, mut facts: Facts) -> store::Result<Facts> {
    let now = facts.horizon.now;
    read_launch_configs(tx, std::slice::from_mut(&mut facts), now)?;
    Ok(facts)
}
