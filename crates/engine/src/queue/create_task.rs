//! Creates a task, or finds the task that the same request has created before.

use std::sync::Arc;

use domain::id::TaskId;
use domain::task::{Task, TaskDefinition, TaskEvent, TaskGroup};
use domain::time::Timestamp;
use store::Tx;

use super::TaskError;
use super::transitions::{announce_news, apply_transition};
use crate::Engine;
use crate::change::Change;
use crate::configurations::{
    PayloadStatus, Verdict, load_payload_schema, payload_status, validate_payload,
};

/// After this many changes of the schema meanwhile, the caller gets an error.
const MAX_VALIDATIONS: usize = 5;
/// At most this many dependencies are named in an error.
const MAX_NAMED: usize = 20;

/// Validates the payload, and writes the task if the schema is still the same then.
pub async fn create_task(
    engine: &Arc<Engine>,
    now: Timestamp,
    task: Task,
) -> Result<Task, TaskError> {
    let task = Arc::new(task);
    let (pool_id, payload) = (&task.definition.task_queue_id, &task.definition.payload);
    for _ in 0..MAX_VALIDATIONS {
        let verdict = validate_payload(engine, pool_id, payload).await?;
        let (inner, new) = (Arc::clone(engine), Arc::clone(&task));
        let written = engine.change("task_create", now, move |change| {
            try_create(&inner, change, &new, verdict.as_ref())
        });
        if let Some(created) = written.await? {
            return Ok(created);
        }
        load_payload_schema(engine, pool_id).await?;
    }
    let text = format!(
        "The payload schema of {pool_id} was changed {MAX_VALIDATIONS} times while the payload was judged. Nothing was \
         created; send the request again."
    );
    Err(TaskError::Conflict(text))
}

/// `None`: the payload has not been validated by the current schema.
fn try_create(
    engine: &Engine,
    change: &mut Change<'_, '_>,
    task: &Task,
    verdict: Option<&Verdict>,
) -> Result<Option<Task>, TaskError> {
    let (definition, now) = (&task.definition, change.now);
    change.tx.ask(|tx| {
        store::task_groups::get(tx, &definition.task_group_id)?;
        store::tasks::get(tx, &task.id)?;
        store::task_queues::note_used(tx, &definition.task_queue_id, now, false)
    });
    match payload_status(engine, change.tx, &definition.task_queue_id, verdict)? {
        PayloadStatus::Valid => {}
        PayloadStatus::NotValidated => return Ok(None),
        PayloadStatus::Invalid(text) => {
            // The payload of an existing task was validated when it was created.
            if store::tasks::get(change.tx, &task.id)?.is_none() {
                return Err(TaskError::InvalidPayload(text));
            }
        }
    }
    join_group(change.tx, task)?;
    store::task_queues::note_used(change.tx, &definition.task_queue_id, now, false)?;
    if definition.dependencies.is_empty() {
        // Without dependencies the task is written once, as scheduled.
        let scheduled = task.clone().schedule(now)?.task;
        if store::tasks::insert(change.tx, &scheduled, change.now)? {
            let news = [TaskEvent::Defined, TaskEvent::Pending(0)];
            announce_news(change, &scheduled, &news)?;
            return Ok(Some(scheduled));
        }
    } else if store::tasks::insert(change.tx, task, change.now)? {
        // After the insert, because a task may depend on itself.
        check_dependencies(change.tx, task)?;
        announce_news(change, task, &[TaskEvent::Defined])?;
    }
    let known = store::tasks::get(change.tx, &task.id)?.ok_or_else(|| change.tx.lost_race())?;
    if known.definition != task.definition {
        let text = format!(
            "Task {} exists with another definition. This is either a second use of one id, or \
             the task was changed between two attempts to create it.",
            task.id
        );
        return Err(TaskError::Conflict(text));
    }
    require_dependencies(change, known).map(Some)
}

/// Registers the dependencies of a task, or schedules it if all of them are resolved.
fn require_dependencies(change: &mut Change<'_, '_>, task: Task) -> Result<Task, TaskError> {
    if !task.runs.is_empty() || task.definition.dependencies.is_empty() {
        return Ok(task);
    }
    store::dependencies::require(change.tx, &task)?;
    if store::dependencies::count_open(change.tx, &task.id, 1)? > 0 {
        if change.tx.has_concurrent_writers() {
            change.release_later(&task.id)?;
        }
        return Ok(task);
    }
    let moved = task.clone().schedule(change.now)?;
    Ok(apply_transition(change, &task, moved)?)
}

/// Refuses a task that could never be scheduled: dependencies do not exist, or expire too early.
fn check_dependencies(tx: &mut Tx<'_>, task: &Task) -> Result<(), TaskError> {
    let TaskDefinition {
        dependencies,
        deadline,
        ..
    } = &*task.definition;
    let known = store::dependencies::required(tx, task)?;
    let unknown = dependencies.iter().filter(|id| !known.contains_key(*id));
    let unknown: Vec<&TaskId> = unknown.collect();
    if !unknown.is_empty() {
        return Err(TaskError::Dependencies(format!(
            "`dependencies` names tasks that do not exist: {}. Nothing was created; create those first, then send \
             this request again.",
            name_tasks(&unknown)
        )));
    }
    let too_short = |id: &&TaskId| known.get(*id).is_some_and(|expires| expires < deadline);
    let too_short: Vec<&TaskId> = dependencies.iter().filter(too_short).collect();
    if !too_short.is_empty() {
        return Err(TaskError::Dependencies(format!(
            "`dependencies` names tasks that expire before the `deadline` of this task ({deadline}): {}. Nothing \
             was created; choose an earlier deadline, or let those tasks expire later.",
            name_tasks(&too_short)
        )));
    }
    Ok(())
}

fn join_group(tx: &mut Tx<'_>, task: &Task) -> Result<(), TaskError> {
    let definition = &task.definition;
    let id = &definition.task_group_id;
    let Some(mut group) = store::task_groups::get(tx, id)? else {
        let group = TaskGroup::new(
            id.clone(),
            definition.scheduler_id.clone(),
            definition.expires,
        );
        store::task_groups::insert(tx, &group)?;
        return Ok(());
    };
    if group.scheduler_id != definition.scheduler_id {
        return Err(TaskError::Conflict(format!(
            "Task group {id} contains tasks with schedulerId {}. You are attempting to include \
             a task with schedulerId {}: all tasks of a group must have the same.",
            group.scheduler_id, definition.scheduler_id
        )));
    }
    if let Some(at) = group.sealed {
        return Err(TaskError::Conflict(format!(
            "Task group {id} was sealed on {at}, and takes no further tasks"
        )));
    }
    if group.outlive(definition.expires) {
        store::task_groups::update(tx, &group)?;
    }
    Ok(())
}

/// Names at most `MAX_NAMED` tasks.
fn name_tasks(tasks: &[&TaskId]) -> String {
    let named: Vec<&str> = tasks.iter().take(MAX_NAMED).map(|id| id.as_str()).collect();
    let named = named.join(", ");
    match tasks.len().saturating_sub(MAX_NAMED) {
        0 => named,
        rest => format!("{named} and {rest} more"),
    }
}
