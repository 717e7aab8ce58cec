//! Releases tasks whose dependencies were resolved, where the resolving transaction could not.
//! Either there were too many dependents, or the dependents were created at the same time.

use std::sync::Arc;

use async_trait::async_trait;
use domain::id::TaskId;
use domain::time::SECOND_MS;
use engine::Engine;
use engine::queue::{RELEASE_BATCH, release_dependents};
use store::StoreError;

use super::driver::{ActivationResult, BackgroundTask, summary};

/// Notes in the store are left to other processes for this time: usually they have handled them.
const LEFT_TO_OTHERS_MS: i64 = 10 * SECOND_MS;
const MAX_TASKS: u32 = 1_000;
const MAX_BATCHES: usize = 100;

/// Limits of one activation; the rest stays noted in the store.
#[derive(Clone, Copy, Debug)]
pub struct ReleaseLimits {
    /// Maximum number of tasks that were noted in the store.
    pub tasks: u32,
    /// Maximum number of batches of dependents for each batch of tasks.
    pub batches: usize,
}

pub struct QueueReleases(pub Arc<Engine>);

#[async_trait]
impl BackgroundTask for QueueReleases {
    fn name(&self) -> String {
        "queue_releases".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        let (tasks, batches) = (MAX_TASKS, MAX_BATCHES);
        self.with_limits(ReleaseLimits { tasks, batches }).await
    }
}

impl QueueReleases {
    pub async fn with_limits(&self, limits: ReleaseLimits) -> ActivationResult {
        let engine = &self.0;
        let resolved = engine.queue.releases.take();
        let mut n_batches = self.look_again(&resolved, limits).await?;
        let before = engine.clock.now().plus_millis(-LEFT_TO_OTHERS_MS);
        let due = engine.store.read("task_looks_due", move |tx| {
            store::dependencies::rechecks_due(tx, before, limits.tasks)
        });
        let due = due.await?;
        n_batches += self.look_again(&due, limits).await?;
        if due.len() == limits.tasks as usize {
            engine.queue.releases.wakeup.notify_one();
        }
        Ok(summary(&[("release_batches", n_batches)]))
    }

    /// Returns the number of transactions that released tasks.
    async fn look_again(&self, tasks: &[TaskId], limits: ReleaseLimits) -> Result<u64, StoreError> {
        let mut n_batches = 0_u64;
        for tasks in tasks.chunks(RELEASE_BATCH as usize) {
            for _ in 0..limits.batches {
                let look = release_dependents(&self.0, tasks).await?;
                n_batches += u64::from(look.n_released > 0);
                if !look.more {
                    break;
                }
            }
        }
        Ok(n_batches)
    }
}
