//! A task is made, or found to have been made already by the same request.

use std::sync::Arc;

use domain::id::TaskId;
use domain::task::{Moved, Task, TaskDefinition, TaskGroup, TaskNews};
use domain::time::Timestamp;
use store::Tx;

use super::TaskError;
use super::moves::{carry_out, follow};
use crate::Engine;
use crate::change::Change;
use crate::configurations::{
    Standing, Verdict, judge_payload, learn_payload_schema, payload_standing,
};

/// Who meets another schema each time is told to come back later.
const MAX_JUDGEMENTS: usize = 5;
/// So many dependencies are named in an error.
const MAX_NAMED: usize = 20;

/// Judges the payload, and writes the task if the verdict still counts then.
pub async fn create(engine: &Arc<Engine>, now: Timestamp, task: Task) -> Result<Task, TaskError> {
    let task = Arc::new(task);
    let (pool_id, payload) = (&task.definition.task_queue_id, &task.definition.payload);
    for _ in 0..MAX_JUDGEMENTS {
        let verdict = judge_payload(engine, pool_id, payload).await?;
        let (inner, new) = (Arc::clone(engine), Arc::clone(&task));
        let written = engine.change("task_create", now, move |change| {
            make(&inner, change, &new, verdict.as_ref())
        });
        if let Some(made) = written.await? {
            return Ok(made);
        }
        learn_payload_schema(engine, pool_id).await?;
    }
    let text = format!(
        "The payload schema of {pool_id} was changed {MAX_JUDGEMENTS} times while the payload was judged. Nothing was \
         created; send the request again."
    );
    Err(TaskError::Conflict(text))
}

/// `None`: its payload has not been judged by the schema that is there now.
fn make(
    engine: &Engine,
    change: &mut Change<'_, '_>,
    task: &Task,
    verdict: Option<&Verdict>,
) -> Result<Option<Task>, TaskError> {
    let (definition, now) = (&task.definition, change.now);
    match payload_standing(engine, change.tx, &definition.task_queue_id, verdict)? {
        Standing::Fits => {}
        Standing::NotJudged => return Ok(None),
        Standing::Misfit(misfit) => {
            // One that is there already has been judged when it was made.
            if store::tasks::get(change.tx, &task.id)?.is_none() {
                return Err(TaskError::Misfit(misfit));
            }
        }
    }
    join_group(change.tx, task)?;
    store::task_queues::note_used(change.tx, &definition.task_queue_id, now, false)?;
    if definition.dependencies.is_empty() {
        // Nothing to wait for: it is written once, as it will stand.
        let scheduled = match task.clone().schedule(now) {
            Ok(moved) => moved.task,
            Err(refused) => return Err(refused.into()),
        };
        if store::tasks::insert(change.tx, &scheduled)? {
            let news = [TaskNews::Defined, TaskNews::Pending(0)];
            follow(change, &scheduled, &news)?;
            return Ok(Some(scheduled));
        }
    } else if store::tasks::insert(change.tx, task)? {
        // One may be the task itself, which is there by now.
        check_dependencies(change.tx, task)?;
        follow(change, task, &[TaskNews::Defined])?;
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
    depend(change, known).map(Some)
}

/// Makes an unscheduled task wait for its dependencies, or schedules it if all is done already.
fn depend(change: &mut Change<'_, '_>, task: Task) -> Result<Task, TaskError> {
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
    let moved: Moved = task.clone().schedule(change.now)?;
    Ok(carry_out(change, &task, moved)?)
}

/// A task whose dependencies do not exist, or not for long enough, would never be scheduled.
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
            named(&unknown)
        )));
    }
    let too_short = |id: &&TaskId| known.get(*id).is_some_and(|expires| expires < deadline);
    let too_short: Vec<&TaskId> = dependencies.iter().filter(too_short).collect();
    if !too_short.is_empty() {
        return Err(TaskError::Dependencies(format!(
            "`dependencies` names tasks that expire before the `deadline` of this task ({deadline}): {}. Nothing \
             was created; choose an earlier deadline, or let those tasks expire later.",
            named(&too_short)
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
        if !store::task_groups::insert(tx, &group)? {
            return Err(tx.lost_race().into());
        }
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

/// Some of these, so that the message does not grow without end.
fn named(tasks: &[&TaskId]) -> String {
    let named: Vec<&str> = tasks.iter().take(MAX_NAMED).map(|id| id.as_str()).collect();
    let named = named.join(", ");
    match tasks.len().saturating_sub(MAX_NAMED) {
        0 => named,
        rest => format!("{named} and {rest} more"),
    }
}
