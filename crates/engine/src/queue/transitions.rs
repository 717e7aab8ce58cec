//! Applies transitions of tasks: in one transaction the task, its events, the release of its
//! dependents, the end of its group, and the time at which its worker became idle.

use std::sync::Arc;

use domain::event::{EventBody, TaskGroupChange};
use domain::id::{TaskId, WorkerKey};
use domain::task::{Claim, Task, TaskEvent, TaskState, Transition, TransitionError};
use store::StoreError;

use crate::Engine;
use crate::change::Change;

/// At most this many dependents are released at once; `queue_releases` does the rest.
pub const RELEASE_BATCH: u32 = 100;
/// More than transactions can run at once. A transaction that counts fewer may not see the changes
/// of concurrent ones. It updates a row that they update as well, so that the later one runs again.
const COUNT_LIMIT: u32 = 256;

/// Writes a transition and its consequences.
pub(super) fn apply_transition(
    change: &mut Change<'_, '_>,
    before: &Task,
    moved: Transition,
) -> store::Result<Task> {
    let Transition { task, news } = moved;
    let is_unchanged = task.runs == before.runs
        && task.priority == before.priority
        && task.retries_left == before.retries_left;
    if is_unchanged {
        return Ok(task);
    }
    let version = store::tasks::update(change.tx, before, &task)?;
    let task = task.with_version(version);
    announce_news(change, &task, &news)?;
    if task.state().is_resolved() && !before.state().is_resolved() {
        let group_id = &task.definition.task_group_id;
        let tx = &mut *change.tx;
        tx.ask(|tx| store::task_groups::active(tx, group_id, None, COUNT_LIMIT));
        release_dependents_of(change, &task)?;
        announce_group_end(change, &task)?;
    }
    Ok(task)
}

/// Applies a transition to a stored task. `None`: the task does not exist, or does not allow it.
pub fn try_transition(
    change: &mut Change<'_, '_>,
    id: &TaskId,
    step: impl FnOnce(Task) -> Result<Transition, TransitionError>,
) -> store::Result<Option<Task>> {
    let Some(before) = store::tasks::get(change.tx, id)? else {
        return Ok(None);
    };
    match step(before.clone()) {
        Ok(moved) => apply_transition(change, &before, moved).map(Some),
        Err(_) => Ok(None),
    }
}

/// Publishes the news of a task that has been written, and wakes the workers that it concerns.
pub(super) fn announce_news(
    change: &mut Change<'_, '_>,
    task: &Task,
    news: &[TaskEvent],
) -> store::Result<()> {
    for news in news {
        match news {
            TaskEvent::Pending(_) => {
                change.wake_queue(&task.definition.task_queue_id);
            }
            TaskEvent::Completed(run_id)
            | TaskEvent::Failed(run_id)
            | TaskEvent::Exception(run_id) => note_worker_idle(change, task, *run_id)?,
            TaskEvent::Defined | TaskEvent::Running(_) | TaskEvent::PriorityChanged { .. } => {}
        }
        let body = EventBody::Task {
            news: *news,
            task: Box::new(task.clone()),
        };
        change.announce([body])?;
    }
    Ok(())
}

fn release_edge(change: &mut Change<'_, '_>, required: &TaskId, id: &TaskId) -> store::Result<()> {
    store::dependencies::release(change.tx, required, id)?;
    match store::dependencies::count_open(change.tx, id, COUNT_LIMIT)? {
        0 => {}
        left if left < COUNT_LIMIT as usize => return store::tasks::touch(change.tx, id),
        _ => return Ok(()),
    }
    // A task that is past its deadline is resolved soon by the deadline. Scheduling resolves none,
    // so releasing tasks does not recurse.
    let now = change.now;
    try_transition(change, id, |task| task.schedule(now)).map(drop)
}

pub struct ReleaseResult {
    pub n_released: usize,
    /// More dependents are left than fit into one transaction.
    pub more: bool,
}

/// Releases dependents of these tasks that the transactions of their last dependencies did not see.
pub async fn release_dependents(
    engine: &Arc<Engine>,
    tasks: &[TaskId],
) -> store::Result<ReleaseResult> {
    let tasks = tasks.to_vec();
    let written = engine.change_alone("dependents_release", engine.clock.now(), move |change| {
        let edges = store::dependencies::releasable_edges(change.tx, &tasks, RELEASE_BATCH)?;
        for edge in &edges {
            release_edge(change, &edge.required, &edge.waiting)?;
        }
        let more = edges.len() >= RELEASE_BATCH as usize;
        if !more {
            store::dependencies::finish_rechecks(change.tx, &tasks)?;
        }
        let n_released = edges.len();
        Ok::<_, StoreError>(ReleaseResult { n_released, more })
    });
    written.await
}

/// Releases tasks that waited for the end of this one.
fn release_dependents_of(change: &mut Change<'_, '_>, required: &Task) -> store::Result<()> {
    let completed = required.state() == TaskState::Completed;
    let waiting = store::dependencies::dependents_to_release(
        change.tx,
        &required.id,
        completed,
        RELEASE_BATCH,
    )?;
    for id in &waiting {
        release_edge(change, &required.id, id)?;
    }
    let more = waiting.len() == RELEASE_BATCH as usize;
    if more || change.tx.has_concurrent_writers() {
        change.release_later(&required.id)?;
    }
    Ok(())
}

/// Announces the end of the group if this was its last task.
fn announce_group_end(change: &mut Change<'_, '_>, task: &Task) -> store::Result<()> {
    let group_id = &task.definition.task_group_id;
    let left = store::task_groups::active(change.tx, group_id, None, COUNT_LIMIT)?.len();
    if left >= COUNT_LIMIT as usize {
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

fn note_worker_idle(change: &mut Change<'_, '_>, task: &Task, run_id: u32) -> store::Result<()> {
    let Some(claim) = task.run(run_id).and_then(|run| run.claim.as_ref()) else {
        return Ok(());
    };
    store::claimed_tasks::note_ended(change.tx, &claimant(task, claim), change.now)
}

/// The worker that has or had this claim.
pub(super) fn claimant(task: &Task, claim: &Claim) -> WorkerKey {
    WorkerKey {
        pool_id: task.definition.task_queue_id.clone(),
        group: claim.group.clone(),
        id: claim.worker_id.clone(),
    }
}
