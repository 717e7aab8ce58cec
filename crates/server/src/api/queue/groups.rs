//! Groups of tasks: shown, sealed, cancelled, put before others.

use domain::event::{EventBody, TaskGroupChange};
use domain::id::{TaskGroupId, TaskId};
use domain::task::{Moved, Refused, Task, TaskGroup};
use domain::time::Timestamp;
use engine::change::Change;
use engine::queue::carry_out;
use serde_json::{Value, json};
use store::StoreError;

use super::super::call::Call;
use super::super::error::ApiError;
use super::super::reply::Reply;
use super::changes::new_priority;
use super::tasks::shown;
use super::with_token;

/// So many tasks are changed in one transaction.
const BATCH: u32 = 100;
/// So many transactions change one group: a million tasks. The rest waits for another request.
const MAX_BATCHES: usize = 10_000;

pub(super) async fn show(call: Call) -> Result<Reply, ApiError> {
    Reply::json(&summary(&group(&call).await?))
}

pub(super) async fn list(call: Call) -> Result<Reply, ApiError> {
    let group = group(&call).await?;
    let page = call.page::<(String,)>()?;
    let after: Option<TaskId> = match &page.after {
        Some((id,)) => Some(id.parse()?),
        None => None,
    };
    let (id, limit) = (group.id.clone(), page.limit_and_one());
    let read = call.app.engine.store.scan("task_group_tasks", move |tx| {
        store::task_group_tasks(tx, &id, after.as_ref(), limit)
    });
    let (tasks, token) = page.cut_part(read.await?, |task| (task.id.to_string(),));
    let mut reply = summary(&group);
    reply["tasks"] = json!(shown(&tasks));
    Reply::json(&with_token(reply, token))
}

/// A group that is sealed stays so from the first time on.
pub(super) async fn seal(mut call: Call) -> Result<Reply, ApiError> {
    let id = authorized(&mut call).await?.id;
    let written = call.change("task_group_seal", move |change| {
        let found = store::task_group_get(change.tx, &id)?;
        let mut group = found.ok_or_else(|| not_found(id.as_str()))?;
        if group.sealed.is_none() {
            group.sealed = Some(change.now);
            group.version = store::task_group_update(change.tx, &group)?;
            announce(change, &group, TaskGroupChange::Sealed)?;
        }
        Ok::<_, ApiError>(group)
    });
    Reply::json(&summary(&written.await?))
}

/// Ends all that is left of a sealed group.
pub(super) async fn cancel(mut call: Call) -> Result<Reply, ApiError> {
    let group = authorized(&mut call).await?;
    if group.sealed.is_none() {
        return Err(ApiError::conflict(format!(
            "Task group {} is not sealed, so it may get further tasks while its tasks are \
             cancelled; seal it first",
            group.id
        )));
    }
    let cancelled = for_each(&call, &group.id, |task, now| task.cancel(now)).await?;
    let id = group.id.clone();
    let read = call
        .app
        .engine
        .store
        .scan("task_group_size", move |tx| store::task_group_size(tx, &id));
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
    let step = move |task: Task, _| task.change_priority(priority);
    let changed = for_each(&call, &group.id, step).await?;
    let tasks_affected = changed.len() as u64;
    let (told, news) = (
        group.clone(),
        TaskGroupChange::PriorityChanged {
            new: priority,
            tasks_affected,
        },
    );
    let written = call.change("task_group_priority", move |change| {
        announce(change, &told, news)
    });
    written.await?;
    Reply::json(&json!({
        "taskGroupId": group.id.as_str(),
        "schedulerId": group.scheduler_id.as_str(),
        "newPriority": priority.as_str(),
        "tasksAffected": tasks_affected,
        "taskIds": names(&changed),
    }))
}

fn announce(
    change: &mut Change<'_, '_>,
    group: &TaskGroup,
    news: TaskGroupChange,
) -> Result<(), StoreError> {
    let group = Box::new(group.clone());
    change.announce([EventBody::TaskGroup {
        change: news,
        group,
    }])
}

/// Moves every unresolved task of a group, in many transactions; returns those that moved. What cannot be
/// moved, because its deadline has passed, is left to the deadline.
async fn for_each(
    call: &Call,
    id: &TaskGroupId,
    step: impl Fn(Task, Timestamp) -> Result<Moved, Refused> + Copy + Send + 'static,
) -> Result<Vec<TaskId>, ApiError> {
    let change_some = |start: Option<TaskId>| {
        let id = id.clone();
        async move {
            let written = call.change("task_group_move", move |change| {
                let active = store::task_group_active(change.tx, &id, start.as_ref(), BATCH)?;
                let mut moved = Vec::new();
                for task_id in &active {
                    if move_one(change, task_id, step)? {
                        moved.push(task_id.clone());
                    }
                }
                let is_full = active.len() == BATCH as usize;
                let last = active.into_iter().next_back().filter(|_| is_full);
                Ok::<_, ApiError>((moved, last))
            });
            written.await
        }
    };
    in_batches(change_some).await
}

/// What came of one batch after the other: each begins behind the last one of the batch before it, and one that
/// names no last one ends them.
async fn in_batches<F>(mut change: impl FnMut(Option<TaskId>) -> F) -> Result<Vec<TaskId>, ApiError>
where
    F: Future<Output = Result<(Vec<TaskId>, Option<TaskId>), ApiError>>,
{
    let (mut all, mut after) = (Vec::new(), None);
    for _ in 0..MAX_BATCHES {
        let (changed, last) = change(after.take()).await?;
        all.extend(changed);
        if last.is_none() {
            break;
        }
        after = last;
    }
    Ok(all)
}

fn move_one(
    change: &mut Change<'_, '_>,
    id: &TaskId,
    step: impl Fn(Task, Timestamp) -> Result<Moved, Refused>,
) -> Result<bool, StoreError> {
    let Some(before) = store::task_get(change.tx, id)? else {
        return Ok(false);
    };
    let Ok(moved) = step(before.clone(), change.now) else {
        return Ok(false);
    };
    let has_moved = !moved.news.is_empty();
    carry_out(change, &before, moved)?;
    Ok(has_moved)
}

/// The group, once its caller may do what is asked; that depends on the group's scheduler.
async fn authorized(call: &mut Call) -> Result<TaskGroup, ApiError> {
    let group = group(call).await?;
    let params = call
        .url_params()
        .text("schedulerId", group.scheduler_id.as_str());
    call.authorize(params).await?;
    Ok(group)
}

async fn group(call: &Call) -> Result<TaskGroup, ApiError> {
    let id: TaskGroupId = call.parameter("taskGroupId").parse()?;
    let read = call
        .app
        .engine
        .store
        .read("task_group_get", move |tx| store::task_group_get(tx, &id));
    let found = read.await?;
    found.ok_or_else(|| not_found(call.parameter("taskGroupId")))
}

fn not_found(id: &str) -> ApiError {
    ApiError::not_found(format!(
        "There is no task group {id}; was it ever created, or has it expired?"
    ))
}

fn summary(group: &TaskGroup) -> Value {
    let mut reply = json!({
        "taskGroupId": group.id.as_str(),
        "schedulerId": group.scheduler_id.as_str(),
        "expires": group.expires.to_string(),
    });
    if let Some(at) = group.sealed {
        reply["sealed"] = json!(at.to_string());
    }
    reply
}

fn names(ids: &[TaskId]) -> Vec<&str> {
    ids.iter().map(TaskId::as_str).collect()
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn batches_follow_each_other_to_the_last_one_or_the_limit() {
        let name = |number: usize| {
            format!("{number:08}QACAAAAAAAAAAA")
                .parse::<TaskId>()
                .unwrap()
        };
        for n_batches in
            testing::sizes_around("server::api::queue::groups::MAX_BATCHES", MAX_BATCHES)
        {
            let mut starts = Vec::new();
            let change = |start| {
                starts.push(start);
                let changed = name(starts.len());
                // Even of nothing there is one batch: the one that finds nothing.
                let last = (starts.len() < n_batches).then(|| changed.clone());
                std::future::ready(Ok((vec![changed], last)))
            };
            let changed = in_batches(change).now_or_never().unwrap().unwrap();
            let n_made = n_batches.clamp(1, MAX_BATCHES);
            assert_eq!(changed, (1..=n_made).map(name).collect::<Vec<_>>());
            let expected = [None]
                .into_iter()
                .chain((1..n_made).map(|number| Some(name(number))));
            assert!(starts.into_iter().eq(expected));
        }
    }
}
