//! The queue: the transitions of tasks, and the workers that wait for them.

mod change_task;
mod claim_dispatcher;
mod claim_task;
mod claim_work;
mod create_task;
mod error;
mod queue_workers;
mod releases;
mod return_claims;
mod task_credentials;
mod task_groups;
mod transitions;
mod waiting_workers;
mod worker_claims;

use crate::issuer::WorkerIssuer;

pub use change_task::{change_task, rerun};
pub use claim_dispatcher::ClaimDispatcher;
pub use claim_task::{claim_task, reclaim};
pub use create_task::create_task;
pub use error::TaskError;
pub use queue_workers::{declare_worker, quarantine_worker, quarantine_workers};
pub use releases::Releases;
pub use task_credentials::issue_task_credentials;
pub use task_groups::{cancel_group, change_group_priority, seal_group};
pub use transitions::{RELEASE_BATCH, release_dependents, try_transition};
pub use waiting_workers::ClaimError;
pub use worker_claims::{release_worker_claims, release_worker_claims_up_to};

/// The state of the queue in memory: wake-ups and waiting workers. Nothing is lost with it.
pub struct Queue {
    /// Signs the credentials of runs.
    pub issuer: WorkerIssuer,
    pub dispatcher: ClaimDispatcher,
    pub releases: Releases,
}

impl Queue {
    pub fn new(issuer: WorkerIssuer) -> Self {
        Self {
            issuer,
            dispatcher: ClaimDispatcher::default(),
            releases: Releases::default(),
        }
    }
}
