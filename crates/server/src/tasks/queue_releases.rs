//! Releases tasks that wait for others, where the transaction that made them free could not: because there were too
//! many, or because it ran at the same time as the one that made them wait.

use std::sync::Arc;

use async_trait::async_trait;
use domain::id::TaskId;
use domain::time::SECOND_MS;
use serde_json::Value;
use store::StoreError;

use super::driver::{Task, summary};
use crate::api::queue::moves::{RELEASED_AT_ONCE, look_again};
use crate::app::App;

/// So many tasks per activation that were noted in the store …
const MAX_TASKS: u32 = 1_000;
/// … longer ago than this: others look at them at once, and most likely have done so.
const LEFT_TO_OTHERS_MS: i64 = 10 * SECOND_MS;
/// So many batches of dependents per activation, for each batch of tasks.
const MAX_BATCHES: usize = 100;

pub struct QueueReleases(pub Arc<App>);

#[async_trait]
impl Task for QueueReleases {
    const NAME: &'static str = "queue_releases";

    async fn activate(&mut self) -> Result<Value, String> {
        self.release().await.map_err(|problem| problem.to_string())
    }
}

impl QueueReleases {
    async fn release(&self) -> Result<Value, StoreError> {
        let app = &self.0;
        let mut n_batches = self.look_again(&app.queue.releases.take()).await?;
        let before = app.clock.now().plus_millis(-LEFT_TO_OTHERS_MS);
        let due = app.store.read("task_looks_due", move |tx| {
            store::task_looks_due(tx, before, MAX_TASKS)
        });
        let due = due.await?;
        n_batches += self.look_again(&due).await?;
        if due.len() == MAX_TASKS as usize {
            app.queue.releases.bell.notify_one();
        }
        Ok(summary(&[("release_batches", n_batches)]))
    }

    /// In how many transactions something was released.
    async fn look_again(&self, tasks: &[TaskId]) -> Result<u64, StoreError> {
        let mut n_batches = 0_u64;
        for tasks in tasks.chunks(RELEASED_AT_ONCE as usize) {
            for _ in 0..MAX_BATCHES {
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
