//! Releases the dependents of tasks that have too many for the transaction that resolved them.

use std::sync::Arc;

use async_trait::async_trait;
use domain::id::TaskId;
use serde_json::Value;
use store::StoreError;

use super::driver::{Task, summary};
use crate::api::queue::moves::{Hints, release_some};
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
                if !self.batch(id).await? {
                    break;
                }
            }
        }
        if resolved.len() == MAX_TASKS as usize {
            self.0.queue.releases.notify_one();
        }
        Ok(summary(&[("release_batches", batches)]))
    }

    /// True if there is more to release.
    async fn batch(&self, id: &TaskId) -> Result<bool, StoreError> {
        let (app, id, now) = (Arc::clone(&self.0), id.clone(), self.0.clock.now());
        let written = self.0.write("task_release", move |tx| {
            let mut hints = Hints::default();
            let required = store::task_get(tx, &id)?;
            // Run again meanwhile: its next end releases them.
            let resolved = required.filter(|task| task.state().is_resolved());
            let more = match &resolved {
                Some(task) => release_some(&app, tx, task, now, &mut hints)?,
                None => false,
            };
            if !more {
                store::task_release_done(tx, &id)?;
            }
            Ok::<_, StoreError>((more, hints))
        });
        let (more, hints) = written.await?;
        hints.tell(&self.0);
        Ok(more)
    }
}
