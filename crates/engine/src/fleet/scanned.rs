//! What a scan found.

use domain::id::{WorkerGroup, WorkerId};

/// What a scan found and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    pub seen: u64,
    pub stopped: u64,
    pub ended: u64,
    pub adopted: u64,
    pub settled: u64,
    pub problems: u64,
}

/// A machine by its own name.
pub(super) type Name = (WorkerGroup, WorkerId);
