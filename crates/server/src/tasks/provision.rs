//! Gives pools the workers that they need, as soon as they ring.
//!
//! What rings within a moment is read together. Each pool is then decided on alone, beside the
//! others, and the task goes on to look at what rings meanwhile: a pool that takes its time delays
//! no other. One pool is never decided on twice at the same time, nor too soon after it was
//! ([`Paces`]).

mod decisions;
mod paces;
mod rounds;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::demand::Demand;
use domain::facts::{Facts, most_pending};
use domain::id::PoolId;
use domain::pool::Pool;
use domain::time::Timestamp;
use engine::Engine;
use engine::fleet;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use serde_json::Value;
use store::{StoreError, Tx};
use tokio::time::Instant;

use super::driver::Task;
use decisions::{AT_ONCE, Decision, Done, NotRead, decide};
use paces::Paces;
pub use rounds::{PageLimits, Rounds};

/// Pools that rang and are read together.
const PAGE: usize = 500;
/// One activation ends after this time at the latest; the next one goes on with what is under way.
const LONGEST_ACTIVATION: Duration = Duration::from_secs(30);

/// Looks at the pools that rang.
pub struct Provision {
    engine: Arc<Engine>,
    /// What is under way.
    steps: FuturesUnordered<BoxFuture<'static, Step>>,
    n_reading: usize,
    n_deciding: usize,
    /// The pools that are being looked at.
    busy: BTreeSet<PoolId>,
    /// Pools of which the facts were read, and that need a decision.
    waiting: VecDeque<Facts>,
    /// Pools that were read together with one of which a row cannot be read: each is read alone.
    alone: Vec<PoolId>,
    paces: Paces,
}

enum Step {
    Read(Vec<PoolId>, Result<Vec<Facts>, NotRead>),
    Decided(Box<Decision>),
}

impl Provision {
    pub fn new(engine: Arc<Engine>) -> Self {
        Self {
            engine,
            steps: FuturesUnordered::new(),
            n_reading: 0,
            n_deciding: 0,
            busy: BTreeSet::new(),
            waiting: VecDeque::new(),
            alone: Vec::new(),
            paces: Paces::default(),
        }
    }

    /// Begins with as much as may be under way at the same time.
    fn begin(&mut self) {
        while self.n_deciding < AT_ONCE
            && let Some(facts) = self.waiting.pop_front()
        {
            self.n_deciding += 1;
            let engine = Arc::clone(&self.engine);
            let step = async move { Step::Decided(Box::new(decide(&engine, facts).await)) };
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
                let panicked = |_| Err("looking at pools panicked".to_owned().into());
                Step::Read(ids, reading.await.unwrap_or_else(panicked))
            };
            self.steps.push(step.boxed());
        }
    }

    /// Whether further pools may be read.
    fn has_room(&self) -> bool {
        self.n_reading < AT_ONCE && self.waiting.len() < PAGE
    }

    /// The next pools that are read together. An outside queue is asked about each alone: for one
    /// it may take its time.
    fn due(&mut self) -> Vec<PoolId> {
        let limit = match self.engine.demands.is_outside() {
            true => 1,
            false => PAGE,
        };
        let now = self.engine.clock.now();
        loop {
            let mut due = self.engine.wake.due_pools(now, limit, &self.busy);
            let n_rang = due.len();
            due.retain(|id| match self.paces.not_before(id, now) {
                Some(at) => {
                    self.engine.wake.hold(id, at);
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
                    self.paces.looked(id, now);
                }
                self.waiting.extend(facts);
            }
            Step::Read(ids, Err(NotRead::Corrupt(_))) if ids.len() > 1 => {
                self.n_reading -= 1;
                self.alone.extend(ids);
            }
            Step::Read(ids, Err(problem)) => {
                self.n_reading -= 1;
                let problem = problem.to_string();
                for id in ids {
                    self.busy.remove(&id);
                    let again = self.paces.failed(&id, now);
                    self.engine.wake.hold(&id, again);
                    done.failed(id, problem.clone());
                }
            }
            Step::Decided(decision) => {
                self.n_deciding -= 1;
                let id = &decision.pool_id;
                self.busy.remove(id);
                match &decision.result {
                    Ok(Some(decided)) if !decided.launches.is_empty() => {
                        self.paces.launched(id, now);
                    }
                    Ok(_) => self.paces.looked(id, now),
                    Err(_) => {
                        let again = self.paces.failed(id, now);
                        self.engine.wake.hold(id, again);
                    }
                }
                done.add(&self.engine, *decision);
            }
        }
    }
}

#[async_trait]
impl Task for Provision {
    const NAME: &'static str = "provision";

    async fn activate(&mut self) -> Result<Value, String> {
        let mut done = Done::default();
        let bell = Arc::clone(&self.engine.wake.provision);
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
            let wait = match self.has_room() {
                true => self.idle_for().map_or(rest, |due| due.min(rest)),
                false => rest,
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
            .wake
            .next_pool_ms(self.engine.clock.now(), &self.busy)?;
        Some(Duration::from_millis(u64::try_from(next).unwrap_or(0)))
    }
}

/// The facts about those of these pools for which there may be something to do.
async fn read(engine: &Arc<Engine>, ids: &[PoolId]) -> Result<Vec<Facts>, NotRead> {
    let mut demand = BTreeMap::new();
    let is_outside = engine.demands.is_outside();
    if is_outside {
        let ours = known(engine, ids).await?;
        demand = engine.demands.of(&ours).await?;
    }
    let (inner, ids, now) = (Arc::clone(engine), ids.to_vec(), engine.clock.now());
    let horizon = engine.horizon(now);
    let is_short = ids.len() == 1;
    let read = move |tx: &mut Tx<'_>| {
        let mut facts = Vec::new();
        for mut run in runs(tx, &ids)? {
            // What is not known is not zero: of such pools nothing is decided now.
            run.retain(|pool| {
                let is_known = !is_outside || demand.contains_key(&pool.id);
                is_known && fleet::is_planned(&inner, pool)
            });
            let demand = match is_outside {
                true => demand.clone(),
                false => embedded_demand(tx, &run, now)?,
            };
            facts.extend(fleet::page_of_supply(tx, run, &demand, &horizon)?);
        }
        facts.retain(|facts| !facts.is_content());
        Ok::<_, StoreError>(facts)
    };
    let facts = match is_short {
        true => engine.store.read("provision_facts", read).await,
        false => engine.store.scan("provision_facts", read).await,
    }?;
    engine.listening.note(now);
    Ok(facts)
}

/// An outside queue rings for other people's pools, too.
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

/// The pools of these ids, which are in order, in runs that are read together. Pools between them
/// are read along, so that must be few: else each is a run of its own.
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
) -> Result<BTreeMap<PoolId, Demand>, StoreError> {
    let demand = pools.iter().map(|pool| {
        let most = most_pending(pool);
        let demand = store::demand::up_to(tx, &pool.id, now, most)?;
        Ok((pool.id.clone(), demand))
    });
    demand.collect()
}
