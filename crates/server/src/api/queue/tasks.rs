//! Tasks as the API shows them: definitions, statuses and dependents.

use std::collections::BTreeSet;

use domain::id::TaskId;
use domain::task::Task;
use serde::Deserialize;
use serde_json::{Value, json};
use store::{Part, StoreError};

use super::{load, status_reply};
use crate::api::{call::Call, error::ApiError, reply::Reply};

/// Maximum number of tasks in a request; each page holds fewer.
const MAX_TASK_IDS: usize = 10_000;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TaskIds {
    task_ids: Vec<String>,
}

pub(super) async fn task(call: Call) -> Result<Reply, ApiError> {
    Reply::json(&load(&call).await?.document())
}

pub(super) async fn status(call: Call) -> Result<Reply, ApiError> {
    status_reply(&load(&call).await?)
}

pub(super) async fn tasks(call: Call) -> Result<Reply, ApiError> {
    several(
        call,
        "tasks",
        |task| json!({"taskId": task.id.as_str(), "task": task.document()}),
    )
    .await
}

pub(super) async fn statuses(call: Call) -> Result<Reply, ApiError> {
    several(
        call,
        "statuses",
        |task| json!({"taskId": task.id.as_str(), "status": task.status()}),
    )
    .await
}

/// The existing ones among the tasks, in the order of the request, without duplicates.
async fn several(mut call: Call, name: &str, show: fn(&Task) -> Value) -> Result<Reply, ApiError> {
    let TaskIds { task_ids } = call.body()?;
    if task_ids.len() > MAX_TASK_IDS {
        let text = format!("`taskIds` may name at most {MAX_TASK_IDS} tasks");
        return Err(ApiError::input(text));
    }
    call.authorize(call.url_params().list("taskIds", task_ids.clone()))
        .await?;
    let page = call.page::<(usize,)>()?;
    let mut seen = BTreeSet::new();
    let start = page
        .after
        .as_ref()
        .map_or(0, |(place,)| place.saturating_add(1));
    let asked: Vec<(usize, TaskId)> = task_ids
        .iter()
        .enumerate()
        .filter(|(_, id)| seen.insert(id.as_str()))
        .skip_while(|(place, _)| *place < start)
        // An invalid task id names no task.
        .filter_map(|(place, id)| Some((place, id.parse().ok()?)))
        .take(page.limit_and_one() as usize)
        .collect();
    let read = call.scan("task_several", move |tx| {
        let (places, ids): (Vec<usize>, Vec<TaskId>) = asked.into_iter().unzip();
        let Part { items, is_cut } = store::tasks::get_several(tx, &ids)?;
        let items = places.into_iter().zip(items).collect();
        Ok::<_, StoreError>(Part { items, is_cut })
    });
    let (found, token) = page.cut_part(read.await?, |(place, _)| (*place,));
    let found = found.iter().filter_map(|(_, task)| task.as_ref());
    Reply::list(name, found.map(show), token)
}

pub(super) async fn dependents(call: Call) -> Result<Reply, ApiError> {
    let id = load(&call).await?.id.clone();
    let page = call.page::<(String,)>()?;
    let (after, limit) = (page.after_id()?, page.limit_and_one());
    let required = id.clone();
    let read = call.scan("task_dependents", move |tx| {
        store::dependencies::dependents(tx, &required, after.as_ref(), limit)
    });
    let (tasks, token) = page.cut_part(read.await?, |task| (task.id.to_string(),));
    let reply = json!({"taskId": id.as_str(), "tasks": shown(&tasks)});
    Reply::page(reply, token)
}

/// Definitions together with statuses.
pub(super) fn shown(tasks: &[Task]) -> Vec<Value> {
    let both = |task: &Task| json!({"task": task.document(), "status": task.status()});
    tasks.iter().map(both).collect()
}
