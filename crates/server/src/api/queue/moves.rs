//! What a move of a task brings with it, in the same transaction: events, tasks that waited for it, the end
//! of its group, and when its worker became idle.

use std::collections::BTreeSet;
use std::sync::Arc;

use domain::event::{EventBody, TaskGroupChange};
use domain::id::{PoolId, TaskId, WorkerKey};
use domain::task::{Moved, Task, TaskNews, TaskState};
use domain::time::Timestamp;
use store::{StoreError, Tx};

use crate::app::App;

/// So many dependents are released at once; the rest waits for the task `queue_releases`.
pub(crate) const RELEASED_AT_ONCE: u32 = 100;
/// More than transactions can be under way at once. Who sees fewer left to do may not see all: it writes a
/// row that the others write as well, so that of any two the later one runs again and sees the other.
const MANY: u32 = 256;

/// Hints for the others, once the transaction is there to be seen. A lost one only delays.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct Hints {
    pending: BTreeSet<PoolId>,
    /// These are to be looked at again: who waits for whom may have changed unseen.
    look_again: Vec<TaskId>,
}

impl Hints {
    pub(crate) fn tell(self, app: &Arc<App>) {
        for queue in &self.pending {
            app.queue.broker.ring(app, queue);
            app.wake.pool(queue);
        }
        app.queue.releases.add(self.look_again);
    }

    /// Sees to it that this task is looked at again after the commit, by whatever process.
    pub(crate) fn look_again(
        &mut self,
        tx: &mut Tx<'_>,
        task: &TaskId,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        store::task_look_again(tx, task, now)?;
        self.look_again.push(task.clone());
        Ok(())
    }
}

/// Writes a move and all that follows from it.
pub(crate) fn carry_out(
    app: &App,
    tx: &mut Tx<'_>,
    before: &Task,
    moved: Moved,
    now: Timestamp,
    hints: &mut Hints,
) -> Result<Task, StoreError> {
    let Moved { mut task, news } = moved;
    let stays = task.runs == before.runs
        && task.priority == before.priority
        && task.retries_left == before.retries_left;
    if stays {
        return Ok(task);
    }
    task.version = store::task_update(tx, before, &task)?;
    follow(app, tx, &task, &news, now, hints)?;
    if task.state().is_resolved() && !before.state().is_resolved() {
        release(app, tx, &task, now, hints)?;
        end_group(app, tx, &task, now)?;
    }
    Ok(task)
}

/// Tells the news of a task that is written already.
pub(crate) fn follow(
    app: &App,
    tx: &mut Tx<'_>,
    task: &Task,
    news: &[TaskNews],
    now: Timestamp,
    hints: &mut Hints,
) -> Result<(), StoreError> {
    for news in news {
        match news {
            TaskNews::Pending(_) => {
                hints.pending.insert(task.definition.task_queue_id.clone());
            }
            TaskNews::Completed(run_id)
            | TaskNews::Failed(run_id)
            | TaskNews::Exception(run_id) => note_idle(tx, task, *run_id, now)?,
            TaskNews::Defined | TaskNews::Running(_) | TaskNews::PriorityChanged { .. } => {}
        }
        let body = EventBody::Task {
            news: *news,
            task: Box::new(task.clone()),
        };
        app.announce(tx, now, [body])?;
    }
    Ok(())
}

/// Releases tasks that waited for the end of this one; true if there are more.
fn release_some(
    app: &App,
    tx: &mut Tx<'_>,
    required: &Task,
    now: Timestamp,
    hints: &mut Hints,
) -> Result<bool, StoreError> {
    let completed = required.state() == TaskState::Completed;
    let waiting = store::task_dependents_to_release(tx, &required.id, completed, RELEASED_AT_ONCE)?;
    for id in &waiting {
        release_edge(app, tx, &required.id, id, now, hints)?;
    }
    Ok(waiting.len() == RELEASED_AT_ONCE as usize)
}

fn release_edge(
    app: &App,
    tx: &mut Tx<'_>,
    required: &TaskId,
    id: &TaskId,
    now: Timestamp,
    hints: &mut Hints,
) -> Result<(), StoreError> {
    store::task_dependency_release(tx, required, id)?;
    match store::task_open_dependencies(tx, id, MANY)? {
        0 => {}
        left if left < MANY as usize => return store::task_touch(tx, id),
        _ => return Ok(()),
    }
    let Some(task) = store::task_get(tx, id)? else {
        return Ok(());
    };
    // A task that is past its deadline is resolved as such soon.
    match task.clone().schedule(now) {
        Ok(moved) => carry_out_first(app, tx, &task, moved, now, hints),
        Err(_) => Ok(()),
    }
}

/// What a second look at some tasks came to.
pub(crate) struct SecondLook {
    pub(crate) n_released: usize,
    /// There is more to release than fits into one transaction.
    pub(crate) more: bool,
}

/// Releases what is free to be released from or to these tasks, and was not seen in time by those who made it so.
pub(crate) async fn look_again(app: &Arc<App>, tasks: &[TaskId]) -> Result<SecondLook, StoreError> {
    let (writer, tasks, now) = (Arc::clone(app), tasks.to_vec(), app.clock.now());
    let written = app.write("task_look_again", move |tx| {
        let mut hints = Hints::default();
        let edges = store::task_edges_freed(tx, &tasks, RELEASED_AT_ONCE)?;
        for edge in &edges {
            release_edge(&writer, tx, &edge.required, &edge.waiting, now, &mut hints)?;
        }
        let more = edges.len() >= RELEASED_AT_ONCE as usize;
        if !more {
            store::task_looks_done(tx, &tasks)?;
        }
        let n_released = edges.len();
        Ok::<_, StoreError>((SecondLook { n_released, more }, hints))
    });
    let (look, hints) = written.await?;
    hints.tell(app);
    Ok(look)
}

/// A move that resolves nothing, so that releasing tasks never goes deeper.
fn carry_out_first(
    app: &App,
    tx: &mut Tx<'_>,
    before: &Task,
    moved: Moved,
    now: Timestamp,
    hints: &mut Hints,
) -> Result<(), StoreError> {
    let Moved { task, news } = moved;
    if news.is_empty() {
        return Ok(());
    }
    store::task_update(tx, before, &task)?;
    follow(app, tx, &task, &news, now, hints)
}

fn release(
    app: &App,
    tx: &mut Tx<'_>,
    required: &Task,
    now: Timestamp,
    hints: &mut Hints,
) -> Result<(), StoreError> {
    let more = release_some(app, tx, required, now, hints)?;
    if more || tx.has_rivals() {
        hints.look_again(tx, &required.id, now)?;
    }
    Ok(())
}

/// Tells the end of the group if this was the last of its tasks.
fn end_group(app: &App, tx: &mut Tx<'_>, task: &Task, now: Timestamp) -> Result<(), StoreError> {
    let group_id = &task.definition.task_group_id;
    let left = store::task_group_active(tx, group_id, None, MANY)?.len();
    if left >= MANY as usize {
        return Ok(());
    }
    store::task_group_touch(tx, group_id)?;
    if left > 0 {
        return Ok(());
    }
    let Some(group) = store::task_group_get(tx, group_id)? else {
        return Ok(());
    };
    let body = EventBody::TaskGroup {
        change: TaskGroupChange::Resolved,
        group: Box::new(group),
    };
    app.announce(tx, now, [body])
}

fn note_idle(tx: &mut Tx<'_>, task: &Task, run_id: u32, now: Timestamp) -> Result<(), StoreError> {
    let Some(claim) = task.run(run_id).and_then(|run| run.claim.as_ref()) else {
        return Ok(());
    };
    let worker = WorkerKey {
        pool_id: task.definition.task_queue_id.clone(),
        group: claim.group.clone(),
        id: claim.worker_id.clone(),
    };
    store::task_note_ended(tx, &worker, now)
}
