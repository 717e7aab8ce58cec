//! What a move of a task brings with it, in the same transaction: events, tasks that waited for it, the end
//! of its group, and when its worker became idle.

use std::sync::Arc;

use domain::event::{EventBody, TaskGroupChange};
use domain::id::{TaskId, WorkerKey};
use domain::task::{Moved, Task, TaskNews, TaskState};
use store::StoreError;

use crate::Engine;
use crate::change::Change;

/// So many dependents are released at once; the rest waits for the task `queue_releases`.
pub const RELEASED_AT_ONCE: u32 = 100;
/// More than transactions can be under way at once. Who sees fewer left to do may not see all: it writes a
/// row that the others write as well, so that of any two the later one runs again and sees the other.
const MANY: u32 = 256;

/// Writes a move and all that follows from it.
pub fn carry_out(
    change: &mut Change<'_, '_>,
    before: &Task,
    moved: Moved,
) -> Result<Task, StoreError> {
    let Moved { mut task, news } = moved;
    let stays = task.runs == before.runs
        && task.priority == before.priority
        && task.retries_left == before.retries_left;
    if stays {
        return Ok(task);
    }
    task.version = store::tasks::update(change.tx, before, &task)?;
    follow(change, &task, &news)?;
    if task.state().is_resolved() && !before.state().is_resolved() {
        release(change, &task)?;
        end_group(change, &task)?;
    }
    Ok(task)
}

/// Tells the news of a task that is written already.
pub fn follow(
    change: &mut Change<'_, '_>,
    task: &Task,
    news: &[TaskNews],
) -> Result<(), StoreError> {
    for news in news {
        match news {
            TaskNews::Pending(_) => {
                change.wake_queue(&task.definition.task_queue_id);
            }
            TaskNews::Completed(run_id)
            | TaskNews::Failed(run_id)
            | TaskNews::Exception(run_id) => note_idle(change, task, *run_id)?,
            TaskNews::Defined | TaskNews::Running(_) | TaskNews::PriorityChanged { .. } => {}
        }
        let body = EventBody::Task {
            news: *news,
            task: Box::new(task.clone()),
        };
        change.announce([body])?;
    }
    Ok(())
}

/// Releases tasks that waited for the end of this one; true if there are more.
fn release_some(change: &mut Change<'_, '_>, required: &Task) -> Result<bool, StoreError> {
    let completed = required.state() == TaskState::Completed;
    let waiting = store::dependencies::dependents_to_release(
        change.tx,
        &required.id,
        completed,
        RELEASED_AT_ONCE,
    )?;
    for id in &waiting {
        release_edge(change, &required.id, id)?;
    }
    Ok(waiting.len() == RELEASED_AT_ONCE as usize)
}

fn release_edge(
    change: &mut Change<'_, '_>,
    required: &TaskId,
    id: &TaskId,
) -> Result<(), StoreError> {
    store::dependencies::release(change.tx, required, id)?;
    match store::dependencies::count_open(change.tx, id, MANY)? {
        0 => {}
        left if left < MANY as usize => return store::tasks::touch(change.tx, id),
        _ => return Ok(()),
    }
    let Some(task) = store::tasks::get(change.tx, id)? else {
        return Ok(());
    };
    // A task that is past its deadline is resolved as such soon.
    match task.clone().schedule(change.now) {
        Ok(moved) => carry_out_first(change, &task, moved),
        Err(_) => Ok(()),
    }
}

/// What a second look at some tasks came to.
pub struct SecondLook {
    pub n_released: usize,
    /// There is more to release than fits into one transaction.
    pub more: bool,
}

/// Releases what is free to be released from or to these tasks, and was not seen in time by those who made it so.
pub async fn look_again(engine: &Arc<Engine>, tasks: &[TaskId]) -> Result<SecondLook, StoreError> {
    let tasks = tasks.to_vec();
    let written = engine.change("task_look_again", engine.clock.now(), move |change| {
        let edges = store::dependencies::releasable_edges(change.tx, &tasks, RELEASED_AT_ONCE)?;
        for edge in &edges {
            release_edge(change, &edge.required, &edge.waiting)?;
        }
        let more = edges.len() >= RELEASED_AT_ONCE as usize;
        if !more {
            store::dependencies::finish_rechecks(change.tx, &tasks)?;
        }
        let n_released = edges.len();
        Ok::<_, StoreError>(SecondLook { n_released, more })
    });
    written.await
}

/// A move that resolves nothing, so that releasing tasks never goes deeper.
fn carry_out_first(
    change: &mut Change<'_, '_>,
    before: &Task,
    moved: Moved,
) -> Result<(), StoreError> {
    let Moved { task, news } = moved;
    if news.is_empty() {
        return Ok(());
    }
    store::tasks::update(change.tx, before, &task)?;
    follow(change, &task, &news)
}

fn release(change: &mut Change<'_, '_>, required: &Task) -> Result<(), StoreError> {
    let more = release_some(change, required)?;
    if more || change.tx.has_concurrent_writers() {
        change.release_later(&required.id)?;
    }
    Ok(())
}

/// Tells the end of the group if this was the last of its tasks.
fn end_group(change: &mut Change<'_, '_>, task: &Task) -> Result<(), StoreError> {
    let group_id = &task.definition.task_group_id;
    let left = store::task_groups::active(change.tx, group_id, None, MANY)?.len();
    if left >= MANY as usize {
        return Ok(());
    }
    store::task_groups::touch(change.tx, group_id)?;
    if left > 0 {
        return Ok(());
    }
    let Some(group) = store::task_groups::get(change.tx, group_id)? else {
        return Ok(());
    };
    let body = EventBody::TaskGroup {
        change: TaskGroupChange::Resolved,
        group: Box::new(group),
    };
    change.announce([body])
}

fn note_idle(change: &mut Change<'_, '_>, task: &Task, run_id: u32) -> Result<(), StoreError> {
    let Some(claim) = task.run(run_id).and_then(|run| run.claim.as_ref()) else {
        return Ok(());
    };
    let worker = WorkerKey {
        pool_id: task.definition.task_queue_id.clone(),
        group: claim.group.clone(),
        id: claim.worker_id.clone(),
    };
    store::claimed_tasks::note_ended(change.tx, &worker, change.now)
}
