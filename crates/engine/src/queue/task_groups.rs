//! Task groups: sealing, cancelling all tasks, and changing the priority of all tasks.

use std::sync::Arc;

use domain::event::{EventBody, TaskGroupChange};
use domain::id::{TaskGroupId, TaskId};
use domain::task::{Priority, Task, TaskGroup, Transition, TransitionError};
use domain::time::Timestamp;
use store::StoreError;

use super::TaskError;
use super::transitions::try_transition;
use crate::Engine;
use crate::change::Change;

/// At most this many tasks are changed in one transaction.
const BATCH: u32 = 100;
/// At most this many transactions for one request: a million tasks. The next request goes on.
const MAX_BATCHES: usize = 10_000;

/// Seals a group; sealing it again changes nothing.
pub async fn seal_group(
    engine: &Arc<Engine>,
    now: Timestamp,
    id: TaskGroupId,
) -> Result<TaskGroup, TaskError> {
    let written = engine.change("task_group_seal", now, move |change| {
        let found = store::task_groups::get(change.tx, &id)?;
        let mut group = found.ok_or_else(|| TaskError::NoSuchGroup(id.clone()))?;
        if group.sealed.is_none() {
            group.sealed = Some(change.now);
            group.version = store::task_groups::update(change.tx, &group)?;
            announce(change, &group, TaskGroupChange::Sealed)?;
        }
        Ok::<_, TaskError>(group)
    });
    written.await
}

/// Cancels all unresolved tasks of a sealed group, and returns their ids.
pub async fn cancel_group(
    engine: &Arc<Engine>,
    now: Timestamp,
    group: &TaskGroup,
) -> Result<Vec<TaskId>, TaskError> {
    if group.sealed.is_none() {
        return Err(TaskError::Conflict(format!(
            "Task group {} is not sealed, so it may get further tasks while its tasks are cancelled; seal it first",
            group.id
        )));
    }
    let cancelled = change_each_task(engine, now, &group.id, |task, now| task.cancel(now));
    Ok(cancelled.await?)
}

/// Returns the tasks whose priority was changed.
pub async fn change_group_priority(
    engine: &Arc<Engine>,
    now: Timestamp,
    group: &TaskGroup,
    priority: Priority,
) -> Result<Vec<TaskId>, TaskError> {
    let step = move |task: Task, _| task.change_priority(priority);
    let changed = change_each_task(engine, now, &group.id, step).await?;
    let announced = group.clone();
    let news = TaskGroupChange::PriorityChanged {
        new: priority,
        tasks_affected: changed.len() as u64,
    };
    let written = engine.change_alone("task_group_priority", now, move |change| {
        announce(change, &announced, news)
    });
    written.await?;
    Ok(changed)
}

fn announce(
    change: &mut Change<'_, '_>,
    group: &TaskGroup,
    news: TaskGroupChange,
) -> store::Result<()> {
    let group = Box::new(group.clone());
    change.announce([EventBody::TaskGroup {
        change: news,
        group,
    }])
}

/// Applies a step to every unresolved task of a group, in many transactions; returns the changed
/// tasks. Tasks past their deadline do not change.
async fn change_each_task(
    engine: &Arc<Engine>,
    now: Timestamp,
    id: &TaskGroupId,
    step: impl Fn(Task, Timestamp) -> Result<Transition, TransitionError> + Copy + Send + 'static,
) -> store::Result<Vec<TaskId>> {
    let change_some = |start: Option<TaskId>| {
        let id = id.clone();
        async move {
            let written = engine.change_alone("task_group_move", now, move |change| {
                let active = store::task_groups::active(change.tx, &id, start.as_ref(), BATCH)?;
                let mut changed = Vec::new();
                for task_id in &active {
                    let mut has_moved = false;
                    try_transition(change, task_id, |task| {
                        let moved = step(task, now);
                        moved.inspect(|moved| has_moved = !moved.news.is_empty())
                    })?;
                    changed.extend(has_moved.then(|| task_id.clone()));
                }
                let is_full = active.len() == BATCH as usize;
                let last = active.into_iter().next_back().filter(|_| is_full);
                Ok::<_, StoreError>((changed, last))
            });
            written.await
        }
    };
    in_batches(change_some).await
}

/// Runs one batch after the other, each starting after the last task of the previous batch. A batch
/// without a last task ends the loop.
async fn in_batches<F>(mut change: impl FnMut(Option<TaskId>) -> F) -> store::Result<Vec<TaskId>>
where
    F: Future<Output = store::Result<(Vec<TaskId>, Option<TaskId>)>>,
{
    let (mut all, mut after) = (Vec::new(), None);
    for _ in 0..MAX_BATCHES {
        let (changed, last) = change(after.take()).await?;
        all.extend(changed);
        if last.is_none() {
            break;
        }
        after = last;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn batches_follow_each_other_to_the_last_one_or_the_limit() {
        let name = |number: usize| {
            format!("{number:08}QACAAAAAAAAAAA")
                .parse::<TaskId>()
                .unwrap()
        };
        for n_batches in
            testing::sizes_around("engine::queue::task_groups::MAX_BATCHES", MAX_BATCHES)
        {
            let mut starts = Vec::new();
            let change = |start| {
                starts.push(start);
                let changed = name(starts.len());
                // Even an empty group has one batch, which finds nothing.
                let last = (starts.len() < n_batches).then(|| changed.clone());
                std::future::ready(Ok((vec![changed], last)))
            };
            let changed = in_batches(change).now_or_never().unwrap().unwrap();
            let n_made = n_batches.clamp(1, MAX_BATCHES);
            assert_eq!(changed, (1..=n_made).map(name).collect::<Vec<_>>());
            let expected = [None]
                .into_iter()
                .chain((1..n_made).map(|number| Some(name(number))));
            assert!(starts.into_iter().eq(expected));
        }
    }
}
