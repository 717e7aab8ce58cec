//! Counts and lists pending and claimed runs.

use domain::demand::Demand;
use domain::id::{PoolId, TaskId};
use domain::time::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use store::StoreError;
use store::claimed_tasks::ClaimedTask;
use store::pending_tasks::{PendingPosition, PendingTask};

use crate::api::{call::Call, error::ApiError, reply::Reply};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct QueuesBody {
    task_queue_ids: Vec<String>,
}

pub(super) async fn pending(call: Call) -> Result<Reply, ApiError> {
    let (queue, demand) = demand(&call).await?;
    Reply::json(&pending_tasks(&queue, demand))
}

pub(super) async fn counts(call: Call) -> Result<Reply, ApiError> {
    let (queue, demand) = demand(&call).await?;
    Reply::json(&both(&queue, demand))
}

pub(super) async fn batch(mut call: Call) -> Result<Reply, ApiError> {
    let QueuesBody { task_queue_ids } = call.body()?;
    let params = call
        .url_params()
        .list("taskQueueIds", task_queue_ids.clone());
    call.authorize(params).await?;
    let queues = task_queue_ids.iter().map(|id| Ok(id.parse()?));
    let queues = queues.collect::<Result<Vec<PoolId>, ApiError>>()?;
    let now = call.now;
    let read = call.scan("task_demand_batch", move |tx| {
        let demands = queues.into_iter().map(|queue| {
            let demand = store::demand::of(tx, &queue, now)?;
            Ok((queue, demand))
        });
        demands.collect::<Result<Vec<_>, StoreError>>()
    });
    let demands = read.await?;
    let counts = demands.iter().map(|(queue, demand)| both(queue, *demand));
    Reply::json(&json!({ "taskQueueCounts": counts.collect::<Value>() }))
}

/// In the order in which they will be claimed.
pub(super) async fn list_pending(call: Call) -> Result<Reply, ApiError> {
    let queue = call.id("taskQueueId")?;
    let page = call.page::<(u32, i64)>()?;
    let after = page.after.as_ref().map(|(rank, sequence)| PendingPosition {
        rank: *rank,
        sequence: *sequence,
    });
    let limit = page.limit_and_one();
    let read = call.scan("task_list_pending", move |tx| {
        store::pending_tasks::list(tx, &queue, after, limit)
    });
    let key = |row: &PendingTask| (row.position.rank, row.position.sequence);
    page.reply("tasks", read.await?, key, |row| {
        json!({
            "taskId": row.task.id.as_str(),
            "runId": row.run_id,
            "task": row.task.document(),
            "inserted": row.inserted.to_string(),
        })
    })
}

/// The earliest claim first.
pub(super) async fn list_claimed(call: Call) -> Result<Reply, ApiError> {
    let queue = call.id("taskQueueId")?;
    let page = call.page::<(i64, String)>()?;
    let after: Option<(Timestamp, TaskId)> = match &page.after {
        Some((millis, id)) => Some((Timestamp::from_millis(*millis), id.parse()?)),
        None => None,
    };
    let limit = page.limit_and_one();
    let read = call.scan("task_list_claimed", move |tx| {
        let after = after.as_ref().map(|(at, id)| (*at, id));
        store::claimed_tasks::list(tx, &queue, after, limit)
    });
    let key = |row: &ClaimedTask| (row.claimed.as_millis(), row.task.id.to_string());
    page.reply("tasks", read.await?, key, |row| {
        json!({
            "taskId": row.task.id.as_str(),
            "runId": row.run_id,
            "task": row.task.document(),
            "claimed": row.claimed.to_string(),
            "workerGroup": row.group.as_str(),
            "workerId": row.worker_id.as_str(),
        })
    })
}

async fn demand(call: &Call) -> Result<(PoolId, Demand), ApiError> {
    let (queue, now) = (call.id("taskQueueId")?, call.now);
    let read = call.scan("task_demand", move |tx| {
        let demand = store::demand::of(tx, &queue, now)?;
        Ok::<_, StoreError>((queue, demand))
    });
    read.await
}

fn pending_tasks(queue: &PoolId, demand: Demand) -> Value {
    let (provisioner_id, worker_type) = queue.parts();
    json!({
        "provisionerId": provisioner_id,
        "workerType": worker_type,
        "taskQueueId": queue.as_str(),
        "pendingTasks": demand.pending,
    })
}

fn both(queue: &PoolId, demand: Demand) -> Value {
    let mut counts = pending_tasks(queue, demand);
    counts["claimedTasks"] = json!(demand.claimed);
    counts
}
