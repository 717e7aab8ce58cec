//! Workers claim and reclaim tasks.

use domain::id::{PoolId, TaskId, WorkerKey};
use domain::task::{Claim, Task};
use domain::time::Timestamp;
use engine::queue::{self, ClaimError, TaskError};
use serde::Deserialize;
use serde_json::{Value, json};
use store::StoreError;

use super::run_id;
use crate::api::{call::Call, error::ApiError, reply::Reply};
use crate::app::App;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClaimWorkBody {
    tasks: u32,
    worker_group: String,
    worker_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClaimTaskBody {
    worker_group: String,
    worker_id: String,
}

/// Waits for work, and answers as soon as a task is available.
pub(super) async fn claim_work(mut call: Call) -> Result<Reply, ApiError> {
    let body: ClaimWorkBody = call.body()?;
    let params = call
        .url_params()
        .text("workerGroup", &body.worker_group)
        .text("workerId", &body.worker_id);
    call.authorize(params).await?;
    let queue: PoolId = call.id("taskQueueId")?;
    let worker = WorkerKey::parse(queue, &body.worker_group, &body.worker_id)?;
    let broker = &call.app.engine.queue.dispatcher;
    let claiming = broker.claim(
        &call.app.engine,
        worker.clone(),
        body.tasks,
        &call.cancelled,
    );
    let claimed = claiming
        .await
        .map_err(|failed| not_served(&worker, failed))?;
    let Some(claimed) = claimed else {
        return Reply::json(&json!({ "tasks": [] }));
    };
    let claims = claimed.tasks.iter().filter_map(|task| {
        let (run_id, run) = task.last_run()?;
        let claim = run.running()?;
        let mut reply = claim_reply(&call.app, task, run_id, claim, claim.started);
        reply["task"] = json!(task.document());
        Some(reply)
    });
    let reply = json!({ "tasks": claims.collect::<Vec<Value>>() });
    Reply::must_be_heard(&reply, claimed.undo)
}

/// Claims one run that the worker names.
pub(super) async fn claim_task(mut call: Call) -> Result<Reply, ApiError> {
    let body: ClaimTaskBody = call.body()?;
    let task = super::load(&call).await?;
    let queue = task.definition.task_queue_id.clone();
    let (provisioner_id, worker_type) = queue.parts();
    let params = call
        .url_params()
        .text("provisionerId", provisioner_id)
        .text("workerType", worker_type)
        .text("workerGroup", &body.worker_group)
        .text("workerId", &body.worker_id);
    call.authorize(params).await?;
    let run_id = run_id(&call)?;
    let worker = WorkerKey::parse(queue, &body.worker_group, &body.worker_id)?;
    let claimed = queue::claim_task(&call.app.engine, call.now, task.id.clone(), run_id, worker);
    let task = claimed.await?;
    let mut reply = reply_for_run(&call, &task, run_id)?;
    reply["task"] = json!(task.document());
    Reply::json(&reply)
}

/// The worker keeps the run for longer.
pub(super) async fn reclaim(call: Call) -> Result<Reply, ApiError> {
    let run_id = run_id(&call)?;
    let id: TaskId = call.id("taskId")?;
    let task = queue::reclaim(&call.app.engine, call.now, id, run_id).await?;
    Reply::json(&reply_for_run(&call, &task, run_id)?)
}

fn not_served(worker: &WorkerKey, failed: ClaimError) -> ApiError {
    const NAME: &str = "claim_work";
    match failed {
        ClaimError::Refused(state) => {
            let worker = worker.clone();
            TaskError::WorkerLeaving { worker, state }.into()
        }
        ClaimError::Store(problem) => problem.into(),
        ClaimError::Panicked => StoreError::Panicked { name: NAME }.into(),
    }
}

fn reply_for_run(call: &Call, task: &Task, run_id: u32) -> Result<Value, ApiError> {
    let claim = task.run(run_id).and_then(|run| run.running());
    let claim = claim.ok_or_else(|| {
        ApiError::conflict(format!("Run {run_id} of task {} is not running", task.id))
    })?;
    Ok(claim_reply(&call.app, task, run_id, claim, call.now))
}

fn claim_reply(app: &App, task: &Task, run_id: u32, claim: &Claim, now: Timestamp) -> Value {
    let credentials = queue::issue_task_credentials(&app.engine, task, run_id, claim, now);
    json!({
        "status": task.status(),
        "runId": run_id,
        "workerGroup": claim.group.as_str(),
        "workerId": claim.worker_id.as_str(),
        "takenUntil": claim.taken_until.to_string(),
        "credentials": {
            "clientId": credentials.client_id,
            "accessToken": credentials.access_token.expose(),
            "certificate": credentials.certificate_text(),
        },
    })
}
