//! The shapes of the worker manager's requests and replies.

use domain::counts::Counts;
use domain::error_report::ErrorReport;
use domain::launch_config::LaunchConfig;
use domain::pool::Pool;
use domain::time::Timestamp;
use domain::worker::Worker;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

/// A time as it is written on the wire.
#[derive(Clone, Copy, Debug)]
pub(super) struct WireTime(pub(super) Timestamp);

impl Serialize for WireTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// The body of createWorkerPool and updateWorkerPool.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PoolBody {
    pub(super) provider_id: String,
    pub(super) description: String,
    pub(super) config: Value,
    pub(super) owner: String,
    pub(super) email_on_error: bool,
    /// updateWorkerPool only: must be the id in the URL.
    #[serde(default)]
    pub(super) worker_pool_id: Option<String>,
    /// updateWorkerPool only, and ignored.
    #[serde(default, rename = "created")]
    _created: Option<String>,
    #[serde(default, rename = "lastModified")]
    _last_modified: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PoolReply {
    worker_pool_id: String,
    provider_id: String,
    description: String,
    created: WireTime,
    last_modified: WireTime,
    config: Map<String, Value>,
    owner: String,
    email_on_error: bool,
    #[serde(flatten)]
    numbers: Numbers,
}

impl PoolReply {
    pub(super) fn new(pool: &Pool, active: &[LaunchConfig], counts: &Counts) -> Self {
        Self {
            worker_pool_id: pool.id.to_string(),
            provider_id: pool.definition.provider_id.to_string(),
            description: pool.definition.description.clone(),
            created: WireTime(pool.created),
            last_modified: WireTime(pool.last_modified),
            config: pool.assembled_config(active),
            owner: pool.definition.owner.clone(),
            email_on_error: pool.definition.email_on_error,
            numbers: counts.into(),
        }
    }
}

/// The nine numbers of a pool or a launch config.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Numbers {
    current_capacity: u64,
    requested_count: u64,
    running_count: u64,
    stopping_count: u64,
    stopped_count: u64,
    requested_capacity: u64,
    running_capacity: u64,
    stopping_capacity: u64,
    stopped_capacity: u64,
}

impl From<&Counts> for Numbers {
    fn from(counts: &Counts) -> Self {
        Self {
            current_capacity: counts.current_capacity(),
            requested_count: counts.requested.count,
            running_count: counts.running.count,
            stopping_count: counts.stopping.count,
            stopped_count: counts.stopped.count,
            requested_capacity: counts.requested.capacity,
            running_capacity: counts.running.capacity,
            stopping_capacity: counts.stopping.capacity,
            stopped_capacity: counts.stopped.capacity,
        }
    }
}

/// The number of workers of a pool or of one of its launch configs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StatsReply {
    worker_pool_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    launch_config_id: Option<String>,
    #[serde(flatten)]
    numbers: Numbers,
}

impl StatsReply {
    pub(super) fn new(pool_id: String, launch_config_id: Option<String>, counts: &Counts) -> Self {
        Self {
            worker_pool_id: pool_id,
            launch_config_id,
            numbers: counts.into(),
        }
    }
}

/// The body of createWorker and updateWorker.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct WorkerBody {
    pub(super) expires: String,
    #[serde(default)]
    pub(super) capacity: Option<u64>,
    #[serde(default)]
    pub(super) provider_info: Option<Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WorkerReply {
    worker_pool_id: String,
    worker_group: String,
    worker_id: String,
    provider_id: String,
    created: WireTime,
    expires: WireTime,
    state: &'static str,
    capacity: u32,
    last_modified: WireTime,
    last_checked: WireTime,
    #[serde(skip_serializing_if = "Option::is_none")]
    launch_config_id: Option<String>,
}

impl From<&Worker> for WorkerReply {
    fn from(worker: &Worker) -> Self {
        Self {
            worker_pool_id: worker.key.pool_id.to_string(),
            worker_group: worker.key.group.to_string(),
            worker_id: worker.key.id.to_string(),
            provider_id: worker.provider_id.to_string(),
            created: WireTime(worker.created),
            expires: WireTime(worker.expires),
            state: worker.state.as_str(),
            capacity: worker.capacity,
            last_modified: WireTime(worker.last_modified),
            last_checked: WireTime(worker.last_checked),
            launch_config_id: worker.launch_config_id.as_ref().map(ToString::to_string),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WorkersReply {
    pub(super) workers: Vec<WorkerReply>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) continuation_token: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ErrorReply {
    worker_pool_id: String,
    error_id: String,
    reported: WireTime,
    kind: String,
    title: String,
    description: String,
    extra: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    launch_config_id: Option<String>,
}

impl From<&ErrorReport> for ErrorReply {
    fn from(report: &ErrorReport) -> Self {
        Self {
            worker_pool_id: report.pool_id.to_string(),
            error_id: report.error_id.to_string(),
            reported: WireTime(report.reported),
            kind: report.kind.clone(),
            title: report.title.clone(),
            description: report.description.clone(),
            extra: report.extra.clone(),
            launch_config_id: report.launch_config_id.as_ref().map(ToString::to_string),
        }
    }
}
