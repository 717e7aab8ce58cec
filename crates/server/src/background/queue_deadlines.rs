//! Resolves tasks whose deadline has passed.

use std::sync::Arc;

use async_trait::async_trait;
use domain::time::{MINUTE_MS, Timestamp};
use engine::Engine;
use engine::queue::try_transition;
use serde_json::Value;
use store::StoreError;

use super::batches::Batches;
use super::driver::{BackgroundTask, summary};

const BATCH: u32 = 100;
const MAX_BATCHES: usize = 100;
/// Results that were ready just in time may be reported a little later.
const GRACE_MS: i64 = MINUTE_MS;

pub struct QueueDeadlines(pub Arc<Engine>);

#[async_trait]
impl BackgroundTask for QueueDeadlines {
    const NAME: &'static str = "queue_deadlines";

    async fn activate(&mut self) -> Result<Value, String> {
        let usual = Batches {
            size: BATCH,
            most: MAX_BATCHES,
        };
        self.in_batches(usual).await
    }
}

impl QueueDeadlines {
    /// An activation with other limits.
    pub async fn in_batches(&self, batches: Batches) -> Result<Value, String> {
        let now = self.0.clock.now();
        let done = batches.repeat(|| self.batch(now, batches.size)).await;
        let done = done.map_err(|problem| problem.to_string())?;
        Ok(summary(&[("deadlines_missed", done)]))
    }

    async fn batch(&self, now: Timestamp, size: u32) -> Result<u64, StoreError> {
        let before_grace = now.plus_millis(-GRACE_MS);
        let look = self.0.store.read("deadlines_missed", move |tx| {
            store::tasks::list_overdue(tx, before_grace, 1)
        });
        if look.await?.is_empty() {
            return Ok(0);
        }
        let written = self.0.change("deadlines_miss", now, move |change| {
            let overdue = store::tasks::list_overdue(change.tx, before_grace, size)?;
            for id in &overdue {
                try_transition(change, id, |task| Ok(task.miss_deadline(now)))?;
            }
            Ok::<_, StoreError>(overdue.len() as u64)
        });
        written.await
    }
}
