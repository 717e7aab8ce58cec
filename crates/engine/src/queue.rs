//! The queue: what moves a task from state to state, and the workers that wait for work.

mod broker;
mod claiming;
mod creating;
mod giving_back;
mod lines;
mod moves;
mod releases;
mod worker_gone;

use crate::issuer::WorkerIssuer;

pub use broker::Broker;
pub use claiming::{claim_end, refusal, see};
pub use creating::{TaskError, create};
pub use lines::NotServed;
pub use moves::{RELEASED_AT_ONCE, carry_out, follow, look_again};
pub use releases::Releases;
pub use worker_gone::{worker_gone, worker_gone_with};

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
