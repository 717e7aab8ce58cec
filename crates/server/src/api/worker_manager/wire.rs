//! The shapes of the worker manager's requests and replies.

use domain::counts::Counts;
use domain::error_report::ErrorReport;
use domain::id::{LaunchConfigId, PoolId, ProviderId, WorkerGroup, WorkerId};
use domain::launch_config::LaunchConfig;
use domain::pool::Pool;
use domain::time::Timestamp;
use domain::worker::Worker;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use store::listed_workers::ListedWorker;

use crate::api::reply::without_nulls;

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
pub(super) struct PoolReply<'a> {
    worker_pool_id: &'a PoolId,
    provider_id: &'a ProviderId,
    description: &'a str,
    created: Timestamp,
    last_modified: Timestamp,
    config: Map<String, Value>,
    owner: &'a str,
    email_on_error: bool,
    #[serde(flatten)]
    numbers: Numbers,
}

impl<'a> PoolReply<'a> {
    pub(super) fn new(pool: &'a Pool, active: &[LaunchConfig], counts: &Counts) -> Self {
        let definition = &pool.definition;
        Self {
            worker_pool_id: &pool.id,
            provider_id: &definition.provider_id,
            description: &definition.description,
            created: pool.created,
            last_modified: pool.last_modified,
            config: pool.assembled_config(active),
            owner: &definition.owner,
            email_on_error: definition.email_on_error,
            numbers: counts.into(),
        }
    }
}

/// The number of workers of a pool or of one of its launch configs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StatsReply<'a> {
    worker_pool_id: &'a PoolId,
    #[serde(skip_serializing_if = "Option::is_none")]
    launch_config_id: Option<&'a str>,
    #[serde(flatten)]
    numbers: Numbers,
}

impl<'a> StatsReply<'a> {
    pub(super) fn new(
        worker_pool_id: &'a PoolId,
        launch_config_id: Option<&'a str>,
        counts: &Counts,
    ) -> Self {
        Self {
            worker_pool_id,
            launch_config_id,
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

/// The body of createWorker and updateWorker.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct WorkerBody {
    pub(super) expires: String,
    #[serde(default)]
    pub(super) capacity: Option<u64>,
    #[serde(default)]
    pub(super) launch_config_id: Option<String>,
    #[serde(default)]
    pub(super) provider_info: Option<Value>,
}

/// Borrows, because lists have a thousand of them.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WorkerReply<'a> {
    worker_pool_id: &'a PoolId,
    worker_group: &'a WorkerGroup,
    worker_id: &'a WorkerId,
    provider_id: &'a ProviderId,
    created: Timestamp,
    expires: Timestamp,
    state: &'static str,
    capacity: u32,
    last_modified: Timestamp,
    last_checked: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    launch_config_id: Option<&'a LaunchConfigId>,
}

impl<'a> WorkerReply<'a> {
    pub(super) fn listed(pool_id: &'a PoolId, worker: &'a ListedWorker) -> Self {
        Self {
            worker_pool_id: pool_id,
            worker_group: &worker.group,
            worker_id: &worker.id,
            provider_id: &worker.provider_id,
            created: worker.created,
            expires: worker.expires,
            state: worker.state.as_str(),
            capacity: worker.capacity,
            last_modified: worker.last_modified,
            last_checked: worker.last_checked,
            launch_config_id: worker.launch_config_id.as_ref(),
        }
    }
}

impl<'a> From<&'a Worker> for WorkerReply<'a> {
    fn from(worker: &'a Worker) -> Self {
        Self {
            worker_pool_id: &worker.key.pool_id,
            worker_group: &worker.key.group,
            worker_id: &worker.key.id,
            provider_id: &worker.provider_id,
            created: worker.created,
            expires: worker.expires,
            state: worker.state.as_str(),
            capacity: worker.capacity,
            last_modified: worker.last_modified,
            last_checked: worker.last_checked,
            launch_config_id: worker.launch_config_id.as_ref(),
        }
    }
}

pub(super) fn error_json(report: &ErrorReport) -> Value {
    without_nulls(json!({
        "workerPoolId": report.pool_id.as_str(),
        "errorId": report.error_id.as_str(),
        "reported": report.reported.to_string(),
        "kind": report.kind,
        "title": report.title,
        "description": report.description,
        "extra": report.extra,
        "launchConfigId": report.launch_config_id.as_ref().map(|id| id.as_str()),
    }))
}
