//! Counts and lists pending and claimed runs.

use domain::demand::Demand;
use domain::id::{PoolId, TaskId};
use domain::time::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use store::StoreError;
use store::pending_tasks::PendingPosition;

use super::super::call::Call;
use super::super::error::ApiError;
use super::super::reply::Reply;
use super::with_token;

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
    let read = call.app.engine.store.scan("task_demand_batch", move |tx| {
        let demands = queues.into_iter().map(|queue| {
            let demand = store::demand::of(tx, &queue, now)?;
            Ok((queue, demand))
        });
        demands.collect::<Result<Vec<_>, StoreError>>()
    });
    let counts: Vec<Value> = read
        .await?
        .iter()
        .map(|(queue, demand)| both(queue, *demand))
        .collect();
    Reply::json(&json!({ "taskQueueCounts": counts }))
}

/// In the order in which they will be claimed.
pub(super) async fn list_pending(call: Call) -> Result<Reply, ApiError> {
    let queue = queue(&call)?;
    let page = call.page::<(u32, i64)>()?;
    let after = page.after.as_ref().map(|(rank, sequence)| PendingPosition {
        rank: *rank,
        sequence: *sequence,
    });
    let limit = page.limit_and_one();
    let read = call.app.engine.store.scan("task_list_pending", move |tx| {
        store::pending_tasks::list(tx, &queue, after, limit)
    });
    let (rows, token) = page.cut_part(read.await?, |row| {
        (row.position.rank, row.position.sequence)
    });
    let tasks = rows.iter().map(|row| {
        json!({
            "taskId": row.task.id.as_str(),
            "runId": row.run_id,
            "task": row.task.document(),
            "inserted": row.inserted.to_string(),
        })
    });
    let tasks: Vec<Value> = tasks.collect();
    Reply::json(&with_token(json!({ "tasks": tasks }), token))
}

/// The earliest claim first.
pub(super) async fn list_claimed(call: Call) -> Result<Reply, ApiError> {
    let queue = queue(&call)?;
    let page = call.page::<(i64, String)>()?;
    let after: Option<(Timestamp, TaskId)> = match &page.after {
        Some((millis, id)) => Some((Timestamp::from_millis(*millis), id.parse()?)),
        None => None,
    };
    let limit = page.limit_and_one();
    let read = call.app.engine.store.scan("task_list_claimed", move |tx| {
        let after = after.as_ref().map(|(at, id)| (*at, id));
        store::claimed_tasks::list(tx, &queue, after, limit)
    });
    let (rows, token) = page.cut_part(read.await?, |row| {
        (row.claimed.as_millis(), row.task.id.to_string())
    });
    let tasks = rows.iter().map(|row| {
        json!({
            "taskId": row.task.id.as_str(),
            "runId": row.run_id,
            "task": row.task.document(),
            "claimed": row.claimed.to_string(),
            "workerGroup": row.group.as_str(),
            "workerId": row.worker_id.as_str(),
        })
    });
    let tasks: Vec<Value> = tasks.collect();
    Reply::json(&with_token(json!({ "tasks": tasks }), token))
}

async fn demand(call: &Call) -> Result<(PoolId, Demand), ApiError> {
    let (queue, now) = (queue(call)?, call.now);
    let read = call.app.engine.store.scan("task_demand", move |tx| {
        let demand = store::demand::of(tx, &queue, now)?;
        Ok::<_, StoreError>((queue, demand))
    });
    Ok(read.await?)
}

fn queue(call: &Call) -> Result<PoolId, ApiError> {
    Ok(call.parameter("taskQueueId").parse()?)
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
