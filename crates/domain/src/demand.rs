//! How many tasks wait for a pool, and how many of its tasks run.

use serde::{Deserialize, Serialize};

/// Tasks of one task queue (RFC 145: the queue's id is the pool's).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Demand {
    /// Not claimed yet.
    pub pending: u64,
    /// Claimed by a worker.
    pub claimed: u64,
}
