//! One decision about one pool: reads, plans and writes, and returns the launches to start.
//!
//! The plan that counts is made in the transaction that writes it, from the facts in that
//! transaction. The plan before it only shows whether there is anything to write. Of a large pool,
//! the workers may be those of a moment before (`facts::read_again`).

use std::collections::HashMap;
use std::sync::Arc;

use domain::demand::Demand;
use domain::facts::{Facts, Rooms, TURN_MS, most_pending};
use domain::id::{PoolId, WorkerKey};
use domain::launch::NewLaunch;
use domain::plan::{Input, OfferRow, Plan, Snapshot, StrategyName};
use domain::pool::Pool;
use domain::supply::Horizon;
use domain::time::{HOUR_MS, Timestamp};
use domain::worker::{Advice, Worker};
use serde_json::json;
use store::plans::PlanRecord;
use store::{StoreError, Tx};

use super::launches::PlannedLaunch;
use super::outside_facts::OutsideFacts;
use super::pool_errors::{ErrorDetails, report_pool_error};
use super::waits::note_waits;
use super::{facts, offering_news, shadow_plans};
use crate::Engine;
use crate::budgets;
use crate::change::Change;
use crate::taskcluster_records;

/// This many plans of a pool are kept.
const KEPT_PLANS: i64 = 100;

pub struct CommittedPlan {
    pub number: i64,
    pub plan: Plan,
    /// To be started now.
    pub launches: Vec<PlannedLaunch>,
    pub pool: Pool,
    /// It advises workers, and there are more than it has read.
    pub has_more_candidates: bool,
}

/// Whether the pool has or had a provider that makes machines. Workers of other providers are
/// declared by people.
pub fn is_planned(engine: &Engine, pool: &Pool) -> bool {
    let previous = pool.previous_provider_ids.iter();
    let mut ids = pool.provider_ids().chain(previous);
    ids.any(|id| match engine.providers.get(id) {
        Ok(provider) => provider.machines().is_some(),
        Err(_) => true,
    })
}

/// Plans a pool and writes the plan. `None`: the plan does nothing.
pub async fn decide(engine: &Arc<Engine>, facts: Facts) -> store::Result<Option<CommittedPlan>> {
    if facts.is_asleep() {
        return Ok(None);
    }
    let (pool_id, known_wait, n_pending) = (facts.id().clone(), facts.wait, facts.n_pending);
    let (outside, planned) = plan_without_writing(engine, facts).await?;
    let Some((snapshot, plan)) = planned else {
        return Ok(None);
    };
    if let Some(at) = plan.again_at {
        engine.wakeups.wake_pool_at(&pool_id, at);
    }
    if plan.is_idle() || is_known_alarm(engine, &snapshot, &plan).await? {
        let wait = snapshot.wait(&plan, n_pending).of_pool();
        if known_wait != Some(wait) {
            note_waits(engine, vec![(pool_id, wait)], snapshot.now).await?;
        }
        let seed = outside.seed;
        shadow_plans::note_opinion(engine, Input { seed, snapshot }, plan).await;
        return Ok(None);
    }
    if engine.taskcluster_records {
        taskcluster_records::of_weights(&snapshot).write();
    }
    // Concurrent plans of pools that share a limited provider or a budget would conflict, and those
    // that share a canary would each use all of its room.
    let providers = outside.max_machines.keys();
    let providers = providers.map(|id| format!("provider:{id}"));
    let budgets = snapshot.budgets.iter();
    let budgets = budgets.map(|room| format!("budget:{}", room.budget_id));
    let canaries = snapshot.offers.iter();
    let rooms = canaries.filter_map(|offer| offer.canary.as_ref()?.room.as_ref());
    let canaries = rooms.map(|room| format!("canary:{}", room.image));
    let shared = providers.chain(budgets).chain(canaries).collect();
    let _locks = engine.launch_tracker.lock_decisions(shared).await;
    // The queue may have answered slowly.
    let now = engine.clock.now();
    let horizon = engine.horizon(now);
    let committed = engine.change_durably("plan_commit", now, move |change| {
        commit(change, &pool_id, &outside, &horizon)
    });
    let committed = committed.await?;
    if let Some(committed) = &committed
        && committed.has_more_candidates
    {
        let at = now.plus_millis(TURN_MS);
        engine.wakeups.wake_pool_at(&committed.pool.id, at);
    }
    Ok(committed)
}

/// A plan that only raises an alarm is written once an hour, not each time.
async fn is_known_alarm(engine: &Engine, snapshot: &Snapshot, plan: &Plan) -> store::Result<bool> {
    if !plan.awards.is_empty() || !plan.advice.is_empty() {
        return Ok(false);
    }
    let (id, now) = (snapshot.pool_id.clone(), snapshot.now);
    let last = engine
        .store
        .read("plan_last", move |tx| last_plan(tx, &id, now));
    Ok(last.await?.is_some_and(|last| last.alarm.is_some()))
}

/// The last plan of a pool, if it is younger than an hour.
fn last_plan(tx: &mut Tx<'_>, pool_id: &PoolId, now: Timestamp) -> store::Result<Option<Plan>> {
    let last = store::plans::list(tx, pool_id, 1)?.into_iter().next();
    let recent = last.filter(|last| now.millis_since(last.created) < HOUR_MS);
    Ok(recent.and_then(|last| Plan::from_json(&last.plan).ok()))
}

/// The plan that would be made now; nothing is written. `None`: the config of the pool is invalid
/// for planning.
pub async fn preview(
    engine: &Arc<Engine>,
    facts: Facts,
) -> store::Result<Option<(Snapshot, Plan)>> {
    Ok(plan_without_writing(engine, facts).await?.1)
}

async fn plan_without_writing(
    engine: &Arc<Engine>,
    mut facts: Facts,
) -> store::Result<(Arc<OutsideFacts>, Option<(Snapshot, Plan)>)> {
    let outside = Arc::new(OutsideFacts::read(engine, &facts).await);
    // Most pools need no further query.
    let mut snapshot = if outside.needs_store(&facts) {
        let outside = Arc::clone(&outside);
        engine
            .store
            .scan("plan_look", move |tx| outside.read_snapshot(tx, &mut facts))
            .await?
    } else {
        outside.snapshot(&facts, &Rooms::new())
    };
    if let Some(snapshot) = &mut snapshot {
        outside.ask_service(engine, snapshot).await;
    }
    let seed = outside.seed;
    let planned = snapshot.map(|snapshot| {
        let plan = Input::plan(&snapshot, seed);
        (snapshot, plan)
    });
    Ok((outside, planned))
}

fn commit(
    change: &mut Change<'_, '_>,
    pool_id: &PoolId,
    outside: &OutsideFacts,
    horizon: &Horizon,
) -> store::Result<Option<CommittedPlan>> {
    change.tx.ask(|tx| ask(tx, outside, horizon));
    let number = store::turns::take(change.tx, &facts::turn_of(pool_id))?;
    let Some(mut facts) = reread_facts(change.tx, (pool_id, number), outside, horizon)? else {
        return Ok(None);
    };
    // After a change of launch configs, overrides or the strategy service, the next plan decides.
    if !outside.is_about(&facts) {
        return Ok(None);
    }
    // With workers that were seen, those that this look finds would be remembered: none.
    if outside.seen.is_none() {
        let tx = &mut *change.tx;
        tx.ask(|tx| outside.read_snapshot(tx, &mut facts.clone()));
    }
    let snapshot = outside.read_snapshot(change.tx, &mut facts)?;
    let Some(snapshot) = snapshot.filter(|snapshot| outside.has_answer_for(snapshot)) else {
        return Ok(None);
    };
    let mut input = Input {
        seed: outside.seed,
        snapshot,
    };
    let mut plan = input.replay();
    if plan.is_idle() {
        return Ok(None);
    }
    let launches = insert_launches(change, &facts, &input.snapshot, &plan, number)?;
    let launched = launches.iter().map(|planned| &planned.launch);
    budgets::note_launches(change, &facts.budgets, launched)?;
    advise(change, pool_id, &plan)?;
    report_unserved(change, &facts.pool, &plan)?;
    let wait = input.snapshot.wait(&plan, facts.n_pending).of_pool();
    if facts.wait != Some(wait) {
        store::pool_waits::note(change.tx, &[(pool_id.clone(), wait)], change.now)?;
    }
    if let Some(comparison) = plan.comparison(&input.snapshot) {
        shadow_plans::insert_beside(change, pool_id, number, &comparison)?;
    }
    let has_more_candidates = facts.is_large() && !plan.advice.is_empty();
    let packed = pack(&mut input, &mut plan);
    let record = PlanRecord {
        pool_id: pool_id.clone(),
        number,
        created: change.now,
        plan: plan.to_json(),
    };
    store::plans::insert(change.tx, &record, packed.as_deref(), KEPT_PLANS)?;
    Ok(Some(CommittedPlan {
        number,
        plan,
        launches,
        pool: facts.pool,
        has_more_candidates,
    }))
}

fn advise(change: &mut Change<'_, '_>, pool_id: &PoolId, plan: &Plan) -> store::Result<()> {
    let advice: HashMap<&WorkerKey, &Advice> = plan
        .advice
        .iter()
        .map(|(key, advice)| (key, advice))
        .collect();
    let workers = store::workers::get_some(change.tx, advice.keys().copied())?;
    let advised: Vec<Worker> = workers
        .into_iter()
        .filter_map(|worker| {
            let advice = *advice.get(&worker.key)?;
            Some(worker.advise(advice.clone()))
        })
        .collect();
    store::workers::advise(change.tx, pool_id, &advised)?;
    let asked_to_stop = advised.iter().filter(|worker| worker.terms.is_draining());
    change.dismiss(asked_to_stop.map(|worker| worker.key.clone()));
    Ok(())
}

/// Packs the input. If it is too large with what only the shadow reads, the plan is stored without
/// its shadow, so that at least the plan can be made again.
fn pack(input: &mut Input, plan: &mut Plan) -> Option<Vec<u8>> {
    let packed = input.pack();
    if packed.is_some() || input.snapshot.shadow.take().is_none() {
        return packed;
    }
    plan.shadow = None;
    input.pack()
}

/// Reads what the facts probably are read from, as far as it follows from the pool.
fn ask(tx: &mut Tx<'_>, outside: &OutsideFacts, horizon: &Horizon) -> store::Result<()> {
    let pool = store::pools::get(tx, &outside.pool.id)?;
    let pool = pool.unwrap_or_else(|| outside.pool.clone());
    read_demand(tx, &pool, outside, horizon)?;
    let (demand, defaults) = (Demand::default(), outside.defaults);
    facts::read_again(tx, pool, demand, horizon, defaults, outside.seen.as_ref()).map(drop)
}

/// That of an outside queue is known.
fn read_demand(
    tx: &mut Tx<'_>,
    pool: &Pool,
    outside: &OutsideFacts,
    horizon: &Horizon,
) -> store::Result<Demand> {
    match outside.demand {
        Some(demand) => Ok(demand),
        None => {
            let most = most_pending(pool, outside.defaults).saturating_add(1);
            store::demand::up_to(tx, &pool.id, horizon.now, most)
        }
    }
}

/// Reads the facts again, in the transaction that writes.
fn reread_facts(
    tx: &mut Tx<'_>,
    (pool_id, turn): (&PoolId, i64),
    outside: &OutsideFacts,
    horizon: &Horizon,
) -> store::Result<Option<Facts>> {
    let Some(pool) = store::pools::get(tx, pool_id)? else {
        return Ok(None);
    };
    // In the order of the names, so that decisions for different pools do not deadlock.
    for id in outside.max_machines.keys() {
        store::turns::take(tx, &format!("provider:{id}"))?;
    }
    let demand = read_demand(tx, &pool, outside, horizon)?;
    let seen = outside.seen.as_ref();
    let seen = seen.filter(|seen| seen.has_workers_for(turn, horizon.now));
    facts::read_again(tx, pool, demand, horizon, outside.defaults, seen)
}

fn insert_launches(
    change: &mut Change<'_, '_>,
    facts: &Facts,
    snapshot: &Snapshot,
    plan: &Plan,
    number: i64,
) -> store::Result<Vec<PlannedLaunch>> {
    let mut launches = Vec::new();
    for award in &plan.awards {
        let mut configs = facts.launch_configs.iter();
        let Some(config) = configs.find(|config| config.id == award.launch_config_id) else {
            continue;
        };
        let offering = offering_news::note_asked(change, snapshot, award)?;
        let bid_data = Arc::new(award.data.clone());
        for machines in award.launches() {
            let new = NewLaunch {
                token: change.new_id(),
                pool_id: facts.pool.id.clone(),
                provider_id: config.provider_id(&facts.pool).clone(),
                launch_config_id: award.launch_config_id.clone(),
                offering: offering.clone(),
                machines,
                capacity_each: award.capacity_each,
                max_price: award.max_price,
                price: award.price,
                plan: number,
            };
            let launch = new.decide(facts.horizon.now);
            store::launches::insert(change.tx, &launch)?;
            launches.push(PlannedLaunch {
                launch,
                launch_config: Arc::clone(config),
                bid_data: Arc::clone(&bid_data),
            });
        }
    }
    Ok(launches)
}

/// Makes the plan with this number again, from the input that was stored with it. `None`: the plan
/// does not exist, or its input was too large to store.
pub fn replay(tx: &mut Tx<'_>, pool_id: &PoolId, number: i64) -> Result<Option<Plan>, ReplayError> {
    let Some(packed) = store::plans::input(tx, pool_id, number)? else {
        return Ok(None);
    };
    Ok(Some(Input::unpack(&packed)?.replay()))
}

/// The strategy that made a stored plan, and the offers that it had.
pub struct StoredOffers {
    pub strategy: StrategyName,
    pub offers: Vec<OfferRow>,
}

/// The offers of the launch configs in the plan with this number. `None` as for `replay`.
pub fn stored_offers(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    number: i64,
) -> Result<Option<StoredOffers>, ReplayError> {
    let Some(packed) = store::plans::input(tx, pool_id, number)? else {
        return Ok(None);
    };
    let input = Input::unpack(&packed)?;
    Ok(Some(StoredOffers {
        strategy: input.snapshot.settings.strategy,
        offers: input.snapshot.offer_rows(&input.replay()),
    }))
}

#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the stored input of the plan cannot be read")]
    Input(#[from] domain::plan::BadInput),
}

/// Reports tasks without a usable launch config to the owner of the pool, at most once an hour.
fn report_unserved(change: &mut Change<'_, '_>, pool: &Pool, plan: &Plan) -> store::Result<()> {
    if !plan.unserved {
        return Ok(());
    }
    if last_plan(change.tx, &pool.id, change.now)?.is_some_and(|last| last.unserved) {
        return Ok(());
    }
    let problem = ErrorDetails {
        kind: "provision-error",
        title: "No launch config can be used",
        description: format!(
            "{}. Give one of them a weight, or add one.",
            plan.alarm.as_deref().unwrap_or_default()
        ),
        extra: json!({"code": "no-usable-launch-config"}),
        launch_config_id: None,
    };
    report_pool_error(change, &pool.id, &pool.definition.provider_id, problem)
}
