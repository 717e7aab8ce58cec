//! A task is made, or found to have been made already by the same request.

use access::scope::Params;
use domain::id::TaskId;
use domain::task::{BadDefinition, Priority, Task, TaskDefinition, TaskDocument};
use domain::time::{DAY_MS, MINUTE_MS};
use engine::queue;

use super::super::call::Call;
use super::super::error::ApiError;
use super::super::reply::Reply;
use super::status_reply;
use crate::config;

/// Clocks may differ by so much.
const CLOCK_SKEW_MS: i64 = 15 * MINUTE_MS;

impl From<BadDefinition> for ApiError {
    fn from(bad: BadDefinition) -> Self {
        Self::input(bad.to_string())
    }
}

pub(super) async fn create(mut call: Call) -> Result<Reply, ApiError> {
    let id: TaskId = call.parameter("taskId").parse()?;
    let document: TaskDocument = call.body()?;
    let queue = document.queue()?;
    let most = call.app.config.queue.max_dependencies;
    if document.dependencies.len() > most {
        return Err(ApiError::input(format!(
            "`dependencies` may name at most {most} tasks, and names {}",
            document.dependencies.len()
        )));
    }
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
    let definition = document.define(&id)?;
    check_dates(&definition, &call)?;
    refuse_double_stars(&definition)?;
    // As it will be read back, so that it can be compared with what is there.
    let stored = serde_json::to_string(&TaskDocument::from(&definition))
        .expect("texts and numbers always serialize");
    check_size(&definition, &stored, &call.app.config.queue)?;
    let definition = serde_json::from_str::<TaskDocument>(&stored)
        .map_err(|problem| ApiError::input(format!("The task cannot be stored: {problem}")))?
        .define(&id)?;
    let task = queue::create(&call.app.engine, call.now, Task::new(id, definition));
    status_reply(&task.await?)
}

fn check_dates(definition: &TaskDefinition, call: &Call) -> Result<(), ApiError> {
    let (now, days) = (call.now, call.app.config.queue.max_deadline_days);
    let TaskDefinition {
        created,
        deadline,
        expires,
        ..
    } = definition;
    let refuse = |text: String| Err(ApiError::input(text));
    if created.millis_since(now).abs() > CLOCK_SKEW_MS {
        return refuse(format!(
            "`created` is {created}, which is more than 15 minutes from now ({now})"
        ));
    }
    if created > deadline {
        return refuse(format!(
            "`deadline` {deadline} is before `created` {created}"
        ));
    }
    if *deadline < now {
        return refuse(format!("`deadline` {deadline} is in the past (now: {now})"));
    }
    let latest = now.plus_millis(i64::from(days) * DAY_MS + CLOCK_SKEW_MS);
    if *deadline > latest {
        return refuse(format!(
            "`deadline` {deadline} is more than {days} days in the future"
        ));
    }
    if expires < deadline {
        return refuse(format!(
            "`expires` {expires} is before `deadline` {deadline}"
        ));
    }
    Ok(())
}

/// Tasks are read many at a time, and their tags are part of every event that tells of them.
fn check_size(
    definition: &TaskDefinition,
    stored: &str,
    limits: &config::Queue,
) -> Result<(), ApiError> {
    let (most, size) = (limits.max_task_bytes, stored.len());
    if size > most {
        return Err(ApiError::input(format!(
            "A task may take {most} bytes at most, and this one takes {size}. Let it fetch what is \
             large, as an artifact of another task for example"
        )));
    }
    let tags = definition.tags.iter();
    let size: usize = tags.map(|(name, text)| name.len() + text.len()).sum();
    let most = limits.max_tags_bytes;
    if size > most {
        return Err(ApiError::input(format!(
            "`tags` may take {most} bytes at most, and these take {size}. What is long belongs in \
             `extra` or `metadata`, which are not part of every event"
        )));
    }
    Ok(())
}

fn refuse_double_stars(definition: &TaskDefinition) -> Result<(), ApiError> {
    match definition.scopes.iter().find(|scope| scope.ends_with("**")) {
        Some(scope) => Err(ApiError::input(format!(
            "`scopes` must not end with `**`: {scope}"
        ))),
        None => Ok(()),
    }
}
