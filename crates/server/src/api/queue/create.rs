//! Creates a task, or returns the task that the same request created before.

use access::scope::Params;
use domain::id::TaskId;
use domain::task::{BadDefinition, InvalidTask, Priority, TaskDocument};
use engine::queue;

use super::status_reply;
use crate::api::{call::Call, error::ApiError, reply::Reply};

pub(super) async fn create(mut call: Call) -> Result<Reply, ApiError> {
    let id: TaskId = call.id("taskId")?;
    let document: TaskDocument = call.body()?;
    let queue = document.queue()?;
    let limits = call.app.config.queue.task_limits();
    limits.check_dependencies(&document)?;
    let priority: Priority = document.priority.parse().map_err(BadDefinition::Priority)?;
    let (provisioner_id, worker_type) = queue.parts();
    let params = Params::new()
        .text("taskId", id.as_str())
        .list("scopes", document.scopes.clone())
        .list("routes", document.routes.clone())
        .text(
            "projectId",
            document.project_id.as_deref().unwrap_or("none"),
        )
        .text("schedulerId", &document.scheduler_id)
        .text("provisionerId", provisioner_id)
        .text("workerType", worker_type)
        .list(
            "priorities",
            priority
                .and_higher()
                .map(|priority| priority.to_string())
                .collect(),
        );
    call.authorize(params).await?;
    let task = limits.task(id, document, call.now)?;
    let task = queue::create_task(&call.app.engine, call.now, task);
    status_reply(&task.await?)
}

impl From<BadDefinition> for ApiError {
    fn from(bad: BadDefinition) -> Self {
        Self::input(bad.to_string())
    }
}

impl From<InvalidTask> for ApiError {
    fn from(invalid: InvalidTask) -> Self {
        Self::input(invalid.to_string())
    }
}
