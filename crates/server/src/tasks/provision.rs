//! Gives pools the workers that they need: those that ring at once, all of them now and then.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use domain::demand::Demand;
use domain::id::PoolId;
use domain::pool::Pool;
use futures_util::StreamExt;
use futures_util::stream;
use serde_json::Value;
use store::StoreError;

use super::driver::{Task, summary};
use crate::app::App;
use crate::fleet::{self, Facts};

/// Pools that are read at a time.
const PAGE: u32 = 500;
/// Task queues that are read at a time.
const QUEUES: u32 = 10_000;
/// Pools that are decided on at the same time.
const AT_ONCE: usize = 16;

/// Looks at the pools that rang.
pub struct Provision(pub Arc<App>);

/// Looks at all pools: what rings too early, in another process or not at all is only late.
pub struct Rounds(pub Arc<App>);

#[derive(Default)]
struct Done {
    pools: u64,
    launches: u64,
    advised: u64,
}

#[async_trait]
impl Task for Provision {
    const NAME: &'static str = "provision";

    async fn activate(&mut self) -> Result<Value, String> {
        let app = &self.0;
        let ids = app.wake.take_pools();
        let mut pools = Vec::new();
        for id in ids {
            pools.push(pool(app, id));
        }
        let mut done = Done::default();
        let mut failed = None;
        let mut results = stream::iter(pools).buffer_unordered(AT_ONCE);
        while let Some(result) = results.next().await {
            match result {
                Ok(one) => done.add(&one),
                Err(problem) => failed = Some(problem),
            }
        }
        finish(&done, failed)
    }
}

#[async_trait]
impl Task for Rounds {
    const NAME: &'static str = "provision_round";

    async fn activate(&mut self) -> Result<Value, String> {
        round(&self.0).await
    }
}

async fn pool(app: &Arc<App>, id: PoolId) -> Result<Done, String> {
    if app.demands.is_outside() && !is_ours(app, &id).await? {
        return Ok(Done::default());
    }
    let demand = app.demands.of(app, std::slice::from_ref(&id)).await?;
    let now = app.clock.now();
    let embedded = !app.demands.is_outside();
    let read = app.store.read("provision_facts", move |tx| {
        let Some(pool) = store::pool_get(tx, &id)? else {
            return Ok(Vec::new());
        };
        let mut demand = demand.clone();
        if embedded {
            demand.insert(id.clone(), store::task_demand_of(tx, &id, now)?);
        }
        // What is not known is not zero.
        if !demand.contains_key(&id) {
            return Ok(Vec::new());
        }
        fleet::page_of_facts(tx, vec![pool], &demand, now)
    });
    let read: Result<Vec<Facts>, StoreError> = read.await;
    let facts = read.map_err(|problem| problem.to_string())?;
    decide(app, facts).await
}

/// An outside queue rings for other people's pools, too.
async fn is_ours(app: &Arc<App>, id: &PoolId) -> Result<bool, String> {
    let id = id.clone();
    let known = app
        .store
        .read("pool_get", move |tx| store::pool_get(tx, &id));
    let known: Result<Option<Pool>, StoreError> = known.await;
    known
        .map(|pool| pool.is_some())
        .map_err(|problem| problem.to_string())
}

/// All pools, page by page; one that fails holds up no other.
async fn round(app: &Arc<App>) -> Result<Value, String> {
    let mut done = Done::default();
    let mut failed = None;
    let waiting = waiting(app).await?;
    let mut after: Option<PoolId> = None;
    loop {
        let start = after.take();
        let read = app.store.scan("provision_pools", move |tx| {
            store::pool_list(tx, start.as_ref(), PAGE)
        });
        let pools: Result<Vec<Pool>, StoreError> = read.await;
        let pools = pools.map_err(|problem| problem.to_string())?;
        let Some(last) = pools.last().map(|pool| pool.id.clone()) else {
            break;
        };
        let full = pools.len() == PAGE as usize;
        match page(app, pools, waiting.as_ref()).await {
            Ok(one) => done.add(&one),
            Err(problem) => failed = Some(problem),
        }
        if !full {
            break;
        }
        after = Some(last);
    }
    finish(&done, failed)
}

/// What waits in all queues of ours; `None` if the queue is another's, which is asked for each page.
async fn waiting(app: &Arc<App>) -> Result<Option<BTreeMap<PoolId, Demand>>, String> {
    if app.demands.is_outside() {
        return Ok(None);
    }
    let mut all = BTreeMap::new();
    loop {
        let now = app.clock.now();
        let after = all
            .last_key_value()
            .map(|(id, _): (&PoolId, &Demand)| id.clone());
        let read = app.store.scan("provision_demand", move |tx| {
            store::task_demand_all(tx, after.as_ref(), QUEUES, now)
        });
        let some: Result<Vec<_>, StoreError> = read.await;
        let some = some.map_err(|problem| problem.to_string())?;
        let full = some.len() == QUEUES as usize;
        all.extend(some);
        if !full {
            return Ok(Some(all));
        }
    }
}

async fn page(
    app: &Arc<App>,
    mut pools: Vec<Pool>,
    waiting: Option<&BTreeMap<PoolId, Demand>>,
) -> Result<Done, String> {
    let mut demand = BTreeMap::new();
    match waiting {
        Some(waiting) => {
            for pool in &pools {
                demand.extend(
                    waiting
                        .get_key_value(&pool.id)
                        .map(|(id, waits)| (id.clone(), *waits)),
                );
            }
        }
        None => {
            let ids: Vec<PoolId> = pools.iter().map(|pool| pool.id.clone()).collect();
            demand = app.demands.of(app, &ids).await?;
            // What is not known is not zero: of these pools nothing is decided now.
            pools.retain(|pool| demand.contains_key(&pool.id));
        }
    }
    let now = app.clock.now();
    let read = app.store.scan("provision_facts", move |tx| {
        fleet::page_of_facts(tx, pools, &demand, now)
    });
    let read: Result<Vec<Facts>, StoreError> = read.await;
    let facts = read.map_err(|problem| problem.to_string())?;
    decide(app, facts).await
}

async fn decide(app: &Arc<App>, facts: Vec<Facts>) -> Result<Done, String> {
    let mut decisions = Vec::new();
    for facts in facts {
        decisions.push(async move {
            let decided = fleet::decide(app, &facts).await;
            (facts.pool.id, decided)
        });
    }
    let mut decisions = stream::iter(decisions).buffer_unordered(AT_ONCE);
    let mut done = Done::default();
    while let Some((id, decided)) = decisions.next().await {
        match decided {
            Ok(Some(decided)) => {
                done.pools += 1;
                done.launches += decided.launches.len() as u64;
                done.advised += decided.plan.advice.len() as u64;
                tell(&decided);
                fleet::launch(app, &decided.pool, decided.launches);
            }
            Ok(None) => {}
            Err(problem) => {
                tracing::error!(pool.id = %id, "cannot decide about {id}: {problem}");
            }
        }
    }
    Ok(done)
}

fn tell(decided: &fleet::Decided) {
    let id = &decided.pool.id;
    let machines: u32 = decided
        .launches
        .iter()
        .map(|(launch, _)| launch.machines)
        .sum();
    if let Some(alarm) = &decided.plan.alarm {
        tracing::warn!(pool.id = %id, "{id}: {alarm}");
    }
    tracing::info!(pool.id = %id, plan.number = decided.number, plan.machines = machines,
        plan.advised = decided.plan.advice.len(),
        "plan {} for {id}: {}", decided.number, decided.plan.reasons.join("; "));
}

fn finish(done: &Done, failed: Option<String>) -> Result<Value, String> {
    match failed {
        Some(problem) => Err(problem),
        None => Ok(summary(&[
            ("pools", done.pools),
            ("launches", done.launches),
            ("advised", done.advised),
        ])),
    }
}

impl Done {
    fn add(&mut self, other: &Self) {
        self.pools += other.pools;
        self.launches += other.launches;
        self.advised += other.advised;
    }
}
