//! Workers as the queue sees them: last claims, recent tasks and quarantines.

use domain::id::{WorkerGroup, WorkerId, WorkerKey};
use domain::queue_worker::{QueueWorker, TaskRun};
use domain::time::{DAY_MS, Timestamp};
use serde_json::{Value, json};

use super::super::call::Call;
use super::super::error::ApiError;
use super::super::reply::Reply;
use super::task_queues::task_queue_id;

/// Clients expect a time even for a worker that was never quarantined: a time in the distant past.
const NEVER_MS: i64 = 10 * 365 * DAY_MS;

pub(super) async fn list(call: Call) -> Result<Reply, ApiError> {
    let page = call.page::<(String, String)>()?;
    // A name that is no valid queue name has no workers.
    let Ok(queue_id) = task_queue_id(&call) else {
        return Reply::json(&json!({"workers": []}));
    };
    let after = match &page.after {
        None => None,
        Some((group, id)) => Some((group.parse::<WorkerGroup>()?, id.parse::<WorkerId>()?)),
    };
    let quarantined = call.query("quarantined").map(|given| given == "true");
    let (now, limit) = (call.now, page.limit_and_one());
    let read = call.app.engine.store.read("queue_worker_list", move |tx| {
        let after = after.as_ref().map(|(group, id)| (group, id));
        store::queue_workers::list(tx, &queue_id, quarantined, now, after, limit)
    });
    let mut workers = read.await?;
    let token = page.cut(&mut workers, |worker| {
        (worker.key.group.to_string(), worker.key.id.to_string())
    });
    let listed: Vec<Value> = workers.iter().map(|worker| summary(worker, now)).collect();
    let mut reply = json!({ "workers": listed });
    if let Some(token) = token {
        reply["continuationToken"] = json!(token);
    }
    Reply::json(&reply)
}

pub(super) async fn show(call: Call) -> Result<Reply, ApiError> {
    let key = worker_key(&call).map_err(|_| not_found(&call))?;
    let now = call.now;
    let read = call.app.engine.store.read("queue_worker_get", move |tx| {
        store::queue_workers::get(tx, &key)
    });
    let worker = read.await?.filter(|worker| !worker.has_expired(now));
    Reply::json(&details(&worker.ok_or_else(|| not_found(&call))?))
}

/// The worker in the route.
pub(super) fn worker_key(call: &Call) -> Result<WorkerKey, ApiError> {
    Ok(WorkerKey {
        pool_id: task_queue_id(call)?,
        group: call.parameter("workerGroup").parse()?,
        id: call.parameter("workerId").parse()?,
    })
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
    let recent: Vec<Value> = worker.recent_tasks.iter().map(task_run).collect();
    let mut reply = common(worker);
    reply["provisionerId"] = json!(provisioner_id);
    reply["workerType"] = json!(worker_type);
    reply["taskQueueId"] = json!(worker.key.pool_id.as_str());
    reply["expires"] = json!(worker.expires.to_string());
    reply["recentTasks"] = json!(recent);
    reply["quarantineUntil"] = json!(worker.quarantine_until.unwrap_or_else(never).to_string());
    reply["quarantineDetails"] = json!(worker.quarantine_details);
    reply
}

fn common(worker: &QueueWorker) -> Value {
    let mut reply = json!({
        "workerGroup": worker.key.group.as_str(),
        "workerId": worker.key.id.as_str(),
        "firstClaim": worker.first_claim.to_string(),
    });
    if let Some(at) = worker.last_date_active {
        reply["lastDateActive"] = json!(at.to_string());
    }
    reply
}

fn task_run(run: &TaskRun) -> Value {
    json!({"taskId": run.task_id, "runId": run.run_id})
}
