//! The result of a scan.

use domain::id::{WorkerGroup, WorkerId};

/// Machines seen, and the actions of a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanResult {
    pub seen: u64,
    pub stopped: u64,
    pub ended: u64,
    pub adopted: u64,
    pub settled: u64,
    pub problems: u64,
}

/// The group and id of a machine.
pub(super) type MachineName = (WorkerGroup, WorkerId);
