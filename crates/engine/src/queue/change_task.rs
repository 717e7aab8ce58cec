//! Changes one task: schedules it, reruns it, cancels it, changes its priority, or reports on it.

use std::sync::Arc;

use domain::id::TaskId;
use domain::task::{Task, Transition, TransitionError};
use domain::time::Timestamp;
use store::StoreError;

use super::TaskError;
use super::claim_task::load_task;
use super::transitions::{apply_transition, release_dependents};
use crate::Engine;

/// At most this many batches of dependents are released before a task is rerun.
const MAX_RELEASES: usize = 1_000;

/// Applies one transition to one task. The transaction has the name of the request.
pub async fn change_task(
    engine: &Arc<Engine>,
    name: &'static str,
    now: Timestamp,
    id: TaskId,
    step: impl Fn(Task, Timestamp) -> Result<Transition, TransitionError> + Send + 'static,
) -> Result<Task, TaskError> {
    let written = engine.change(name, now, move |change| {
        let before = load_task(change.tx, &id)?;
        let moved = step(before.clone(), change.now)?;
        Ok::<_, TaskError>(apply_transition(change, &before, moved)?)
    });
    written.await
}

/// Reruns a task, after all dependents that its end released have been scheduled.
pub async fn rerun(
    engine: &Arc<Engine>,
    name: &'static str,
    now: Timestamp,
    id: TaskId,
) -> Result<Task, TaskError> {
    let named = id.clone();
    let look = engine.store.read("task_look_is_due", move |tx| {
        store::dependencies::is_recheck_due(tx, &named)
    });
    let is_due = look.await?;
    let release = || {
        let (engine, id) = (Arc::clone(engine), id.clone());
        async move { Ok::<_, StoreError>(release_dependents(&engine, &[id]).await?.more) }
    };
    if release_all(is_due, release).await? {
        let rerun = |task: Task, now| task.rerun(now);
        return change_task(engine, name, now, id, rerun).await;
    }
    Err(TaskError::Conflict(format!(
        "Task {id} has ended, and not all tasks that depend on it have been released yet; try again in a minute"
    )))
}

/// Releases batches while more are left, up to a limit. False: more are left.
async fn release_all<F>(mut more: bool, mut release: impl FnMut() -> F) -> store::Result<bool>
where
    F: Future<Output = store::Result<bool>>,
{
    for _ in 0..MAX_RELEASES {
        if !more {
            break;
        }
        more = release().await?;
    }
    Ok(!more)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn batches_are_released_until_none_is_left_or_the_limit_is_reached() {
        for n_batches in
            testing::sizes_around("engine::queue::change_task::MAX_RELEASES", MAX_RELEASES)
        {
            let mut n_released = 0;
            let release = || {
                n_released += 1;
                std::future::ready(Ok(n_released < n_batches))
            };
            let is_done = release_all(n_batches > 0, release).now_or_never();
            assert_eq!(is_done.unwrap().unwrap(), n_batches <= MAX_RELEASES);
            assert_eq!(n_released, n_batches.min(MAX_RELEASES));
        }
    }
}
