//! The entries of a recording, as the server and files have them.

use domain::configuration::ProviderEntry;
use domain::id::{LaunchConfigId, PoolId, ProviderId};
use domain::launch::Cause;
use domain::plan::StrategyName;
use domain::task::{EndReason, Priority};
use domain::time::Timestamp;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// The version of the entries that this program reads.
pub const VERSION: u32 = 1;

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Entry {
    Recording(Header),
    Provider(ProviderNote),
    Pool(PoolEntry),
    Gap(GapEntry),
    Launch(LaunchEntry),
    Worker(WorkerEntry),
    Run(RunEntry),
}

/// The time and the settings of a recording.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    pub version: u32,
    pub since: Timestamp,
    pub until: Timestamp,
    /// When the oldest recorded run ended.
    pub runs_since: Option<Timestamp>,
    pub recording_days: u32,
    pub round_seconds: u64,
    pub scan_seconds: u64,
    /// The strategy of pools that name none.
    #[serde(default)]
    pub default_strategy: Option<StrategyName>,
    /// Tasks that waited or ran when the recording was read.
    pub waiting: Option<u64>,
    pub running: Option<u64>,
}

/// A provider, and what it offers to worker configurations.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProviderNote {
    pub provider_id: ProviderId,
    pub entry: Option<ProviderEntry>,
}

/// A pool as it was when the recording was read.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolEntry {
    pub worker_pool_id: PoolId,
    pub last_modified: Timestamp,
    /// Without launch configs.
    pub config: Map<String, Value>,
    pub launch_configs: Vec<LaunchConfigEntry>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LaunchConfigEntry {
    pub launch_config_id: LaunchConfigId,
    pub provider_id: ProviderId,
    pub configuration: Map<String, Value>,
    /// `None`: the provider made no bid.
    pub place: Option<String>,
    /// Dollars per machine and hour.
    pub price: Option<f64>,
}

/// A time without a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GapEntry {
    pub since: Timestamp,
    pub until: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LaunchEntry {
    pub worker_pool_id: PoolId,
    pub provider_id: ProviderId,
    pub launch_config_id: LaunchConfigId,
    pub created: Timestamp,
    pub machines: u32,
    pub made: u32,
    /// Why the cloud made nothing. `None`: it was not refused.
    pub cause: Option<Cause>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerEntry {
    pub worker_pool_id: PoolId,
    pub provider_id: ProviderId,
    pub launch_config_id: Option<LaunchConfigId>,
    pub capacity: u32,
    /// Dollars per hour, as agreed at the launch.
    pub price: Option<f64>,
    pub created: Timestamp,
    pub registered: Option<Timestamp>,
    pub stopping: Option<Timestamp>,
    pub stopped: Option<Timestamp>,
    pub interrupted: bool,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunEntry {
    pub worker_pool_id: PoolId,
    pub waiting_since: Timestamp,
    pub started: Timestamp,
    pub resolved: Timestamp,
    pub reason: EndReason,
    #[serde(default, deserialize_with = "priority")]
    pub priority: Option<Priority>,
}

impl RunEntry {
    pub fn duration_ms(&self) -> i64 {
        self.resolved.millis_since(self.started)
    }

    pub fn wait_ms(&self) -> i64 {
        self.started.millis_since(self.waiting_since)
    }

    /// Whether the task ended with this run. Other runs were lost, and the task waited again.
    pub fn ends_task(&self) -> bool {
        self.reason.ends_task()
    }
}

impl WorkerEntry {
    /// When it stopped, if it did before `until`.
    pub fn end(&self, until: Timestamp) -> Timestamp {
        self.stopped.unwrap_or(until).min(until)
    }
}

fn priority<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Priority>, D::Error> {
    let name = Option::<String>::deserialize(from)?;
    let priority = name.map(|name| name.parse()).transpose();
    priority.map_err(serde::de::Error::custom)
}
