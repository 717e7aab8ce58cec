//! Plans and launches workers for pools, as soon as they are woken.
//!
//! Pools that are woken within a short time are read together. Each pool is then decided on alone,
//! beside the others, while the task goes on to read newly woken pools. So a slow pool delays no
//! other. A pool is never decided on twice at the same time, nor too soon after the last decision
//! (`PoolThrottle`).

mod decisions;
mod lanes;
mod rounds;
mod throttle;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::demand::Demand;
use domain::facts::{Facts, most_pending};
use domain::id::PoolId;
use domain::plan::StrategyDefaults;
use domain::pool::Pool;
use domain::time::Timestamp;
use engine::Engine;
use engine::fleet;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use store::{StoreError, Tx};
use tokio::time::Instant;

use super::driver::{ActivationResult, BackgroundTask};
use decisions::{AT_ONCE, Cause, Decision, Done, ReadError, decide};
use lanes::{Lanes, Place, is_stale};
pub use rounds::{PageLimits, ProvisionRounds};
use throttle::PoolThrottle;

/// Maximum number of woken pools that are read together.
const PAGE: usize = 500;
/// Maximum duration of an activation; the next one continues with running steps.
const LONGEST_ACTIVATION: Duration = Duration::from_secs(30);

/// Decides on woken pools.
pub struct Provision {
    engine: Arc<Engine>,
    /// The running steps.
    steps: FuturesUnordered<BoxFuture<'static, Step>>,
    n_reading: usize,
    /// The pools that are being read or decided on.
    busy: BTreeSet<PoolId>,
    /// The pools that wait for a decision or are decided on.
    lanes: Lanes,
    /// Pools that were read together with a corrupt row: each is read alone.
    alone: Vec<PoolId>,
    throttle: PoolThrottle,
}

enum Step {
    Read(Vec<PoolId>, Result<Vec<Facts>, ReadError>),
    Decided(Place, Box<Decision>),
}

impl Provision {
    pub fn new(engine: Arc<Engine>) -> Self {
        Self {
            engine,
            steps: FuturesUnordered::new(),
            n_reading: 0,
            busy: BTreeSet::new(),
            lanes: Lanes::default(),
            alone: Vec::new(),
            throttle: PoolThrottle::default(),
        }
    }

    /// Starts as many steps as may run at the same time.
    fn begin(&mut self) {
        while let Some((place, facts)) = self.lanes.take() {
            let engine = Arc::clone(&self.engine);
            let step = async move {
                let decision = decide_freshly(&engine, facts).await;
                Step::Decided(place, Box::new(decision))
            };
            self.steps.push(step.boxed());
        }
        while self.has_room() {
            let ids = match self.alone.pop() {
                Some(id) => vec![id],
                None => self.due(),
            };
            if ids.is_empty() {
                return;
            }
            self.busy.extend(ids.iter().cloned());
            self.n_reading += 1;
            let (engine, asked) = (Arc::clone(&self.engine), ids.clone());
            let reading =
                AssertUnwindSafe(async move { read(&engine, &asked).await }).catch_unwind();
            let step = async move {
                let panicked = |_| Err("reading pools panicked".to_owned().into());
                Step::Read(ids, reading.await.unwrap_or_else(panicked))
            };
            self.steps.push(step.boxed());
        }
    }

    /// Whether further pools may be read.
    fn has_room(&self) -> bool {
        self.n_reading < AT_ONCE && self.lanes.n_waiting() < PAGE
    }

    /// The next pools that are read together. An outside queue is asked about one pool at a time,
    /// because its answer may be slow.
    fn due(&mut self) -> Vec<PoolId> {
        let limit = if self.engine.demand_source.is_outside() {
            1
        } else {
            PAGE
        };
        let now = self.engine.clock.now();
        loop {
            let mut due = self.engine.wakeups.take_due_pools(now, limit, &self.busy);
            let n_rang = due.len();
            due.retain(|id| match self.throttle.not_before(id, now) {
                Some(at) => {
                    self.engine.wakeups.hold_pool(id, at);
                    false
                }
                None => true,
            });
            if !due.is_empty() || n_rang == 0 {
                return due;
            }
        }
    }

    fn take(&mut self, step: Step, done: &mut Done) {
        let now = self.engine.clock.now();
        match step {
            Step::Read(ids, Ok(facts)) => {
                self.n_reading -= 1;
                let to_decide: BTreeSet<&PoolId> =
                    facts.iter().map(|facts| &facts.pool.id).collect();
                for id in ids.iter().filter(|id| !to_decide.contains(id)) {
                    self.busy.remove(id);
                    self.throttle.looked(id, now);
                }
                for facts in facts {
                    self.lanes.add(facts);
                }
            }
            Step::Read(ids, Err(ReadError::Corrupt(_))) if ids.len() > 1 => {
                self.n_reading -= 1;
                self.alone.extend(ids);
            }
            Step::Read(ids, Err(problem)) => {
                self.n_reading -= 1;
                let problem = problem.to_string();
                for id in ids {
                    self.busy.remove(&id);
                    let again = self.throttle.failed(&id, now);
                    self.engine.wakeups.hold_pool(&id, again);
                    done.failed(id, problem.clone());
                }
            }
            Step::Decided(place, decision) => {
                self.lanes.leave(&place);
                let id = &decision.pool_id;
                self.busy.remove(id);
                match &decision.result {
                    Ok(Some(decided)) if !decided.launches.is_empty() => {
                        self.throttle.launched(id, now);
                    }
                    Ok(_) if place.asks_service() => self.throttle.asked(id, now),
                    Ok(_) => self.throttle.looked(id, now),
                    Err(_) => {
                        let again = self.throttle.failed(id, now);
                        self.engine.wakeups.hold_pool(id, again);
                    }
                }
                done.add(&self.engine, *decision);
            }
        }
    }
}

#[async_trait]
impl BackgroundTask for Provision {
    fn name(&self) -> String {
        "provision".to_owned()
    }

    /// A pool that failed waits (`PoolThrottle`), and delays no other.
    fn pauses_parts(&self) -> bool {
        true
    }

    async fn activate(&mut self) -> ActivationResult {
        let mut done = Done::default();
        let bell = Arc::clone(&self.engine.wakeups.provision);
        let end = Instant::now() + LONGEST_ACTIVATION;
        loop {
            self.begin();
            if self.steps.is_empty() {
                break;
            }
            if Instant::now() >= end {
                bell.notify_one();
                break;
            }
            let rest = end.saturating_duration_since(Instant::now());
            let wait = if self.has_room() {
                self.idle_for().map_or(rest, |due| due.min(rest))
            } else {
                rest
            };
            tokio::select! {
                Some(step) = self.steps.next() => self.take(step, &mut done),
                _ = tokio::time::timeout(wait, bell.notified()) => {}
            }
        }
        done.summary()
    }

    fn idle_for(&self) -> Option<Duration> {
        let next = self
            .engine
            .wakeups
            .next_pool_ms(self.engine.clock.now(), &self.busy)?;
        Some(Duration::from_millis(u64::try_from(next).unwrap_or(0)))
    }
}

/// Decides on a pool. Facts that waited for long are read again.
async fn decide_freshly(engine: &Arc<Engine>, facts: Facts) -> Decision {
    if !is_stale(&facts, engine.clock.now()) {
        return decide(engine, facts, Cause::WakeUp).await;
    }
    let pool_id = facts.pool.id.clone();
    let result = match read(engine, std::slice::from_ref(&pool_id)).await {
        Ok(mut facts) => match facts.pop() {
            Some(facts) => return decide(engine, facts, Cause::WakeUp).await,
            None => Ok(None),
        },
        Err(problem) => Err(problem.to_string()),
    };
    Decision { pool_id, result }
}

/// The facts of those pools that may need a decision.
async fn read(engine: &Arc<Engine>, ids: &[PoolId]) -> Result<Vec<Facts>, ReadError> {
    let mut demand = BTreeMap::new();
    let is_outside = engine.demand_source.is_outside();
    if is_outside {
        let ours = known(engine, ids).await?;
        demand = engine.demand_source.read(&ours).await?;
    }
    let (inner, ids, now) = (Arc::clone(engine), ids.to_vec(), engine.clock.now());
    let horizon = engine.horizon(now);
    let defaults = engine.strategies;
    let is_short = ids.len() == 1;
    let read = move |tx: &mut Tx<'_>| {
        let mut facts = Vec::new();
        for mut run in runs(tx, &ids)? {
            // Unknown demand is not zero: such pools are not decided on now.
            run.retain(|pool| {
                let is_known = !is_outside || demand.contains_key(&pool.id);
                is_known && fleet::is_planned(&inner, pool)
            });
            let demand = if is_outside {
                demand.clone()
            } else {
                tx.ask(|tx| {
                    embedded_demand(tx, &run, now, defaults)?;
                    let unknown = BTreeMap::new();
                    fleet::read_supply(tx, run.clone(), &unknown, &horizon, defaults)
                });
                embedded_demand(tx, &run, now, defaults)?
            };
            facts.extend(fleet::read_supply(tx, run, &demand, &horizon, defaults)?);
        }
        let quiet = fleet::take_quiet(&mut facts);
        Ok::<_, StoreError>((facts, quiet))
    };
    let (facts, quiet) = if is_short {
        engine.store.read("provision_facts", read).await
    } else {
        engine.store.scan("provision_page", read).await
    }?;
    fleet::note_quiet_waits(engine, quiet, now).await?;
    engine.availability.note_answer(now);
    Ok(facts)
}

/// An outside queue also wakes pools that are not ours.
async fn known(engine: &Arc<Engine>, ids: &[PoolId]) -> Result<Vec<PoolId>, StoreError> {
    let ids = ids.to_vec();
    let known = engine.store.read("provision_known", move |tx| {
        let mut known = Vec::new();
        for id in &ids {
            known.extend(store::pools::get(tx, id)?.map(|pool| pool.id));
        }
        Ok(known)
    });
    known.await
}

/// The pools of these ids, which are sorted, in ranges that are read together. Reading a range
/// includes the pools between its ids; if there are many, each pool is read alone.
fn runs(tx: &mut Tx<'_>, ids: &[PoolId]) -> Result<Vec<Vec<Pool>>, StoreError> {
    let (Some(first), Some(last)) = (ids.first(), ids.last()) else {
        return Ok(Vec::new());
    };
    let first = store::pools::get(tx, first)?;
    if ids.len() == 1 {
        return Ok(first.into_iter().map(|pool| vec![pool]).collect());
    }
    let limit = u32::try_from(2 * ids.len()).unwrap_or(u32::MAX);
    let further = store::pools::list(tx, ids.first(), limit)?;
    let is_dense =
        further.len() < limit as usize || further.last().is_some_and(|pool| pool.id >= *last);
    if is_dense {
        let rang = |pool: &Pool| ids.binary_search(&pool.id).is_ok();
        return Ok(vec![
            first.into_iter().chain(further).filter(rang).collect(),
        ]);
    }
    let mut runs: Vec<Vec<Pool>> = first.into_iter().map(|pool| vec![pool]).collect();
    for id in &ids[1..] {
        runs.extend(store::pools::get(tx, id)?.map(|pool| vec![pool]));
    }
    Ok(runs)
}

fn embedded_demand(
    tx: &mut Tx<'_>,
    pools: &[Pool],
    now: Timestamp,
    defaults: StrategyDefaults,
) -> Result<BTreeMap<PoolId, Demand>, StoreError> {
    let demand = pools.iter().map(|pool| {
        let most = most_pending(pool, defaults).saturating_add(1);
        let demand = store::demand::up_to(tx, &pool.id, now, most)?;
        Ok((pool.id.clone(), demand))
    });
    demand.collect()
}
