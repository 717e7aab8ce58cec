//! The state of the database at one time.

use std::collections::BTreeMap;

use domain::demand::Demand;
use domain::id::{LaunchConfigId, LaunchToken, PoolId, WorkerKey};
use domain::launch::Launch;
use domain::launch_config::LaunchConfig;
use domain::pool::Pool;
use domain::queue_worker::QueueWorker;
use domain::time::Timestamp;
use domain::worker::Worker;
use store::listed_workers::WorkerFilter;
use store::outbox::OutboxRow;
use store::{Store, StoreError, Tx};

use crate::people::POOLS;

/// More than a run ever makes.
const MANY: u32 = 10_000;

#[derive(Clone)]
pub(crate) struct Picture {
    pub(crate) at: Timestamp,
    pub(crate) pools: BTreeMap<PoolId, Pool>,
    pub(crate) configs: Vec<LaunchConfig>,
    pub(crate) workers: BTreeMap<WorkerKey, Worker>,
    pub(crate) launches: BTreeMap<LaunchToken, Launch>,
    pub(crate) demand: BTreeMap<PoolId, Demand>,
    pub(crate) seen: BTreeMap<WorkerKey, QueueWorker>,
    pub(crate) n_waiting_events: u64,
}

impl Picture {
    pub(crate) async fn take(observer: &Store, now: Timestamp) -> Self {
        let read = observer.read("picture", move |tx| take(tx, now));
        let read: Result<Self, StoreError> = read.await;
        read.unwrap()
    }

    pub(crate) fn has_active(&self, pool: &PoolId, id: &LaunchConfigId) -> bool {
        let mut configs = self.configs.iter();
        configs.any(|config| config.pool_id == *pool && config.id == *id && !config.archived)
    }

    pub(crate) fn workers_of(&self, pool: &PoolId) -> impl Iterator<Item = &Worker> {
        self.workers
            .values()
            .filter(move |worker| worker.key.pool_id == *pool)
    }
}

fn take(tx: &mut Tx<'_>, now: Timestamp) -> Result<Picture, StoreError> {
    let mut picture = Picture {
        at: now,
        pools: BTreeMap::new(),
        configs: Vec::new(),
        workers: BTreeMap::new(),
        launches: BTreeMap::new(),
        demand: BTreeMap::new(),
        seen: BTreeMap::new(),
        n_waiting_events: store::outbox::depth(tx)?,
    };
    for name in POOLS {
        let id: PoolId = name.parse().unwrap();
        if let Some(pool) = store::pools::get(tx, &id)? {
            picture.pools.insert(id.clone(), pool);
        }
        picture.configs.extend(store::launch_configs::all(tx, &id)?);
        let all = WorkerFilter::default();
        for listed in store::listed_workers::list(tx, &id, &all, None, MANY)? {
            let (pool_id, group, id) = (id.clone(), listed.group, listed.id);
            let key = WorkerKey { pool_id, group, id };
            if let Some(worker) = store::workers::get(tx, &key)? {
                picture.workers.insert(key, worker);
            }
        }
        for launch in store::launches::list(tx, &id, MANY)? {
            picture.launches.insert(launch.token.clone(), launch);
        }
        for seen in store::queue_workers::list(tx, &id, None, now, None, MANY)? {
            picture.seen.insert(seen.key.clone(), seen);
        }
        let demand = store::demand::of(tx, &id, now)?;
        picture.demand.insert(id, demand);
    }
    Ok(picture)
}

/// The events that were published after this position.
pub(crate) async fn events_after(observer: &Store, place: i64) -> Vec<OutboxRow> {
    let read = observer.read("events", move |tx| {
        store::events::list_after(tx, place, MANY)
    });
    let read: Result<_, StoreError> = read.await;
    read.unwrap().items
}
