//! Changes of tasks by people: schedule, rerun, cancel, change the priority.

use access::scope::Params;
use domain::id::TaskId;
use domain::task::{BadDefinition, Priority, Task, Transition, TransitionError};
use domain::time::Timestamp;
use engine::queue;
use serde::Deserialize;

use super::{load, status_reply};
use crate::api::{call::Call, error::ApiError, reply::Reply};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PriorityBody {
    new_priority: String,
}

/// Works also while the task waits for its dependencies.
pub(super) async fn schedule(call: Call) -> Result<Reply, ApiError> {
    authorized(call, |task, now| task.schedule(now)).await
}

pub(super) async fn rerun(mut call: Call) -> Result<Reply, ApiError> {
    let task = load(&call).await?;
    call.authorize(params(&task)).await?;
    let rerun = queue::rerun(&call.app.engine, call.name, call.now, task.id.clone());
    status_reply(&rerun.await?)
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

/// Changes the task if its caller may do so, which depends on the task.
async fn authorized(
    mut call: Call,
    step: impl Fn(Task, Timestamp) -> Result<Transition, TransitionError> + Send + 'static,
) -> Result<Reply, ApiError> {
    let task = load(&call).await?;
    call.authorize(params(&task)).await?;
    status_reply(&moved(&call, task.id.clone(), step).await?)
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

/// Applies one transition to one task.
pub(super) async fn moved(
    call: &Call,
    id: TaskId,
    step: impl Fn(Task, Timestamp) -> Result<Transition, TransitionError> + Send + 'static,
) -> Result<Task, ApiError> {
    let (engine, name) = (&call.app.engine, call.name);
    Ok(queue::change_task(engine, name, call.now, id, step).await?)
}
