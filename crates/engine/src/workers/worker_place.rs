//! Requests for workers that people declare or create, and where these belong.

use domain::id::{LaunchConfigId, ProviderId};
use domain::launch_config::LaunchConfig;
use domain::pool::Pool;
use domain::time::Timestamp;
use serde_json::Value;

#[derive(Clone)]
pub struct Declaration {
    pub expires: Timestamp,
    pub capacity: Option<u32>,
    /// The launch config; `None`: the first one for declared workers, or the one that it has.
    pub launch_config_id: Option<LaunchConfigId>,
    pub provider_info: Option<Value>,
}

/// Where a worker belongs that people declare or create.
#[derive(Clone)]
pub(super) struct WorkerPlace {
    pub(super) pool: Pool,
    pub(super) provider_id: ProviderId,
    pub(super) launch_config: Option<LaunchConfig>,
}
