//! `listWorkers`, `getWorker`: workers of the queue with our data.

mod outside;

use domain::id::{PoolId, WorkerGroup, WorkerId, WorkerKey};
use domain::queue_worker::TaskRun;
use serde_json::{Map, Value, json};
use store::worker_metadata::{MetadataFilter, WorkerMetadata};

use super::super::call::Call;
use super::super::error::ApiError;
use super::super::reply::Reply;

/// The state of workers that only the queue knows.
const STANDALONE: &str = "standalone";

pub(super) async fn list(call: Call) -> Result<Reply, ApiError> {
    // The two parts have no pattern of their own. An invalid pool id has no workers.
    let Ok(pool_id) = joined_pool_id(&call) else {
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
    let read = call
        .app
        .engine
        .store
        .scan("worker_metadata_list", move |tx| {
            let after = after.as_ref().map(|(group, id)| (group, id));
            store::worker_metadata::list(tx, &pool_id, &filter, after, limit)
        });
    let mut rows = read.await?;
    let token = page.cut(&mut rows, |row| {
        (
            row.queue.key.group.to_string(),
            row.queue.key.id.to_string(),
        )
    });
    let workers: Vec<Value> = rows.iter().map(summary).collect();
    let mut reply = json!({ "workers": workers });
    if let Some(token) = token {
        reply["continuationToken"] = json!(token);
    }
    Reply::json(&reply)
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
    let key = WorkerKey {
        pool_id: joined_pool_id(&call).map_err(|_| not_found())?,
        group: call.parameter("workerGroup").parse()?,
        id: call.parameter("workerId").parse()?,
    };
    let now = call.now;
    let row = match call.app.engine.demand_source.outside() {
        Some(queue) => outside::find(&call, queue, &key).await?,
        None => {
            let read = call
                .app
                .engine
                .store
                .read("worker_metadata_get", move |tx| {
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

fn joined_pool_id(call: &Call) -> Result<PoolId, ApiError> {
    let (left, right) = (
        call.parameter("provisionerId"),
        call.parameter("workerType"),
    );
    Ok(format!("{left}/{right}").parse()?)
}

/// The fields of both replies.
fn common(row: &WorkerMetadata) -> Map<String, Value> {
    let queue = &row.queue;
    let mut reply = Map::new();
    let mut set = |name: &str, value: Value| {
        reply.insert(name.to_owned(), value);
    };
    set("workerPoolId", json!(queue.key.pool_id.as_str()));
    set("workerGroup", json!(queue.key.group.as_str()));
    set("workerId", json!(queue.key.id.as_str()));
    set("firstClaim", json!(queue.first_claim.to_string()));
    if let Some(at) = queue.last_date_active {
        set("lastDateActive", json!(at.to_string()));
    }
    if let Some(until) = queue.quarantine_until {
        set("quarantineUntil", json!(until.to_string()));
    }
    match &row.worker {
        None => {
            set("state", json!(STANDALONE));
            set("capacity", json!(0));
            set("providerId", json!("none"));
        }
        Some(worker) => {
            set("state", json!(worker.state.as_str()));
            set("capacity", json!(worker.capacity));
            set("providerId", json!(worker.provider_id.as_str()));
            if let Some(id) = &worker.launch_config_id {
                set("launchConfigId", json!(id.as_str()));
            }
        }
    }
    reply
}

fn summary(row: &WorkerMetadata) -> Value {
    let mut reply = common(row);
    if let Some(latest) = row.queue.recent_tasks.last() {
        reply.insert("latestTask".to_owned(), task_run(latest));
    }
    Value::Object(reply)
}

fn details(row: &WorkerMetadata) -> Value {
    let queue = &row.queue;
    let mut reply = common(row);
    let (provisioner_id, worker_type) = queue.key.pool_id.parts();
    reply.insert("provisionerId".to_owned(), json!(provisioner_id));
    reply.insert("workerType".to_owned(), json!(worker_type));
    reply.insert("expires".to_owned(), json!(queue.expires.to_string()));
    let recent: Vec<Value> = queue.recent_tasks.iter().map(task_run).collect();
    reply.insert("recentTasks".to_owned(), json!(recent));
    reply.insert(
        "quarantineDetails".to_owned(),
        json!(queue.quarantine_details),
    );
    Value::Object(reply)
}

fn task_run(run: &TaskRun) -> Value {
    json!({"taskId": run.task_id, "runId": run.run_id})
}
