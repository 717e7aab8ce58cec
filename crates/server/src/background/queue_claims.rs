//! Ends the runs of workers that did not reclaim them in time.

use std::sync::Arc;

use async_trait::async_trait;
use domain::id::TaskId;
use engine::Engine;
use engine::change::Change;
use engine::queue::try_transition;
use serde_json::Value;
use store::StoreError;

use super::batches::Batches;
use super::driver::{ActivationResult, BackgroundTask, summary};

/// Maximum number of runs in one transaction, so that other transactions do not wait long.
const BATCH: u32 = 100;
/// Maximum number of transactions per activation; the next one continues.
const MAX_BATCHES: usize = 100;

pub struct QueueClaims(pub Arc<Engine>);

#[async_trait]
impl BackgroundTask for QueueClaims {
    fn name(&self) -> String {
        "queue_claims".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        if self.0.is_settling() {
            return Ok(Value::Null);
        }
        self.in_batches(Batches::new(BATCH, MAX_BATCHES)).await
    }
}

impl QueueClaims {
    /// An activation with other limits.
    pub async fn in_batches(&self, batches: Batches) -> ActivationResult {
        let (now, names) = (self.0.clock.now(), ["claims_expired", "claims_expire"]);
        let list = store::claimed_tasks::list_expired;
        let done = batches
            .settle(&self.0, names, [now; 2], list, expire)
            .await?;
        Ok(summary(&[("claims_expired", done)]))
    }
}

fn expire(change: &mut Change<'_, '_>, (task_id, run_id): (TaskId, u32)) -> Result<(), StoreError> {
    let now = change.now;
    try_transition(change, &task_id, |task| task.expire_claim(run_id, now))?;
    Ok(())
}
