//! A task is made, or found to have been made already by the same request.

use std::sync::Arc;

use access::scope::Params;
use domain::id::TaskId;
use domain::task::{
    BadDefinition, Moved, Priority, Task, TaskDefinition, TaskDocument, TaskGroup, TaskNews,
};
use domain::time::{DAY_MS, MINUTE_MS};
use engine::change::Change;
use engine::queue::{carry_out, follow};
use store::Tx;

use super::super::call::Call;
use super::super::error::ApiError;
use super::super::reply::Reply;
use super::super::worker_manager::{
    Standing, Verdict, judge_payload, learn_payload_schema, payload_standing,
};
use super::status_reply;
use crate::app::App;
use crate::config;

/// Clocks may differ by so much.
const CLOCK_SKEW_MS: i64 = 15 * MINUTE_MS;
/// Who meets another schema each time is told to come back later.
const MAX_JUDGEMENTS: usize = 5;
/// So many dependencies are named in an error.
const MAX_NAMED: usize = 20;

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
    let task = Task::new(id, definition);
    status_reply(&write(&call, task).await?)
}

/// Judges the payload, and writes the task if the verdict still counts then.
async fn write(call: &Call, task: Task) -> Result<Task, ApiError> {
    let task = Arc::new(task);
    let (pool_id, payload) = (&task.definition.task_queue_id, &task.definition.payload);
    for _ in 0..MAX_JUDGEMENTS {
        let verdict = judge_payload(&call.app, pool_id, payload).await?;
        let (app, new) = (call.app.clone(), Arc::clone(&task));
        let written = call.change("task_create", move |change| {
            make(&app, change, &new, verdict.as_ref())
        });
        if let Some(made) = written.await? {
            return Ok(made);
        }
        learn_payload_schema(&call.app, pool_id).await?;
    }
    let text = format!(
        "The payload schema of {pool_id} was changed {MAX_JUDGEMENTS} times while the payload was judged. Nothing was \
         created; send the request again."
    );
    Err(ApiError::conflict(text))
}

/// `None`: its payload has not been judged by the schema that is there now.
fn make(
    app: &App,
    change: &mut Change<'_, '_>,
    task: &Task,
    verdict: Option<&Verdict>,
) -> Result<Option<Task>, ApiError> {
    let (definition, now) = (&task.definition, change.now);
    match payload_standing(app, change.tx, &definition.task_queue_id, verdict)? {
        Standing::Fits => {}
        Standing::NotJudged => return Ok(None),
        Standing::Misfit(misfit) => {
            // One that is there already has been judged when it was made.
            if store::task_get(change.tx, &task.id)?.is_none() {
                return Err(misfit);
            }
        }
    }
    join_group(change.tx, task)?;
    store::task_queue_seen(change.tx, &definition.task_queue_id, now, false)?;
    if definition.dependencies.is_empty() {
        // Nothing to wait for: it is written once, as it will stand.
        let scheduled = match task.clone().schedule(now) {
            Ok(moved) => moved.task,
            Err(refused) => return Err(refused.into()),
        };
        if store::task_insert(change.tx, &scheduled)? {
            let news = [TaskNews::Defined, TaskNews::Pending(0)];
            follow(change, &scheduled, &news)?;
            return Ok(Some(scheduled));
        }
    } else if store::task_insert(change.tx, task)? {
        // One may be the task itself, which is there by now.
        check_dependencies(change.tx, task)?;
        follow(change, task, &[TaskNews::Defined])?;
    }
    let known = store::task_get(change.tx, &task.id)?.ok_or_else(|| change.tx.lost_race())?;
    if known.definition != task.definition {
        let text = format!(
            "Task {} exists with another definition. This is either a second use of one id, or \
             the task was changed between two attempts to create it.",
            task.id
        );
        return Err(ApiError::conflict(text));
    }
    depend(change, known).map(Some)
}

/// Makes an unscheduled task wait for its dependencies, or schedules it if all is done already.
fn depend(change: &mut Change<'_, '_>, task: Task) -> Result<Task, ApiError> {
    if !task.runs.is_empty() || task.definition.dependencies.is_empty() {
        return Ok(task);
    }
    store::task_require(change.tx, &task)?;
    if store::task_open_dependencies(change.tx, &task.id, 1)? > 0 {
        if change.tx.has_rivals() {
            change.release_later(&task.id)?;
        }
        return Ok(task);
    }
    let moved: Moved = task.clone().schedule(change.now)?;
    Ok(carry_out(change, &task, moved)?)
}

/// A task whose dependencies do not exist, or not for long enough, would never be scheduled.
fn check_dependencies(tx: &mut Tx<'_>, task: &Task) -> Result<(), ApiError> {
    let TaskDefinition {
        dependencies,
        deadline,
        ..
    } = &*task.definition;
    let known = store::task_required(tx, task)?;
    let unknown = dependencies.iter().filter(|id| !known.contains_key(*id));
    let unknown: Vec<&TaskId> = unknown.collect();
    if !unknown.is_empty() {
        return Err(ApiError::input(format!(
            "`dependencies` names tasks that do not exist: {}. Nothing was created; create those first, then send \
             this request again.",
            named(&unknown)
        )));
    }
    let too_short = |id: &&TaskId| known.get(*id).is_some_and(|expires| expires < deadline);
    let too_short: Vec<&TaskId> = dependencies.iter().filter(too_short).collect();
    if !too_short.is_empty() {
        return Err(ApiError::input(format!(
            "`dependencies` names tasks that expire before the `deadline` of this task ({deadline}): {}. Nothing \
             was created; choose an earlier deadline, or let those tasks expire later.",
            named(&too_short)
        )));
    }
    Ok(())
}

fn join_group(tx: &mut Tx<'_>, task: &Task) -> Result<(), ApiError> {
    let definition = &task.definition;
    let id = &definition.task_group_id;
    let Some(mut group) = store::task_group_get(tx, id)? else {
        let group = TaskGroup::new(
            id.clone(),
            definition.scheduler_id.clone(),
            definition.expires,
        );
        if !store::task_group_insert(tx, &group)? {
            return Err(tx.lost_race().into());
        }
        return Ok(());
    };
    if group.scheduler_id != definition.scheduler_id {
        return Err(ApiError::conflict(format!(
            "Task group {id} contains tasks with schedulerId {}. You are attempting to include \
             a task with schedulerId {}: all tasks of a group must have the same.",
            group.scheduler_id, definition.scheduler_id
        )));
    }
    if let Some(at) = group.sealed {
        return Err(ApiError::conflict(format!(
            "Task group {id} was sealed on {at}, and takes no further tasks"
        )));
    }
    if group.outlive(definition.expires) {
        store::task_group_update(tx, &group)?;
    }
    Ok(())
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

/// Some of these, so that the message does not grow without end.
fn named(tasks: &[&TaskId]) -> String {
    let named: Vec<&str> = tasks.iter().take(MAX_NAMED).map(|id| id.as_str()).collect();
    let named = named.join(", ");
    match tasks.len().saturating_sub(MAX_NAMED) {
        0 => named,
        rest => format!("{named} and {rest} more"),
    }
}

impl From<domain::task::Refused> for ApiError {
    fn from(refused: domain::task::Refused) -> Self {
        use domain::task::Refused;
        let text = refused.to_string();
        match refused {
            Refused::NoSuchRun { .. } => Self::not_found(text),
            Refused::PastDeadline { .. }
            | Refused::WrongState { .. }
            | Refused::ClaimedByAnother { .. }
            | Refused::TooManyRuns { .. }
            | Refused::Resolved { .. } => Self::conflict(text),
        }
    }
}
