//! Decides periodically on all pools, page by page, whether they were woken or not.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

use async_trait::async_trait;
use domain::facts::{Facts, strategy_service};
use domain::id::PoolId;
use domain::pool::{MAX_LAUNCH_CONFIGS, Pool};
use engine::Engine;
use engine::demand::{DemandSource, Demands};
use engine::fleet;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use store::StoreError;

use super::super::driver::{ActivationResult, BackgroundTask};
use super::decisions::{AT_ONCE, Cause, Decision, Done, ReadError, decide};

/// Limits on how much of the fleet is read at a time.
#[derive(Clone, Copy, Debug)]
pub struct PageLimits {
    pub pools: u32,
    /// Of all these pools together. A pool with more is read alone.
    pub launch_configs: u64,
    /// Number of task queues whose demand is read at a time.
    pub queues: u32,
}

impl PageLimits {
    /// Supply is counted by launch config and state, and a reply of the store has at most
    /// [`store::MAX_ROWS`] rows.
    const USUAL: Self = Self {
        pools: 500,
        launch_configs: 10_000,
        queues: 10_000,
    };
}

const _: () = assert!(PageLimits::USUAL.launch_configs >= MAX_LAUNCH_CONFIGS as u64);
/// Requested, running and stopping, each with or without advice to stop.
const _: () = assert!(PageLimits::USUAL.launch_configs * 6 < store::MAX_ROWS as u64);

/// Decides on all pools: a pool that missed its wake-up is decided on here, only later.
pub struct ProvisionRounds(pub Arc<Engine>);

#[async_trait]
impl BackgroundTask for ProvisionRounds {
    fn name(&self) -> String {
        "provision_round".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        self.with_pages(PageLimits::USUAL).await
    }
}

impl ProvisionRounds {
    /// A round with pages of this size. Failed and slow pools do not delay others.
    pub async fn with_pages(&self, limits: PageLimits) -> ActivationResult {
        let mut round = Round {
            engine: &self.0,
            decisions: FuturesUnordered::new(),
            done: Done::default(),
        };
        let read = round.read_pages(limits).await;
        // A plan that is written has launches to start, whatever could not be read.
        while let Some(decision) = round.decisions.next().await {
            round.done.add(&self.0, decision);
        }
        match read {
            Ok(()) => round.done.summary(),
            Err(error) => Err(error.into()),
        }
    }
}

/// A round that is under way.
struct Round<'a> {
    engine: &'a Arc<Engine>,
    decisions: FuturesUnordered<BoxFuture<'a, Decision>>,
    done: Done,
}

impl Round<'_> {
    /// Reads all pools, and decides on them. Returns the last error, and decides on the others.
    async fn read_pages(&mut self, limits: PageLimits) -> Result<(), String> {
        let engine = self.engine;
        let waiting = DemandSource::read_own(engine, "provision_demand", limits.queues).await;
        let waiting = waiting.map_err(|error| error.to_string())?;
        let mut result = Ok(());
        let mut after: Option<PoolId> = None;
        loop {
            let pages = self.beside(pages(engine, after.take(), limits)).await;
            let pages = pages.map_err(|error| error.to_string())?;
            let Some(last) = pages.last().and_then(|page| page.last()) else {
                return result;
            };
            let is_full = pages.iter().map(Vec::len).sum::<usize>() >= limits.pools as usize;
            after = Some(last.id.clone());
            for page in pages {
                match self.beside(demand(engine, page, waiting.as_ref())).await {
                    Ok((pools, demand)) => self.decide_on(pools, &demand).await,
                    Err(failed) => result = Err(failed),
                }
            }
            if !is_full {
                return result;
            }
        }
    }

    async fn decide_on(&mut self, pools: Vec<Pool>, demand: &Demands) {
        let engine = self.engine;
        let (found, failed) = self.beside(facts(engine, pools, demand)).await;
        for (pool_id, error) in failed {
            self.done.failed(pool_id, error);
        }
        for facts in found {
            if strategy_service(&facts.pool).is_some() {
                // A round does not wait for services.
                engine.wakeups.wake_pool(facts.id());
                continue;
            }
            while self.decisions.len() >= AT_ONCE
                && let Some(decision) = self.decisions.next().await
            {
                self.done.add(engine, decision);
            }
            self.decisions
                .push(decide(engine, facts, Cause::Round).boxed());
        }
    }

    /// Carries on with decisions until this has ended. A decision may hold the lock of a budget or
    /// a provider, which others wait for: it must never wait for a read.
    async fn beside<T>(&mut self, reading: impl Future<Output = T>) -> T {
        let mut reading = pin!(reading);
        loop {
            tokio::select! {
                read = &mut reading => return read,
                Some(decision) = self.decisions.next() => self.done.add(self.engine, decision),
            }
        }
    }
}

/// The next pools, in pages that are read together.
async fn pages(
    engine: &Arc<Engine>,
    after: Option<PoolId>,
    limits: PageLimits,
) -> Result<Vec<Vec<Pool>>, StoreError> {
    let read = engine.store.survey("provision_pools", move |tx| {
        let pools = store::pools::list(tx, after.as_ref(), limits.pools)?;
        let (Some(first), Some(last)) = (pools.first(), pools.last()) else {
            return Ok(Vec::new());
        };
        let counts = store::launch_configs::count_between(tx, &first.id, &last.id)?;
        let counts: BTreeMap<PoolId, u64> = counts.into_iter().collect();
        Ok::<_, StoreError>(cut(pools, &counts, limits.launch_configs))
    });
    read.await
}

/// Pages with at most this many launch configs each, or of one pool.
fn cut(pools: Vec<Pool>, counts: &BTreeMap<PoolId, u64>, most: u64) -> Vec<Vec<Pool>> {
    let mut pages: Vec<Vec<Pool>> = Vec::new();
    let mut room = 0;
    for pool in pools {
        let count = counts.get(&pool.id).copied().unwrap_or(0);
        match pages.last_mut() {
            Some(page) if count <= room => page.push(pool),
            Some(_) | None => {
                pages.push(vec![pool]);
                room = most;
            }
        }
        room = room.saturating_sub(count);
    }
    pages
}

/// The pools of a page whose demand is known, with the demand.
async fn demand(
    engine: &Arc<Engine>,
    mut pools: Vec<Pool>,
    waiting: Option<&Demands>,
) -> Result<(Vec<Pool>, Demands), String> {
    pools.retain(|pool| fleet::is_planned(engine, pool));
    if let Some(waiting) = waiting {
        let known = pools
            .iter()
            .filter_map(|pool| waiting.get_key_value(&pool.id));
        let demand = known.map(|(id, demand)| (id.clone(), *demand)).collect();
        return Ok((pools, demand));
    }
    let ids: Vec<PoolId> = pools.iter().map(|pool| pool.id.clone()).collect();
    let demand = engine.demand_source.read(&ids).await?;
    // Unknown demand is not zero: these pools are not decided on now.
    pools.retain(|pool| demand.contains_key(&pool.id));
    Ok((pools, demand))
}

/// The facts of the pools that may need a decision. If the row of one of them is corrupt, each is
/// read alone. Also the errors of pools that could not be read.
async fn facts(
    engine: &Arc<Engine>,
    pools: Vec<Pool>,
    demand: &Demands,
) -> (Vec<Facts>, Vec<(PoolId, String)>) {
    let (mut found, mut failed) = (Vec::new(), Vec::new());
    let mut pages = vec![pools];
    while let Some(page) = pages.pop() {
        match read(engine, page.clone(), demand.clone()).await {
            Ok(facts) => found.extend(facts),
            Err(ReadError::Corrupt(_)) if page.len() > 1 => {
                pages.extend(page.into_iter().map(|pool| vec![pool]));
            }
            Err(problem) => {
                let problem = problem.to_string();
                failed.extend(page.into_iter().map(|pool| (pool.id, problem.clone())));
            }
        }
    }
    (found, failed)
}

async fn read(
    engine: &Arc<Engine>,
    pools: Vec<Pool>,
    demand: Demands,
) -> Result<Vec<Facts>, ReadError> {
    let now = engine.clock.now();
    let horizon = engine.horizon(now);
    let defaults = engine.strategies;
    let read = engine.store.survey("provision_round", move |tx| {
        let mut facts = fleet::read_supply(tx, pools, &demand, &horizon, defaults)?;
        let quiet = fleet::take_quiet(&mut facts);
        Ok::<_, StoreError>((facts, quiet))
    });
    let (facts, quiet) = read.await?;
    fleet::note_quiet_waits(engine, quiet, now).await?;
    engine.availability.note_answer(now);
    Ok(facts)
}

#[cfg(test)]
mod tests {
    use domain::pool::PoolDefinition;
    use domain::time::Timestamp;

    use super::*;

    fn pool(number: usize) -> Pool {
        let definition = PoolDefinition {
            provider_id: "one".parse().unwrap(),
            further_provider_ids: Vec::new(),
            description: String::new(),
            config: serde_json::Map::new(),
            owner: String::new(),
            email_on_error: false,
        };
        let id = format!("p/n{number:04}").parse().unwrap();
        Pool::new(id, definition, Timestamp::from_millis(0))
    }

    /// The number of pools on each page, given their numbers of launch configs.
    fn sizes(counts: &[u64], most: u64) -> Vec<usize> {
        let pools: Vec<Pool> = (0..counts.len()).map(pool).collect();
        let ids = pools.iter().map(|pool| pool.id.clone());
        let counts = ids.zip(counts.iter().copied()).collect();
        let pages = cut(pools, &counts, most);
        pages.iter().map(Vec::len).collect()
    }

    #[test]
    fn a_page_has_a_bounded_number_of_launch_configs_or_one_pool() {
        assert_eq!(sizes(&[], 10), Vec::<usize>::new());
        assert_eq!(sizes(&[0; 30], 10), [30]);
        assert_eq!(sizes(&[1; 9], 10), [9]);
        assert_eq!(sizes(&[1; 10], 10), [10]);
        assert_eq!(sizes(&[1; 11], 10), [10, 1]);
        assert_eq!(sizes(&[1; 100], 10), [10; 10]);
        assert_eq!(sizes(&[100, 1, 1, 100, 10, 0, 0], 10), [1, 2, 1, 3]);
    }
}
