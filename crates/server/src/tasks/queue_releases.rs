//! Releases tasks that wait for others, where the transaction that made them free could not: because there were too
//! many, or because it ran at the same time as the one that made them wait.

use std::sync::Arc;

use async_trait::async_trait;
use domain::id::TaskId;
use domain::time::SECOND_MS;
use engine::Engine;
use engine::queue::{RELEASED_AT_ONCE, look_again};
use serde_json::Value;
use store::StoreError;

use super::driver::{Task, summary};

/// What was noted in the store is left to others for so long: they look at it at once, and most likely have done so.
const LEFT_TO_OTHERS_MS: i64 = 10 * SECOND_MS;
const MAX_TASKS: u32 = 1_000;
const MAX_BATCHES: usize = 100;

/// How much one activation does; the rest stays noted in the store.
#[derive(Clone, Copy, Debug)]
pub struct ReleaseLimits {
    /// Tasks that were noted in the store.
    pub tasks: u32,
    /// Batches of dependents, for each batch of tasks.
    pub batches: usize,
}

pub struct QueueReleases(pub Arc<Engine>);

#[async_trait]
impl Task for QueueReleases {
    const NAME: &'static str = "queue_releases";

    async fn activate(&mut self) -> Result<Value, String> {
        let usual = ReleaseLimits {
            tasks: MAX_TASKS,
            batches: MAX_BATCHES,
        };
        self.with_limits(usual).await
    }
}

impl QueueReleases {
    pub async fn with_limits(&self, limits: ReleaseLimits) -> Result<Value, String> {
        let released = self.release(limits).await;
        released.map_err(|problem| problem.to_string())
    }

    async fn release(&self, limits: ReleaseLimits) -> Result<Value, StoreError> {
        let engine = &self.0;
        let mut n_batches = self
            .look_again(&engine.queue.releases.take(), limits)
            .await?;
        let before = engine.clock.now().plus_millis(-LEFT_TO_OTHERS_MS);
        let due = engine.store.read("task_looks_due", move |tx| {
            store::dependencies::rechecks_due(tx, before, limits.tasks)
        });
        let due = due.await?;
        n_batches += self.look_again(&due, limits).await?;
        if due.len() == limits.tasks as usize {
            engine.queue.releases.bell.notify_one();
        }
        Ok(summary(&[("release_batches", n_batches)]))
    }

    /// In how many transactions something was released.
    async fn look_again(&self, tasks: &[TaskId], limits: ReleaseLimits) -> Result<u64, StoreError> {
        let mut n_batches = 0_u64;
        for tasks in tasks.chunks(RELEASED_AT_ONCE as usize) {
            for _ in 0..limits.batches {
                let look = look_again(&self.0, tasks).await?;
                n_batches += u64::from(look.n_released > 0);
                if !look.more {
                    break;
                }
            }
        }
        Ok(n_batches)
    }
}
