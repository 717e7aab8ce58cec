//! The shapes of the worker manager's requests and replies.

use domain::counts::Counts;
use domain::error_report::ErrorReport;
use domain::launch_config::LaunchConfig;
use domain::pool::Pool;
use domain::worker::Worker;
use serde::Deserialize;
use serde_json::{Value, json};

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

pub(super) fn pool_json(pool: &Pool, active: &[LaunchConfig], counts: &Counts) -> Value {
    let definition = &pool.definition;
    let mut reply = json!({
        "workerPoolId": pool.id.as_str(),
        "providerId": definition.provider_id.as_str(),
        "description": definition.description,
        "created": pool.created.to_string(),
        "lastModified": pool.last_modified.to_string(),
        "owner": definition.owner,
        "emailOnError": definition.email_on_error,
    });
    reply["config"] = pool.assembled_config(active).into();
    add_counts(&mut reply, counts);
    reply
}

/// The number of workers of a pool or of one of its launch configs.
pub(super) fn stats_json(pool_id: &str, launch_config: Option<&str>, counts: &Counts) -> Value {
    let ids = json!({"workerPoolId": pool_id, "launchConfigId": launch_config});
    let mut reply = without_nulls(ids);
    add_counts(&mut reply, counts);
    reply
}

/// The nine numbers of a pool or a launch config.
fn add_counts(reply: &mut Value, counts: &Counts) {
    reply["currentCapacity"] = counts.current_capacity().into();
    for (state, workers) in [
        ("requested", &counts.requested),
        ("running", &counts.running),
        ("stopping", &counts.stopping),
        ("stopped", &counts.stopped),
    ] {
        reply[format!("{state}Count")] = workers.count.into();
        reply[format!("{state}Capacity")] = workers.capacity.into();
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

pub(super) fn worker_json(worker: &Worker) -> Value {
    without_nulls(json!({
        "workerPoolId": worker.key.pool_id.as_str(),
        "workerGroup": worker.key.group.as_str(),
        "workerId": worker.key.id.as_str(),
        "providerId": worker.provider_id.as_str(),
        "created": worker.created.to_string(),
        "expires": worker.expires.to_string(),
        "state": worker.state.as_str(),
        "capacity": worker.capacity,
        "lastModified": worker.last_modified.to_string(),
        "lastChecked": worker.last_checked.to_string(),
        "launchConfigId": worker.launch_config_id.as_ref().map(|id| id.as_str()),
    }))
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
