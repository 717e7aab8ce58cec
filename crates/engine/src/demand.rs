//! The number of pending tasks, from the embedded queue or from that of a Taskcluster deployment.

use std::collections::BTreeMap;
use std::sync::Arc;

use api_client::with_causes;
use backplane::{Broker, BusyWorkers, DemandError, TaskclusterQueue, WorkerActivity};
use domain::demand::Demand;
use domain::id::{PoolId, WorkerKey};
use domain::queue_worker::QueueWorker;
use domain::time::Timestamp;
use domain::worker::Worker;

use crate::Engine;
use crate::measures::DEMAND_FAILURES;

/// The tasks that wait, by pool.
pub type Demands = BTreeMap<PoolId, Demand>;

pub enum DemandSource {
    /// The queue of this server, in its store.
    Embedded,
    Outside {
        queue: TaskclusterQueue,
        /// Publishes an event for each pending task.
        pulse: Option<Broker>,
    },
}

impl DemandSource {
    pub fn is_outside(&self) -> bool {
        matches!(self, Self::Outside { .. })
    }

    pub fn outside(&self) -> Option<&TaskclusterQueue> {
        match self {
            Self::Embedded => None,
            Self::Outside { queue, .. } => Some(queue),
        }
    }

    /// Whether it tells which workers have asked for work.
    pub fn hears_claims(&self) -> bool {
        match self {
            Self::Embedded => true,
            Self::Outside { pulse, .. } => pulse.is_some(),
        }
    }

    /// The broker of an outside queue.
    pub fn pulse(&self) -> Option<Broker> {
        match self {
            Self::Embedded => None,
            Self::Outside { pulse, .. } => pulse.clone(),
        }
    }

    /// The demand of all queues of this server, read in pages of `limit`; `None` for an outside
    /// queue, which is asked for a page of pools at a time.
    pub async fn read_own(
        engine: &Engine,
        transaction: &'static str,
        limit: u32,
    ) -> store::Result<Option<Demands>> {
        if engine.demand_source.is_outside() {
            return Ok(None);
        }
        let mut all = Demands::new();
        loop {
            let now = engine.clock.now();
            let after = all.last_key_value().map(|(id, _)| PoolId::clone(id));
            let read = engine.store.survey(transaction, move |tx| {
                store::demand::all(tx, after.as_ref(), limit, now)
            });
            let page = read.await?;
            let is_full = page.len() == limit as usize;
            all.extend(page);
            if !is_full {
                return Ok(Some(all));
            }
        }
    }

    /// The demand of these pools in an outside queue. The embedded queue gives an empty answer,
    /// since its demand is read together with the other facts. A pool without an answer keeps its
    /// known demand. An error means that no pool has an answer.
    pub async fn read(&self, pools: &[PoolId]) -> Result<Demands, String> {
        let Self::Outside { queue, .. } = self else {
            return Ok(BTreeMap::new());
        };
        let mut known = Demands::new();
        let mut problems: Vec<(&PoolId, Arc<DemandError>)> = Vec::new();
        for (pool, answer) in pools.iter().zip(queue.demand(pools).await) {
            match answer {
                Ok(demand) => {
                    known.insert(pool.clone(), demand);
                }
                Err(problem) => problems.push((pool, problem)),
            }
        }
        let Some((pool, problem)) = problems.first() else {
            return Ok(known);
        };
        metrics::counter!(DEMAND_FAILURES).increment(problems.len() as u64);
        if known.is_empty() {
            return Err(format!("the demand is unknown: {}", with_causes(problem)));
        }
        tracing::warn!(pool.id = %pool, error = %problem, pools.n_unknown = problems.len(),
            "the demand of {} pools is unknown, among them {pool}: {}",
            problems.len(), with_causes(problem));
        Ok(known)
    }

    /// The workers that have claimed tasks of an outside queue; none for the embedded queue.
    pub async fn busy_workers(&self, pool: &PoolId) -> Result<BusyWorkers, DemandError> {
        match self {
            Self::Embedded => Ok(BusyWorkers::new()),
            Self::Outside { queue, .. } => queue.busy(pool).await,
        }
    }

    /// The state of these workers in an outside queue. `None`: not all of them could be queried,
    /// and a worker without an answer would be mistaken for a worker unknown to the queue.
    pub async fn worker_activity(
        &self,
        workers: &[Worker],
        now: Timestamp,
    ) -> Option<BTreeMap<WorkerKey, QueueWorker>> {
        let Self::Outside { queue, .. } = self else {
            return None;
        };
        let mut known = BTreeMap::new();
        for of_pool in workers.chunk_by(|left, right| left.key.pool_id == right.key.pool_id) {
            let pool = &of_pool[0].key.pool_id;
            match queue.workers(pool).await {
                Ok(activity) => known.extend(activity.into_iter().map(|activity| {
                    let worker = to_queue_worker(pool, activity, now);
                    (worker.key.clone(), worker)
                })),
                Err(problem) => {
                    metrics::counter!(DEMAND_FAILURES).increment(1);
                    tracing::warn!(pool.id = %pool, error = %problem,
                        "the state of the workers of {pool} in the queue is unknown: {}",
                        with_causes(&problem));
                    return None;
                }
            }
        }
        Some(known)
    }
}

/// Converts the record of an outside queue, which keeps it.
pub fn to_queue_worker(pool: &PoolId, activity: WorkerActivity, now: Timestamp) -> QueueWorker {
    let key = WorkerKey {
        pool_id: pool.clone(),
        group: activity.group,
        id: activity.id,
    };
    QueueWorker {
        last_date_active: activity.last_date_active,
        quarantine_until: activity.quarantine_until,
        recent_tasks: activity.recent_tasks,
        quarantine_details: activity.quarantine_details,
        ..QueueWorker::new(key, activity.first_claim, activity.expires.unwrap_or(now))
    }
}
