//! Groups of tasks: lists, seals and cancels them, and changes their priority.

use domain::id::{TaskGroupId, TaskId};
use domain::task::TaskGroup;
use engine::queue::{TaskError, cancel_group, change_group_priority, seal_group};
use serde_json::{Value, json};

use super::changes::new_priority;
use super::tasks::shown;
use crate::api::{
    call::Call,
    error::ApiError,
    reply::{Reply, without_nulls},
};

pub(super) async fn show(call: Call) -> Result<Reply, ApiError> {
    Reply::json(&summary(&group(&call).await?))
}

pub(super) async fn list(call: Call) -> Result<Reply, ApiError> {
    let group = group(&call).await?;
    let page = call.page::<(String,)>()?;
    let (after, limit) = (page.after_id()?, page.limit_and_one());
    let id = group.id.clone();
    let read = call.scan("task_group_tasks", move |tx| {
        store::task_groups::tasks(tx, &id, after.as_ref(), limit)
    });
    let (tasks, token) = page.cut_part(read.await?, |task| (task.id.to_string(),));
    let mut reply = summary(&group);
    reply["tasks"] = json!(shown(&tasks));
    Reply::page(reply, token)
}

pub(super) async fn seal(mut call: Call) -> Result<Reply, ApiError> {
    let id = authorized(&mut call).await?.id;
    let sealed = seal_group(&call.app.engine, call.now, id);
    Reply::json(&summary(&sealed.await?))
}

/// Cancels the unresolved tasks of a sealed group.
pub(super) async fn cancel(mut call: Call) -> Result<Reply, ApiError> {
    let group = authorized(&mut call).await?;
    let cancelled = cancel_group(&call.app.engine, call.now, &group).await?;
    let id = group.id.clone();
    let read = call.scan("task_group_size", move |tx| {
        store::task_groups::size(tx, &id)
    });
    Reply::json(&json!({
        "taskGroupId": group.id.as_str(),
        "taskGroupSize": read.await?,
        "cancelledCount": cancelled.len(),
        "taskIds": names(&cancelled),
    }))
}

pub(super) async fn change_priority(mut call: Call) -> Result<Reply, ApiError> {
    let priority = new_priority(&call)?;
    let group = authorized(&mut call).await?;
    let changed = change_group_priority(&call.app.engine, call.now, &group, priority).await?;
    Reply::json(&json!({
        "taskGroupId": group.id.as_str(),
        "schedulerId": group.scheduler_id.as_str(),
        "newPriority": priority.as_str(),
        "tasksAffected": changed.len(),
        "taskIds": names(&changed),
    }))
}

/// The group, if the caller may change it. That depends on the group's scheduler.
async fn authorized(call: &mut Call) -> Result<TaskGroup, ApiError> {
    let group = group(call).await?;
    let params = call
        .url_params()
        .text("schedulerId", group.scheduler_id.as_str());
    call.authorize(params).await?;
    Ok(group)
}

async fn group(call: &Call) -> Result<TaskGroup, ApiError> {
    let id: TaskGroupId = call.id("taskGroupId")?;
    let named = id.clone();
    let read = call.read("task_group_get", move |tx| {
        store::task_groups::get(tx, &named)
    });
    Ok(read.await?.ok_or(TaskError::NoSuchGroup(id))?)
}

fn summary(group: &TaskGroup) -> Value {
    without_nulls(json!({
        "taskGroupId": group.id.as_str(),
        "schedulerId": group.scheduler_id.as_str(),
        "expires": group.expires.to_string(),
        "sealed": group.sealed.map(|at| at.to_string()),
    }))
}

fn names(ids: &[TaskId]) -> Vec<&str> {
    ids.iter().map(TaskId::as_str).collect()
}
