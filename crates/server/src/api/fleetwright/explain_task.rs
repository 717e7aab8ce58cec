//! Explains why a task waits, and where its waiting time went.

use domain::id::TaskId;
use domain::task::Task;
use domain::task_wait::{WaitAnswer, WayOut};
use domain::time::Timestamp;
use domain::waits::{TaskWaits, WaitPart};
use engine::fleet::{self, TaskExplanation};
use engine::queue::TaskError;
use serde_json::{Value, json};

use crate::api::{call::Call, error::ApiError, reply::Reply};

pub(super) async fn task(mut call: Call) -> Result<Reply, ApiError> {
    let id: TaskId = call.id("taskId")?;
    let named = id.clone();
    let read = call.read("task_get", move |tx| store::tasks::get(tx, &named));
    let task = read
        .await?
        .ok_or_else(|| TaskError::NoSuchTask(id.clone()))?;
    let queue = task.definition.task_queue_id.as_str();
    let params = call.url_params().text("workerPoolId", queue);
    call.authorize(params).await?;
    let explained = fleet::explain_task(&call.app.engine, &id, call.now).await?;
    let explained = explained.ok_or(TaskError::NoSuchTask(id))?;
    Reply::json(&json(&explained, call.now))
}

fn json(explained: &TaskExplanation, now: Timestamp) -> Value {
    let TaskExplanation {
        task,
        answer,
        n_ahead,
        parts,
    } = explained;
    let definition = &task.definition;
    let mut all = TaskWaits::default();
    let mut last = TaskWaits::default();
    let run_id = task.runs.len().saturating_sub(1);
    for (run, part) in parts {
        all.add(std::slice::from_ref(part));
        if *run == run_id {
            last.add(std::slice::from_ref(part));
        }
    }
    let changes = answer.iter().flat_map(|answer| &answer.changes);
    let by_cause = all
        .by_cause
        .iter()
        .map(|(cause, ms)| json!({"cause": cause.as_str(), "label": cause.label(), "ms": ms}));
    json!({
        "taskId": task.id.as_str(),
        "name": name(task),
        "workerPoolId": definition.task_queue_id.as_str(),
        "time": now.to_string(),
        "state": task.state().as_str(),
        "deadline": definition.deadline.to_string(),
        "cause": answer.as_ref().map(|answer| answer.cause.as_str()),
        "label": answer.as_ref().map(|answer| answer.cause.label()),
        "reason": answer.as_ref().map(|answer| answer.reason.as_str()),
        "changes": changes.map(change_json).collect::<Vec<_>>(),
        "latest": answer.as_ref().map(|answer| answer.latest.to_string()),
        "latestIsDeadline": is_deadline(answer.as_ref(), task),
        "ahead": n_ahead,
        "run": run_id,
        "waitedMs": last.total_ms(),
        "totalMs": all.total_ms(),
        "causes": by_cause.collect::<Vec<_>>(),
        "waits": parts.iter().map(part_json).collect::<Vec<_>>(),
    })
}

fn name(task: &Task) -> String {
    let document = task.document();
    let name = document.metadata.get("name").and_then(Value::as_str);
    name.unwrap_or_default().to_owned()
}

fn is_deadline(answer: Option<&WaitAnswer>, task: &Task) -> bool {
    answer.is_some_and(|answer| answer.latest == task.definition.deadline)
}

fn change_json(change: &WayOut) -> Value {
    json!({
        "what": change.what,
        "by": change.by.map(|by| by.to_string()),
        "byHand": change.is_by_hand,
    })
}

fn part_json((run, part): &(usize, WaitPart)) -> Value {
    json!({
        "run": run,
        "cause": part.cause.as_str(),
        "label": part.cause.label(),
        "since": part.since.to_string(),
        "until": part.until.to_string(),
        "ms": part.millis(),
    })
}
