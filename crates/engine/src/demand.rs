//! How much work waits: in the queue here, or in that of a Taskcluster deployment.

use std::collections::BTreeMap;
use std::sync::Arc;

use api_client::with_causes;
use backplane::{Broker, BusyWorkers, DemandError, TaskclusterQueue, WorkerActivity};
use domain::demand::Demand;
use domain::id::{PoolId, WorkerKey};
use domain::queue_worker::QueueWorker;
use domain::time::Timestamp;
use domain::worker::Worker;

use crate::measures::DEMAND_FAILURES;

/// Where tasks wait.
pub enum Demands {
    /// In our own store.
    Embedded,
    Outside {
        queue: TaskclusterQueue,
        /// Where it publishes that a task waits.
        pulse: Option<Broker>,
    },
}

impl Demands {
    pub fn is_outside(&self) -> bool {
        matches!(self, Self::Outside { .. })
    }

    /// The queue, if it is not ours.
    pub fn outside(&self) -> Option<&TaskclusterQueue> {
        match self {
            Self::Embedded => None,
            Self::Outside { queue, .. } => Some(queue),
        }
    }

    /// The broker of an outside queue.
    pub fn pulse(&self) -> Option<Broker> {
        match self {
            Self::Embedded => None,
            Self::Outside { pulse, .. } => pulse.clone(),
        }
    }

    /// What an outside queue says about these pools; nothing, if the queue is ours, since that can be
    /// read together with all else. A pool that is not in the answer could not be asked about: what is
    /// known of it stays. An error means that of none anything is known.
    pub async fn of(&self, pools: &[PoolId]) -> Result<BTreeMap<PoolId, Demand>, String> {
        let Self::Outside { queue, .. } = self else {
            return Ok(BTreeMap::new());
        };
        let mut known = BTreeMap::new();
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
            return Err(format!("the demand is not known: {}", with_causes(problem)));
        }
        tracing::warn!(pool.id = %pool, error = %problem, pools.n_unknown = problems.len(),
            "the demand of {} pools is not known, that of {pool} for one: {}",
            problems.len(), with_causes(problem));
        Ok(known)
    }

    /// Who works on something in this outside queue; nobody that is known of, if the queue is ours.
    pub async fn busy(&self, pool: &PoolId) -> Result<BusyWorkers, DemandError> {
        match self {
            Self::Embedded => Ok(BusyWorkers::new()),
            Self::Outside { queue, .. } => queue.busy(pool).await,
        }
    }

    /// What an outside queue knows of these workers. `None`: it could not be asked about all of them,
    /// and a worker that it does not mention would be taken for one that it never saw.
    pub async fn activity(
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
                    let worker = as_worker(pool, activity, now);
                    (worker.key.clone(), worker)
                })),
                Err(problem) => {
                    metrics::counter!(DEMAND_FAILURES).increment(1);
                    tracing::warn!(pool.id = %pool, error = %problem,
                        "what the queue knows of the workers of {pool} is not known: {}",
                        with_causes(&problem));
                    return None;
                }
            }
        }
        Some(known)
    }
}

/// The other side keeps its own record; ours of it is good for the moment.
pub fn as_worker(pool: &PoolId, activity: WorkerActivity, now: Timestamp) -> QueueWorker {
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
