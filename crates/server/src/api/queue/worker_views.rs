//! Workers as the queue sees them: last claims, recent tasks and quarantines.

use domain::id::{WorkerGroup, WorkerId, WorkerKey};
use domain::queue_worker::{QueueWorker, TaskRun};
use domain::time::{DAY_MS, Timestamp};
use serde_json::{Value, json};

use crate::api::{
    call::Call,
    error::ApiError,
    reply::{Reply, without_nulls},
};

/// Clients expect a time even for a worker that was never quarantined: a time in the distant past.
const NEVER_MS: i64 = 10 * 365 * DAY_MS;

pub(super) async fn list(call: Call) -> Result<Reply, ApiError> {
    let page = call.page::<(String, String)>()?;
    // A name that is no valid queue name has no workers.
    let Ok(queue_id) = call.two_part_pool_id() else {
        return Reply::json(&json!({"workers": []}));
    };
    let after = match &page.after {
        None => None,
        Some((group, id)) => Some((group.parse::<WorkerGroup>()?, id.parse::<WorkerId>()?)),
    };
    let quarantined = call.query("quarantined").map(|given| given == "true");
    let (now, limit) = (call.now, page.limit_and_one());
    let read = call.read("queue_worker_list", move |tx| {
        let after = after.as_ref().map(|(group, id)| (group, id));
        store::queue_workers::list(tx, &queue_id, quarantined, now, after, limit)
    });
    let key = |QueueWorker { key, .. }: &QueueWorker| (key.group.to_string(), key.id.to_string());
    page.reply("workers", read.await?, key, |worker| summary(worker, now))
}

pub(super) async fn show(call: Call) -> Result<Reply, ApiError> {
    let key = worker_key(&call).map_err(|_| not_found(&call))?;
    let now = call.now;
    let read = call.read("queue_worker_get", move |tx| {
        store::queue_workers::get(tx, &key)
    });
    let worker = read.await?.filter(|worker| !worker.has_expired(now));
    Reply::json(&details(&worker.ok_or_else(|| not_found(&call))?))
}

/// The worker in the route.
pub(super) fn worker_key(call: &Call) -> Result<WorkerKey, ApiError> {
    call.worker_of(call.two_part_pool_id()?)
}

pub(super) fn not_found(call: &Call) -> ApiError {
    ApiError::not_found(format!(
        "Worker with workerId `{}`, workerGroup `{}`, worker-type `{}` and provisionerId `{}` not \
         found. Are you sure it was created?",
        call.parameter("workerId"),
        call.parameter("workerGroup"),
        call.parameter("workerType"),
        call.parameter("provisionerId"),
    ))
}

/// In a list.
fn summary(worker: &QueueWorker, now: Timestamp) -> Value {
    let mut reply = common(worker);
    if let Some(latest) = worker.recent_tasks.last() {
        reply["latestTask"] = task_run(latest);
    }
    if let Some(until) = worker.quarantine_until.filter(|until| *until >= now) {
        reply["quarantineUntil"] = json!(until.to_string());
    }
    reply
}

/// Of one worker.
pub(super) fn details(worker: &QueueWorker) -> Value {
    let (provisioner_id, worker_type) = worker.key.pool_id.parts();
    let never = || worker.first_claim.plus_millis(-NEVER_MS);
    let mut reply = common(worker);
    reply["provisionerId"] = json!(provisioner_id);
    reply["workerType"] = json!(worker_type);
    reply["taskQueueId"] = json!(worker.key.pool_id.as_str());
    reply["expires"] = json!(worker.expires.to_string());
    reply["recentTasks"] = worker.recent_tasks.iter().map(task_run).collect();
    reply["quarantineUntil"] = json!(worker.quarantine_until.unwrap_or_else(never).to_string());
    reply["quarantineDetails"] = json!(worker.quarantine_details);
    reply
}

fn common(worker: &QueueWorker) -> Value {
    without_nulls(json!({
        "workerGroup": worker.key.group.as_str(),
        "workerId": worker.key.id.as_str(),
        "firstClaim": worker.first_claim.to_string(),
        "lastDateActive": worker.last_date_active.map(|at| at.to_string()),
    }))
}

fn task_run(run: &TaskRun) -> Value {
    json!({"taskId": run.task_id, "runId": run.run_id})
}
