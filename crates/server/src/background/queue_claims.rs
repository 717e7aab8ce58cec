//! Ends the runs of workers that did not reclaim them in time.

use std::sync::Arc;

use async_trait::async_trait;
use domain::time::Timestamp;
use engine::Engine;
use engine::queue::try_transition;
use serde_json::Value;
use store::StoreError;

use super::batches::Batches;
use super::driver::{BackgroundTask, summary};

/// Maximum number of runs in one transaction, so that other transactions do not wait long.
const BATCH: u32 = 100;
/// Maximum number of transactions per activation; the next one continues.
const MAX_BATCHES: usize = 100;

pub struct QueueClaims(pub Arc<Engine>);

#[async_trait]
impl BackgroundTask for QueueClaims {
    const NAME: &'static str = "queue_claims";

    async fn activate(&mut self) -> Result<Value, String> {
        let usual = Batches {
            size: BATCH,
            most: MAX_BATCHES,
        };
        self.in_batches(usual).await
    }
}

impl QueueClaims {
    /// An activation with other limits.
    pub async fn in_batches(&self, batches: Batches) -> Result<Value, String> {
        let now = self.0.clock.now();
        let done = batches.repeat(|| self.batch(now, batches.size)).await;
        let done = done.map_err(|problem| problem.to_string())?;
        Ok(summary(&[("claims_expired", done)]))
    }

    async fn batch(&self, now: Timestamp, size: u32) -> Result<u64, StoreError> {
        // A read costs less than a transaction that writes.
        let look = self.0.store.read("claims_expired", move |tx| {
            store::claimed_tasks::list_expired(tx, now, 1)
        });
        if look.await?.is_empty() {
            return Ok(0);
        }
        let written = self.0.change("claims_expire", now, move |change| {
            let expired = store::claimed_tasks::list_expired(change.tx, now, size)?;
            for (task_id, run_id) in &expired {
                try_transition(change, task_id, |task| task.expire_claim(*run_id, now))?;
            }
            Ok::<_, StoreError>(expired.len() as u64)
        });
        written.await
    }
}
