//! Workers take tasks, and keep them.

use access::certificate;
use domain::id::{PoolId, WorkerKey};
use domain::task::{Claim, Task};
use domain::time::Timestamp;
use domain::worker::WorkerState;
use domain::worker_credentials::START_BEFORE_MS;
use engine::queue::NotServed;
use engine::queue::carry_out;
use engine::queue::{claim_end, refusal, see};
use serde::Deserialize;
use serde_json::{Value, json};
use store::StoreError;

use super::super::call::Call;
use super::super::error::ApiError;
use super::super::reply::Reply;
use super::{run_id, task_not_found};
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

/// Waits for work, and answers as soon as there is some.
pub(super) async fn claim_work(mut call: Call) -> Result<Reply, ApiError> {
    let body: ClaimWorkBody = call.body()?;
    let params = call
        .url_params()
        .text("workerGroup", &body.worker_group)
        .text("workerId", &body.worker_id);
    call.authorize(params).await?;
    let queue: PoolId = call.parameter("taskQueueId").parse()?;
    let worker = worker_key(queue, &body.worker_group, &body.worker_id)?;
    let broker = &call.app.engine.queue.broker;
    let claiming = broker.claim(&call.app.engine, worker.clone(), body.tasks, &call.gone);
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
    Reply::must_be_heard(&reply, claimed.if_unheard)
}

/// Takes one run that the worker knows by name.
pub(super) async fn claim_task(mut call: Call) -> Result<Reply, ApiError> {
    let body: ClaimTaskBody = call.body()?;
    let queue = super::load(&call).await?.definition.task_queue_id.clone();
    let (provisioner_id, worker_type) = queue.parts();
    let params = call
        .url_params()
        .text("provisionerId", provisioner_id)
        .text("workerType", worker_type)
        .text("workerGroup", &body.worker_group)
        .text("workerId", &body.worker_id);
    call.authorize(params).await?;
    let run_id = run_id(&call)?;
    let worker = worker_key(queue, &body.worker_group, &body.worker_id)?;
    let id = call.parameter("taskId").to_owned();
    let until = claim_end(&call.app.engine, call.now);
    let written = call.change("task_claim", move |change| {
        let (tx, now) = (&mut *change.tx, change.now);
        let before = store::task_get(tx, &id.parse()?)?.ok_or_else(|| task_not_found(&id))?;
        let mut found = store::claimant_list(tx, std::slice::from_ref(&worker))?;
        let store::Claimant { state, known } = found.remove(&worker).unwrap_or_default();
        if let Some(state) = refusal(state) {
            return Err(refused(&worker, state));
        }
        let moved = before
            .clone()
            .claim(run_id, &worker.group, &worker.id, now, until)?;
        if known
            .as_ref()
            .is_some_and(|known| known.is_quarantined(now))
        {
            return Err(ApiError::conflict(format!(
                "Worker {worker} is quarantined, so it gets no work"
            )));
        }
        // A second claim by the same worker changes nothing.
        let is_new = !moved.news.is_empty();
        let task = carry_out(change, &before, moved)?;
        let claimed: &[Task] = if is_new {
            std::slice::from_ref(&task)
        } else {
            &[]
        };
        see(change.tx, &worker, known, claimed, now)?;
        Ok(task)
    });
    let task = written.await?;
    let mut reply = reply_for_run(&call, &task, run_id)?;
    reply["task"] = json!(task.document());
    Reply::json(&reply)
}

/// The worker is still at it: it keeps the run for another while.
pub(super) async fn reclaim(call: Call) -> Result<Reply, ApiError> {
    let run_id = run_id(&call)?;
    let id = call.parameter("taskId").to_owned();
    let until = claim_end(&call.app.engine, call.now);
    let written = call.change("task_reclaim", move |change| {
        let now = change.now;
        let before =
            store::task_get(change.tx, &id.parse()?)?.ok_or_else(|| task_not_found(&id))?;
        let moved = before.clone().reclaim(run_id, now, until)?;
        let task = carry_out(change, &before, moved)?;
        if let Some(claim) = task.run(run_id).and_then(|run| run.running()) {
            let worker = WorkerKey {
                pool_id: task.definition.task_queue_id.clone(),
                group: claim.group.clone(),
                id: claim.worker_id.clone(),
            };
            let known = store::queue_worker_get(change.tx, &worker)?;
            see(change.tx, &worker, known, &[], now)?;
        }
        Ok::<_, ApiError>(task)
    });
    Reply::json(&reply_for_run(&call, &written.await?, run_id)?)
}

fn not_served(worker: &WorkerKey, failed: NotServed) -> ApiError {
    const NAME: &str = "claim_work";
    match failed {
        NotServed::Refused(state) => refused(worker, state),
        NotServed::Store(problem) => StoreError::Query {
            statement: NAME,
            source: problem.to_string().into(),
        }
        .into(),
        NotServed::Panicked => StoreError::Panicked { name: NAME }.into(),
    }
}

fn refused(worker: &WorkerKey, state: WorkerState) -> ApiError {
    let why = match state {
        WorkerState::Stopped => "has been removed",
        WorkerState::Stopping | WorkerState::Requested | WorkerState::Running => {
            "is being removed, as it was asked to or is past its time"
        }
    };
    ApiError::conflict(format!(
        "Worker {worker} is {state} and gets no tasks: it {why}. It should shut down; `getWorker` of the worker \
         manager says more."
    ))
}

fn reply_for_run(call: &Call, task: &Task, run_id: u32) -> Result<Value, ApiError> {
    let claim = task.run(run_id).and_then(|run| run.running());
    let claim = claim.ok_or_else(|| {
        ApiError::conflict(format!("Run {run_id} of task {} is not running", task.id))
    })?;
    Ok(claim_reply(&call.app, task, run_id, claim, call.now))
}

fn claim_reply(app: &App, task: &Task, run_id: u32, claim: &Claim, now: Timestamp) -> Value {
    json!({
        "status": task.status(),
        "runId": run_id,
        "workerGroup": claim.group.as_str(),
        "workerId": claim.worker_id.as_str(),
        "takenUntil": claim.taken_until.to_string(),
        "credentials": credentials(app, task, run_id, claim, now),
    })
}

/// What a worker may do for a run, as long as it has claimed it: its own reports, and what the task may do.
fn credentials(app: &App, task: &Task, run_id: u32, claim: &Claim, now: Timestamp) -> Value {
    let Claim {
        group,
        worker_id,
        taken_until,
        ..
    } = claim;
    let id = &task.id;
    let until = taken_until.as_millis().div_euclid(1_000);
    let name = format!("task-client/{id}/{run_id}/on/{group}/{worker_id}/until/{until}");
    let own = ["reclaim-task", "resolve-task", "create-artifact"];
    let own = own.map(|what| format!("queue:{what}:{id}/{run_id}"));
    let scopes = own
        .into_iter()
        .chain(task.definition.scopes.iter().cloned());
    let made = app.engine.random.with(|random| {
        certificate::issue(
            &app.engine.queue.issuer.as_issuer(),
            Some(&name),
            scopes.collect(),
            now.plus_millis(-START_BEFORE_MS).as_millis(),
            taken_until.as_millis(),
            random,
        )
    });
    json!({
        "clientId": made.client_id,
        "accessToken": made.access_token.expose(),
        "certificate": made.certificate_text(),
    })
}

fn worker_key(pool_id: PoolId, group: &str, id: &str) -> Result<WorkerKey, ApiError> {
    Ok(WorkerKey {
        pool_id,
        group: group.parse()?,
        id: id.parse()?,
    })
}
