//! One scan of one region: its limits, its state and its result.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cloud::{CloudError, Region};
use domain::id::{ProviderId, WorkerGroup, WorkerId};
use domain::time::Timestamp;
use domain::worker::Worker;

use crate::Engine;

/// The time limit of a call; the next scan makes the call again.
pub(super) const MAX_CALL: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
pub struct ScanLimits {
    /// Rows per query.
    pub page: u32,
    /// Workers that one transaction changes. Small, so that other writes do not wait long.
    pub changes: usize,
    /// Concurrent calls to one region.
    pub calls: usize,
    /// After this many failed calls, a region is skipped until the next scan.
    pub failures: u64,
    /// Regions that one scan starts. The next scan continues after the last of them.
    pub regions: usize,
}

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

pub(super) fn name(worker: &Worker) -> MachineName {
    (worker.key.group.clone(), worker.key.id.clone())
}

pub(super) fn timeout_error() -> CloudError {
    CloudError::Unavailable(format!("no answer within {} s", MAX_CALL.as_secs()))
}

/// Machines of unknown launches, and when each was first seen.
pub(super) type FirstSeen = BTreeMap<MachineName, Timestamp>;

pub(super) struct RegionScan {
    pub(super) engine: Arc<Engine>,
    pub(super) provider_id: ProviderId,
    pub(super) limits: ScanLimits,
    pub(super) region: Region,
    pub(super) groups: Vec<WorkerGroup>,
    pub(super) unknown: FirstSeen,
    pub(super) scanned: ScanResult,
    pub(super) began: Timestamp,
    pub(super) n_failed: u64,
    /// `None`: the region could not be listed.
    pub(super) listed: Option<Timestamp>,
    /// When the provider was last asked to remove leftovers.
    pub(super) cleaned: Option<Timestamp>,
}
