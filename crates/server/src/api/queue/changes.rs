//! What people do to a task: schedule it at once, run it again, cancel it, put it before others.

use access::scope::Params;
use domain::id::TaskId;
use domain::task::{BadDefinition, Moved, Priority, Refused, Task};
use domain::time::Timestamp;
use engine::queue::{carry_out, look_again};
use serde::Deserialize;
use store::StoreError;

use super::super::call::Call;
use super::super::error::ApiError;
use super::super::reply::Reply;
use super::{load, status_reply, task_not_found};

/// So many batches of dependents are released before a task runs again.
const MAX_RELEASES: usize = 1_000;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PriorityBody {
    new_priority: String,
}

/// Also while it waits for others.
pub(super) async fn schedule(call: Call) -> Result<Reply, ApiError> {
    authorized(call, |task, now| task.schedule(now)).await
}

/// Whom the end of a task has freed is free, whatever the task does next: all of them go first.
pub(super) async fn rerun(mut call: Call) -> Result<Reply, ApiError> {
    let task = load(&call).await?;
    call.authorize(params(&task)).await?;
    let id = task.id.clone();
    let look = call.app.engine.store.read("task_look_is_due", move |tx| {
        store::task_look_is_due(tx, &id)
    });
    let is_due = look.await?;
    let release = || {
        let (engine, id) = (call.app.engine.clone(), task.id.clone());
        async move { Ok::<_, StoreError>(look_again(&engine, &[id]).await?.more) }
    };
    if release_all(is_due, release).await? {
        let rerun = |task: Task, now| task.rerun(now);
        return status_reply(&moved(&call, task.id, rerun).await?);
    }
    Err(ApiError::conflict(format!(
        "Task {} has ended, and more tasks waited for that than could be released yet; try again in \
         a minute",
        task.id
    )))
}

/// Releases one batch after the other as long as there is more, up to a limit. False: there is still more.
async fn release_all<F>(mut more: bool, mut release: impl FnMut() -> F) -> Result<bool, StoreError>
where
    F: Future<Output = Result<bool, StoreError>>,
{
    for _ in 0..MAX_RELEASES {
        if !more {
            break;
        }
        more = release().await?;
    }
    Ok(!more)
}

pub(super) async fn cancel(call: Call) -> Result<Reply, ApiError> {
    authorized(call, |task, now| task.cancel(now)).await
}

pub(super) async fn change_priority(call: Call) -> Result<Reply, ApiError> {
    let priority = new_priority(&call)?;
    authorized(call, move |task, _| task.change_priority(priority)).await
}

pub(super) fn new_priority(call: &Call) -> Result<Priority, ApiError> {
    let PriorityBody { new_priority } = call.body()?;
    let priority = new_priority.parse().map_err(BadDefinition::Priority);
    Ok(priority?)
}

/// Moves the task once its caller may do that, which depends on the task.
async fn authorized(
    mut call: Call,
    step: impl Fn(Task, Timestamp) -> Result<Moved, Refused> + Send + 'static,
) -> Result<Reply, ApiError> {
    let task = load(&call).await?;
    call.authorize(params(&task)).await?;
    status_reply(&moved(&call, task.id, step).await?)
}

fn params(task: &Task) -> Params {
    let definition = &task.definition;
    Params::new()
        .text("taskId", task.id.as_str())
        .text("taskGroupId", definition.task_group_id.as_str())
        .text("schedulerId", definition.scheduler_id.as_str())
        .text("projectId", definition.project_id.as_str())
        .text("taskQueueId", definition.task_queue_id.as_str())
}

/// Makes one move of one task, and tells everybody.
pub(super) async fn moved(
    call: &Call,
    id: TaskId,
    step: impl Fn(Task, Timestamp) -> Result<Moved, Refused> + Send + 'static,
) -> Result<Task, ApiError> {
    let written = call.change(call.endpoint.name, move |change| {
        let before = store::task_get(change.tx, &id)?.ok_or_else(|| task_not_found(id.as_str()))?;
        let moved = step(before.clone(), change.now)?;
        Ok::<_, ApiError>(carry_out(change, &before, moved)?)
    });
    written.await
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn batches_are_released_until_there_are_no_more_or_too_many() {
        for n_batches in
            testing::sizes_around("server::api::queue::changes::MAX_RELEASES", MAX_RELEASES)
        {
            let mut n_released = 0;
            let release = || {
                n_released += 1;
                std::future::ready(Ok(n_released < n_batches))
            };
            let is_done = release_all(n_batches > 0, release).now_or_never();
            assert_eq!(is_done.unwrap().unwrap(), n_batches <= MAX_RELEASES);
            assert_eq!(n_released, n_batches.min(MAX_RELEASES));
        }
    }
}
