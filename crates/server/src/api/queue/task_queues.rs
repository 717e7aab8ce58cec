//! Task queues, by their full name or by its two parts.

use domain::id::PoolId;
use serde_json::{Value, json};
use store::task_queues::TaskQueue;

use crate::api::{call::Call, error::ApiError, reply::Reply};

pub(super) async fn list(call: Call) -> Result<Reply, ApiError> {
    page_of(&call, None, "taskQueues", task_queue).await
}

pub(super) async fn show(call: Call) -> Result<Reply, ApiError> {
    let id: PoolId = call.id("taskQueueId")?;
    let missing = format!("Task queue `{id}` not found. Are you sure it was created?");
    let queue = find(&call, id).await?;
    let queue = queue.ok_or_else(|| ApiError::not_found(missing))?;
    Reply::json(&task_queue(&queue))
}

pub(super) async fn list_worker_types(call: Call) -> Result<Reply, ApiError> {
    let provisioner_id = call.parameter("provisionerId").to_owned();
    page_of(&call, Some(provisioner_id), "workerTypes", worker_type).await
}

pub(super) async fn show_worker_type(call: Call) -> Result<Reply, ApiError> {
    let not_found = || {
        ApiError::not_found(format!(
            "Worker type `{}` of provisioner `{}` not found. Are you sure it was created?",
            call.parameter("workerType"),
            call.parameter("provisionerId"),
        ))
    };
    // A name that is no valid queue name is not found.
    let id = call.two_part_pool_id().map_err(|_| not_found())?;
    let queue = find(&call, id).await?.ok_or_else(not_found)?;
    Reply::json(&worker_type(&queue))
}

async fn find(call: &Call, id: PoolId) -> Result<Option<TaskQueue>, ApiError> {
    let now = call.now;
    let read = call.read("task_queue_get", move |tx| {
        store::task_queues::get(tx, &id, now)
    });
    read.await
}

async fn page_of(
    call: &Call,
    provisioner_id: Option<String>,
    member: &str,
    shape: fn(&TaskQueue) -> Value,
) -> Result<Reply, ApiError> {
    let page = call.page::<(String,)>()?;
    let (after, now, limit) = (page.after_id()?, call.now, page.limit_and_one());
    let read = call.read("task_queue_list", move |tx| {
        store::task_queues::list(tx, provisioner_id.as_deref(), after.as_ref(), now, limit)
    });
    page.reply(member, read.await?, |queue| (queue.id.to_string(),), shape)
}

fn task_queue(queue: &TaskQueue) -> Value {
    json!({
        "taskQueueId": queue.id.as_str(),
        "description": queue.description,
        "stability": queue.stability,
        "expires": queue.expires.to_string(),
        "lastDateActive": queue.last_date_active.to_string(),
    })
}

fn worker_type(queue: &TaskQueue) -> Value {
    let (provisioner_id, worker_type) = queue.id.parts();
    let mut reply = task_queue(queue);
    reply["provisionerId"] = json!(provisioner_id);
    reply["workerType"] = json!(worker_type);
    reply
}
