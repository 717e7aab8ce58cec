//! One task is moved: scheduled, run again, cancelled, put before others, reported on.

use std::sync::Arc;

use domain::id::TaskId;
use domain::task::{Moved, Refused, Task};
use domain::time::Timestamp;
use store::StoreError;

use super::TaskError;
use super::moves::{carry_out, look_again};
use crate::Engine;

/// So many batches of dependents are released before a task runs again.
const MAX_RELEASES: usize = 1_000;

/// Makes one move of one task, and tells everybody. The transaction has the name of what is asked for.
pub async fn change_task(
    engine: &Arc<Engine>,
    name: &'static str,
    now: Timestamp,
    id: TaskId,
    step: impl Fn(Task, Timestamp) -> Result<Moved, Refused> + Send + 'static,
) -> Result<Task, TaskError> {
    let written = engine.change(name, now, move |change| {
        let before = store::tasks::get(change.tx, &id)?;
        let before = before.ok_or_else(|| TaskError::NotThere(id.clone()))?;
        let moved = step(before.clone(), change.now)?;
        Ok::<_, TaskError>(carry_out(change, &before, moved)?)
    });
    written.await
}

/// Whom the end of a task has freed is free, whatever the task does next: all of them go first.
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
        async move { Ok::<_, StoreError>(look_again(&engine, &[id]).await?.more) }
    };
    if release_all(is_due, release).await? {
        let rerun = |task: Task, now| task.rerun(now);
        return change_task(engine, name, now, id, rerun).await;
    }
    Err(TaskError::Conflict(format!(
        "Task {id} has ended, and more tasks waited for that than could be released yet; try again in a minute"
    )))
}

/// Releases one batch after the other as long as there is more, up to a limit. False: there is still more.
async fn release_all<F>(mut more: bool, mut release: impl FnMut() -> F) -> Result<bool, StoreError>
where
    F: Future<Output = Result<bool, StoreError>>,
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
    fn batches_are_released_until_there_are_no_more_or_too_many() {
        for n_batches in
            testing::sizes_around("engine::queue::changing::MAX_RELEASES", MAX_RELEASES)
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
