//! Releases the dependents of tasks that have too many for the transaction that resolved them.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use store::StoreError;

use super::driver::{Task, summary};
use crate::api::queue::moves::release_batch;
use crate::app::App;

/// So many resolved tasks per activation, each with so many batches of dependents.
const MAX_TASKS: u32 = 20;
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
        let resolved = self
            .0
            .store
            .read("task_releases", |tx| store::task_releases(tx, MAX_TASKS));
        let resolved = resolved.await?;
        let mut batches = 0;
        for id in &resolved {
            for _ in 0..MAX_BATCHES {
                batches += 1;
                if !release_batch(&self.0, id).await? {
                    break;
                }
            }
        }
        if resolved.len() == MAX_TASKS as usize {
            self.0.queue.releases.notify_one();
        }
        Ok(summary(&[("release_batches", batches)]))
    }
}
