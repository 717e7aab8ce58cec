//! How much work waits for a pool, and how much of it runs: a level, read anew each time.

/// Tasks of one task queue (RFC 145: the queue's id is the pool's).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Nobody has claimed them yet.
    pub pending: u64,
    /// Some worker has claimed them.
    pub claimed: u64,
}
