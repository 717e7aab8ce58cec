//! Resolves tasks whose deadline has passed.

use std::sync::Arc;

use async_trait::async_trait;
use domain::id::TaskId;
use domain::time::MINUTE_MS;
use engine::Engine;
use engine::change::Change;
use engine::queue::try_transition;
use serde_json::Value;
use store::StoreError;

use super::batches::Batches;
use super::driver::{ActivationResult, BackgroundTask, summary};

const BATCH: u32 = 100;
const MAX_BATCHES: usize = 100;
/// Results that were ready just in time may be reported a little later.
const GRACE_MS: i64 = MINUTE_MS;

pub struct QueueDeadlines(pub Arc<Engine>);

#[async_trait]
impl BackgroundTask for QueueDeadlines {
    fn name(&self) -> String {
        "queue_deadlines".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        if self.0.is_settling() {
            return Ok(Value::Null);
        }
        self.in_batches(Batches::new(BATCH, MAX_BATCHES)).await
    }
}

impl QueueDeadlines {
    /// An activation with other limits.
    pub async fn in_batches(&self, batches: Batches) -> ActivationResult {
        let now = self.0.clock.now();
        let due = now.plus_millis(-GRACE_MS);
        let (names, list) = (
            ["deadlines_missed", "deadlines_miss"],
            store::tasks::list_overdue,
        );
        let done = batches
            .settle(&self.0, names, [now, due], list, miss)
            .await?;
        Ok(summary(&[("deadlines_missed", done)]))
    }
}

fn miss(change: &mut Change<'_, '_>, task_id: TaskId) -> Result<(), StoreError> {
    let now = change.now;
    try_transition(change, &task_id, |task| Ok(task.miss_deadline(now)))?;
    Ok(())
}
