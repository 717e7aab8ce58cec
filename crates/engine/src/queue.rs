//! The queue: what moves a task from state to state, and the workers that wait for work.

mod broker;
mod changing;
mod claiming;
mod creating;
mod credentials;
mod error;
mod giving_back;
mod groups;
mod lines;
mod moves;
mod one_claim;
mod releases;
mod worker_gone;
mod workers;

use crate::issuer::WorkerIssuer;

pub use broker::Broker;
pub use changing::{change_task, rerun};
pub use creating::create;
pub use credentials::credentials;
pub use error::TaskError;
pub use groups::{cancel_group, change_group_priority, seal_group};
pub use lines::NotServed;
pub use moves::{RELEASED_AT_ONCE, carry_out, follow, look_again};
pub use one_claim::{claim_task, reclaim};
pub use releases::Releases;
pub use worker_gone::{worker_gone, worker_gone_with};
pub use workers::{declare_worker, quarantine_worker};

/// What the queue keeps in memory. It is all hints and waiting workers: nothing is lost with it.
pub struct Queue {
    /// Signs the credentials of runs.
    pub issuer: WorkerIssuer,
    pub broker: Broker,
    pub releases: Releases,
}

impl Queue {
    pub fn new(issuer: WorkerIssuer) -> Self {
        Self {
            issuer,
            broker: Broker::default(),
            releases: Releases::default(),
        }
    }
}
