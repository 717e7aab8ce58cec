//! `listWorkers`, `getWorker`: workers of the queue with our data.

mod outside;

use domain::id::{WorkerGroup, WorkerId};
use domain::queue_worker::TaskRun;
use serde_json::{Value, json};
use store::worker_metadata::{MetadataFilter, WorkerMetadata};

use crate::api::{
    call::Call,
    error::ApiError,
    reply::{Reply, without_nulls},
};

/// The state of workers that only the queue knows.
const STANDALONE: &str = "standalone";

pub(super) async fn list(call: Call) -> Result<Reply, ApiError> {
    // The two parts have no pattern of their own. An invalid pool id has no workers.
    let Ok(pool_id) = call.two_part_pool_id() else {
        return Reply::json(&json!({"workers": []}));
    };
    let filter = MetadataFilter {
        state: call
            .query("workerState")
            .map(str::parse)
            .transpose()
            .map_err(|bad| ApiError::input(format!("{bad}")))?,
        launch_config_id: call.query_id("launchConfigId")?,
        quarantined_at: (call.query("quarantined") == Some("true")).then_some(call.now),
    };
    if let Some(queue) = call.app.engine.demand_source.outside() {
        return outside::list(&call, queue, &pool_id, &filter).await;
    }
    let page = call.page::<(String, String)>()?;
    let after = match &page.after {
        None => None,
        Some((group, id)) => Some((group.parse::<WorkerGroup>()?, id.parse::<WorkerId>()?)),
    };
    let limit = page.limit_and_one();
    let read = call.scan("worker_metadata_list", move |tx| {
        let after = after.as_ref().map(|(group, id)| (group, id));
        store::worker_metadata::list(tx, &pool_id, &filter, after, limit)
    });
    let key = |row: &WorkerMetadata| {
        let key = &row.queue.key;
        (key.group.to_string(), key.id.to_string())
    };
    page.reply("workers", read.await?, key, summary)
}

pub(super) async fn show(call: Call) -> Result<Reply, ApiError> {
    let not_found = || {
        ApiError::not_found(format!(
            "Worker with workerId `{}`, workerGroup `{}`,worker-type `{}` and provisioner `{}` not \
             found. Are you sure it was created?",
            call.parameter("workerId"),
            call.parameter("workerGroup"),
            call.parameter("workerType"),
            call.parameter("provisionerId"),
        ))
    };
    let key = call.worker_of(call.two_part_pool_id().map_err(|_| not_found())?)?;
    let now = call.now;
    let row = match call.app.engine.demand_source.outside() {
        Some(queue) => outside::find(&call, queue, &key).await?,
        None => {
            let read = call.read("worker_metadata_get", move |tx| {
                store::worker_metadata::get(tx, &key)
            });
            read.await?
        }
    };
    let row = row
        .filter(|row| !row.queue.has_expired(now))
        .ok_or_else(not_found)?;
    Reply::json(&details(&row))
}

/// The fields of both replies.
fn common(row: &WorkerMetadata) -> Value {
    let (queue, worker) = (&row.queue, row.worker.as_ref());
    let launch_config_id = worker.and_then(|worker| worker.launch_config_id.as_ref());
    without_nulls(json!({
        "workerPoolId": queue.key.pool_id.as_str(),
        "workerGroup": queue.key.group.as_str(),
        "workerId": queue.key.id.as_str(),
        "firstClaim": queue.first_claim.to_string(),
        "lastDateActive": queue.last_date_active.map(|at| at.to_string()),
        "quarantineUntil": queue.quarantine_until.map(|until| until.to_string()),
        "state": worker.map_or(STANDALONE, |worker| worker.state.as_str()),
        "capacity": worker.map_or(0, |worker| worker.capacity),
        "providerId": worker.map_or("none", |worker| worker.provider_id.as_str()),
        "launchConfigId": launch_config_id.map(|id| id.as_str()),
    }))
}

fn summary(row: &WorkerMetadata) -> Value {
    let mut reply = common(row);
    if let Some(latest) = row.queue.recent_tasks.last() {
        reply["latestTask"] = task_run(latest);
    }
    reply
}

fn details(row: &WorkerMetadata) -> Value {
    let queue = &row.queue;
    let mut reply = common(row);
    let (provisioner_id, worker_type) = queue.key.pool_id.parts();
    reply["provisionerId"] = json!(provisioner_id);
    reply["workerType"] = json!(worker_type);
    reply["expires"] = json!(queue.expires.to_string());
    reply["recentTasks"] = queue.recent_tasks.iter().map(task_run).collect();
    reply["quarantineDetails"] = json!(queue.quarantine_details);
    reply
}

fn task_run(run: &TaskRun) -> Value {
    json!({"taskId": run.task_id, "runId": run.run_id})
}
