//! One decision about one pool: read, plan, write; what is to be launched comes back.
//!
//! The plan that counts is made inside the transaction that writes it, on what is true there. The one before
//! it only finds out whether there is anything to write.

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::Version;
use domain::demand::Demand;
use domain::id::{LaunchConfigId, LaunchToken, PoolId, ProviderId};
use domain::launch::{Launch, LaunchState};
use domain::launch_config::LaunchConfig;
use domain::overrides::Override;
use domain::plan::{Award, Bid, Plan, Snapshot, plan};
use domain::pool::Pool;
use domain::supply::Horizon;
use domain::time::HOUR_MS;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use store::plans::PlanRecord;
use store::{StoreError, Tx};

use super::bids;
use super::candidates::{self, Busy};
use super::facts::{Facts, most_pending, page_of_facts};
use super::problems::{Problem, report};
use crate::Engine;
use crate::change::Change;

/// Plans of a pool that are kept.
const KEPT_PLANS: i64 = 100;
/// One launch asks for so many machines at most; a larger award becomes several.
const MAX_MACHINES: u32 = 50;

/// So many workers are told something by one plan; the next tells others.
const MAX_ADVICE: usize = 1_000;

/// A decision that was written down.
pub struct Decided {
    pub number: i64,
    pub plan: Plan,
    /// To be carried out now, each with its launch config.
    pub launches: Vec<(Launch, LaunchConfig)>,
    pub pool: Pool,
}

/// What the world outside of the store says, asked beforehand because a transaction cannot wait.
#[derive(Clone)]
struct Outside {
    /// For these launch configs of these providers, in this order.
    asked: Vec<(LaunchConfigId, ProviderId)>,
    bids: Vec<Result<Bid, String>>,
    /// These were in force, and are in the bids.
    overrides: Vec<Override>,
    /// With how many machines providers of the pool can cope; those without a limit are absent.
    max_machines: BTreeMap<ProviderId, u64>,
    /// Providers whose workers may be told to go: those of others were declared by people.
    launching: Vec<ProviderId>,
    /// What an outside queue said about the demand.
    demand: Option<Demand>,
    busy: Busy,
    seed: u64,
}

/// Whether there is nothing to do for a pool, whatever its launch configs are like: for facts
/// without them.
pub fn is_content(facts: &Facts) -> bool {
    if facts.nothing_to_think_about() {
        return true;
    }
    let Ok(snapshot) = facts.snapshot(&[], &BTreeMap::new(), Vec::new()) else {
        return true;
    };
    // Without launch configs nothing is drawn, so any chance will do.
    let plan = plan(&snapshot, &mut StdRng::seed_from_u64(0));
    plan.change <= 0.0 && plan.is_idle() && !concerns_single_workers(facts, &snapshot, &plan)
}

/// Whether the pool has, or has had, a provider that makes machines. Of others people declare the
/// workers.
pub fn is_planned(engine: &Engine, pool: &Pool) -> bool {
    let previous = pool.previous_provider_ids.iter();
    let mut ids = pool.provider_ids().chain(previous);
    ids.any(|id| match engine.providers.get(id) {
        Ok(provider) => provider.machines().is_some(),
        Err(_) => true,
    })
}

/// `None`: there is nothing to do.
pub async fn decide(engine: &Arc<Engine>, facts: &Facts) -> Result<Option<Decided>, StoreError> {
    if facts.nothing_to_think_about() {
        return Ok(None);
    }
    let (outside, thought) = look(engine, facts).await?;
    if let Some(at) = thought.as_ref().and_then(|(_, plan)| plan.again_at) {
        engine.wake.pool_at(&facts.pool.id, at);
    }
    let Some((_, first)) = thought.filter(|(_, plan)| !plan.is_idle()) else {
        return Ok(None);
    };
    if said_already(engine, facts, &first).await? {
        return Ok(None);
    }
    let pool_id = facts.pool.id.clone();
    // Pools that share a provider with a limit would only be in each other's way.
    let shared = outside.max_machines.keys().cloned().collect();
    let _turns = engine.launching.take_turns(shared).await;
    // The queue may have taken its time to answer.
    let now = engine.clock.now();
    let horizon = engine.horizon(now);
    engine
        .change_durably("plan_commit", now, move |change| {
            commit(change, &pool_id, &outside, &horizon)
        })
        .await
}

/// A plan that does nothing but raise the alarm is written once an hour, not at every look.
async fn said_already(engine: &Engine, facts: &Facts, plan: &Plan) -> Result<bool, StoreError> {
    if !plan.awards.is_empty() || !plan.advice.is_empty() {
        return Ok(false);
    }
    let id = facts.pool.id.clone();
    let last = engine
        .store
        .read("plan_last", move |tx| store::plans::list(tx, &id, 1));
    let Some(last) = last.await?.into_iter().next() else {
        return Ok(false);
    };
    let is_recent = facts.now.as_millis() - last.created.as_millis() < HOUR_MS;
    let had_alarm = Plan::from_json(&last.plan).is_ok_and(|plan| plan.alarm.is_some());
    Ok(is_recent && had_alarm)
}

/// What would be decided now; nothing is written, nothing happens. `None`: the pool's config cannot be planned.
pub async fn preview(
    engine: &Arc<Engine>,
    facts: &Facts,
) -> Result<Option<(Snapshot, Plan)>, StoreError> {
    Ok(look(engine, facts).await?.1)
}

/// Plans without writing.
async fn look(
    engine: &Arc<Engine>,
    facts: &Facts,
) -> Result<(Outside, Option<(Snapshot, Plan)>), StoreError> {
    let mut outside = outside(engine, facts);
    let mut thought = look_with(engine, facts, &outside).await?;
    if engine.demands.is_outside()
        && let Some((snapshot, plan)) = &thought
        && concerns_single_workers(facts, snapshot, plan)
    {
        outside.busy = busy_outside(engine, facts).await;
        thought = look_with(engine, facts, &outside).await?;
    }
    Ok((outside, thought))
}

async fn look_with(
    engine: &Arc<Engine>,
    facts: &Facts,
    outside: &Outside,
) -> Result<Option<(Snapshot, Plan)>, StoreError> {
    // Most pools are content and need no further question to the store.
    if outside.max_machines.is_empty() {
        let Some((snapshot, plan)) = think_alone(facts, outside, &BTreeMap::new()) else {
            return Ok(None);
        };
        if !concerns_single_workers(facts, &snapshot, &plan) {
            return Ok(Some((snapshot, plan)));
        }
    }
    let (facts, outside) = (facts.clone(), outside.clone());
    engine
        .store
        .scan("plan_look", move |tx| think(tx, &facts, &outside))
        .await
}

fn outside(engine: &Engine, facts: &Facts) -> Outside {
    let is_outside = engine.demands.is_outside();
    let max_machines = facts.pool.provider_ids().filter_map(|id| {
        let machines = engine.providers.get(id).ok()?.machines()?;
        Some((id.clone(), machines.max_machines()?))
    });
    Outside {
        asked: places_of(facts),
        bids: bids::ask(engine, facts),
        overrides: facts.overrides.clone(),
        max_machines: max_machines.collect(),
        launching: launching(engine),
        demand: is_outside.then_some(facts.demand),
        busy: match is_outside {
            true => Busy::Anybody,
            false => Busy::AskStore,
        },
        seed: engine.random.with(|random| random.random()),
    }
}

fn places_of(facts: &Facts) -> Vec<(LaunchConfigId, ProviderId)> {
    let configs = facts.launch_configs.iter();
    let places = configs.map(|config| (config.id.clone(), config.provider_id(&facts.pool).clone()));
    places.collect()
}

fn launching(engine: &Engine) -> Vec<ProviderId> {
    let makes_machines = |id: &ProviderId| {
        let provider = engine.providers.get(id).ok();
        provider.is_some_and(|provider| provider.machines().is_some())
    };
    let ids = engine.providers.listed().map(|(id, _)| id);
    ids.filter(|id| makes_machines(id)).cloned().collect()
}

/// Could anybody be told to go, or told so no longer?
#[expect(
    clippy::cast_precision_loss,
    reason = "capacities are far below what an f64 holds exactly"
)]
fn concerns_single_workers(facts: &Facts, snapshot: &Snapshot, plan: &Plan) -> bool {
    let capacity = &snapshot.capacity;
    capacity.draining > 0
        || capacity.quarantined > 0
        || capacity.running as f64 > plan.target
        || facts.has_strangers()
}

async fn busy_outside(engine: &Arc<Engine>, facts: &Facts) -> Busy {
    match engine.demands.busy(&facts.pool.id).await {
        Ok(busy) => Busy::Known(busy),
        Err(problem) => {
            tracing::warn!(pool.id = %facts.pool.id, error = %problem,
                "cannot tell who is busy in {}; nobody is told to go: {problem}", facts.pool.id);
            Busy::Anybody
        }
    }
}

/// Looks at single workers only if that could matter: there may be very many.
fn think(
    tx: &mut Tx<'_>,
    facts: &Facts,
    outside: &Outside,
) -> Result<Option<(Snapshot, Plan)>, StoreError> {
    let rooms = rooms(tx, &outside.max_machines)?;
    let Some((snapshot, first)) = think_alone(facts, outside, &rooms) else {
        return Ok(None);
    };
    if !concerns_single_workers(facts, &snapshot, &first) {
        return Ok(Some((snapshot, first)));
    }
    // When nobody can say who is busy, nobody is told anything.
    if matches!(outside.busy, Busy::Anybody) {
        return Ok(Some((snapshot, first)));
    }
    let workers = candidates::read(tx, facts, &outside.busy, &outside.launching)?;
    let snapshot = Snapshot {
        workers,
        ..snapshot
    };
    let second = plan(&snapshot, &mut StdRng::seed_from_u64(outside.seed));
    Ok(Some((snapshot, second)))
}

fn think_alone(
    facts: &Facts,
    outside: &Outside,
    rooms: &BTreeMap<ProviderId, u64>,
) -> Option<(Snapshot, Plan)> {
    match facts.snapshot(&outside.bids, rooms, Vec::new()) {
        Ok(mut snapshot) => {
            if outside.demand.is_some() {
                // An outside queue does not tell us who has asked it for work.
                snapshot
                    .offers
                    .iter_mut()
                    .for_each(|offer| offer.health.silent = 0);
            }
            let plan = plan(&snapshot, &mut StdRng::seed_from_u64(outside.seed));
            Some((snapshot, plan))
        }
        Err(problem) => {
            tracing::debug!(pool.id = %facts.pool.id, "{} is not planned: {problem}", facts.pool.id);
            None
        }
    }
}

/// How many further machines each of these providers takes.
fn rooms(
    tx: &mut Tx<'_>,
    max_machines: &BTreeMap<ProviderId, u64>,
) -> Result<BTreeMap<ProviderId, u64>, StoreError> {
    let rooms = max_machines.iter().map(|(id, max)| {
        let there = store::workers::live_machines(tx, id)?;
        let to_come = store::launches::pending_machines(tx, id)?;
        Ok((id.clone(), max.saturating_sub(there + to_come)))
    });
    rooms.collect()
}

fn commit(
    change: &mut Change<'_, '_>,
    pool_id: &PoolId,
    outside: &Outside,
    horizon: &Horizon,
) -> Result<Option<Decided>, StoreError> {
    let (tx, now) = (&mut *change.tx, change.now);
    let number = store::turns::take(tx, &format!("pool:{pool_id}"))?;
    let Some(pool) = store::pools::get(tx, pool_id)? else {
        return Ok(None);
    };
    // Always in the same order, so that those who decide for different pools do not wait for each other in a circle.
    for id in outside.max_machines.keys() {
        store::turns::take(tx, &format!("provider:{id}"))?;
    }
    let demand = match outside.demand {
        Some(demand) => demand,
        None => store::demand::up_to(tx, pool_id, now, most_pending(&pool))?,
    };
    let demand = BTreeMap::from([(pool_id.clone(), demand)]);
    let Some(facts) = page_of_facts(tx, vec![pool], &demand, horizon)?.pop() else {
        return Ok(None);
    };
    // The bids were for the launch configs and overrides of a moment ago; of others the next plan decides.
    if places_of(&facts) != outside.asked || facts.overrides != outside.overrides {
        return Ok(None);
    }
    let Some((_, mut plan)) = think(tx, &facts, outside)? else {
        return Ok(None);
    };
    if plan.is_idle() {
        return Ok(None);
    }
    plan.advice.truncate(MAX_ADVICE);
    let mut launches = Vec::new();
    for award in &plan.awards {
        let Some(config) = facts
            .launch_configs
            .iter()
            .find(|config| config.id == award.launch_config_id)
        else {
            continue;
        };
        for launch in intents(change, &facts, config, award, number) {
            store::launches::insert(change.tx, &launch)?;
            launches.push((launch, config.clone()));
        }
    }
    for (key, advice) in &plan.advice {
        let Some(mut worker) = store::workers::get(change.tx, key)? else {
            continue;
        };
        worker.terms.advice = Some(advice.clone());
        store::workers::update(change.tx, &worker)?;
    }
    report_unserved(change, &facts.pool, &plan)?;
    let record = PlanRecord {
        pool_id: pool_id.clone(),
        number,
        created: now,
        plan: plan.to_json(),
    };
    store::plans::insert(change.tx, &record, KEPT_PLANS)?;
    Ok(Some(Decided {
        number,
        plan,
        launches,
        pool: facts.pool,
    }))
}

/// The pool's owner hears of tasks for which nothing can be launched: once, and then at most once an hour.
fn report_unserved(
    change: &mut Change<'_, '_>,
    pool: &Pool,
    plan: &Plan,
) -> Result<(), StoreError> {
    if !plan.unserved {
        return Ok(());
    }
    let last = store::plans::list(change.tx, &pool.id, 1)?
        .into_iter()
        .next();
    let is_known = last.is_some_and(|last| {
        change.now.millis_since(last.created) < HOUR_MS
            && Plan::from_json(&last.plan).is_ok_and(|plan| plan.unserved)
    });
    if is_known {
        return Ok(());
    }
    let mut extra = serde_json::Map::new();
    extra.insert("code".to_owned(), "no-usable-launch-config".into());
    let problem = Problem {
        kind: "provision-error",
        title: "No launch config can be used",
        description: format!(
            "{}. Give one of them a weight, or add one.",
            plan.alarm.as_deref().unwrap_or_default()
        ),
        extra,
        launch_config_id: None,
        worker: None,
    };
    report(change, &pool.id, &pool.definition.provider_id, &problem)
}

/// An award as launches that no cloud finds too large.
fn intents(
    change: &Change<'_, '_>,
    facts: &Facts,
    config: &LaunchConfig,
    award: &Award,
    plan: i64,
) -> Vec<Launch> {
    let mut launches = Vec::new();
    for machines in parts(award.machines, MAX_MACHINES) {
        launches.push(Launch {
            token: new_token(change),
            pool_id: facts.pool.id.clone(),
            provider_id: config.provider_id(&facts.pool).clone(),
            launch_config_id: award.launch_config_id.clone(),
            machines,
            capacity_each: award.capacity_each,
            max_price: award.max_price,
            state: LaunchState::Open,
            asked: None,
            made: 0,
            plan,
            created: facts.now,
            last_modified: facts.now,
            version: Version::FIRST,
        });
    }
    launches
}

/// The machines of an award, at most so many at a time.
fn parts(machines: u32, most: u32) -> Vec<u32> {
    let mut parts = Vec::new();
    let mut left = machines;
    while left > 0 {
        parts.push(left.min(most));
        left -= left.min(most);
    }
    parts
}

fn new_token(change: &Change<'_, '_>) -> LaunchToken {
    let text = change.new_id();
    text.parse().expect("a slugid is a launch token")
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    #[test]
    fn an_award_is_asked_for_in_parts_that_no_cloud_finds_too_large() {
        let most = usize::try_from(MAX_MACHINES).unwrap();
        for size in sizes_around("engine::fleet::decide::MAX_MACHINES", most) {
            let parts = parts(u32::try_from(size).unwrap(), MAX_MACHINES);
            assert_eq!(parts.len(), size.div_ceil(most));
            assert_eq!(parts.iter().map(|part| *part as usize).sum::<usize>(), size);
            assert!(parts.iter().all(|part| (1..=MAX_MACHINES).contains(part)));
        }
    }
}
