//! Deletes expired tasks, groups and task queues.

use std::sync::Arc;

use async_trait::async_trait;
use engine::Engine;
use engine::measures::Stopwatch;
use serde_json::Value;
use store::{task_groups, task_queues, tasks};

use super::batches::Batches;
use super::deletions::{DeletionPace, DeletionTally, Deletions};
use super::driver::{ActivationResult, BackgroundTask};

/// Maximum number of rows that one transaction deletes, so that others do not wait long.
const BATCH: u32 = 50;
const MAX_BATCHES: usize = 800;

pub struct QueueHousekeeping {
    engine: Arc<Engine>,
    pace: DeletionPace,
}

#[async_trait]
impl BackgroundTask for QueueHousekeeping {
    fn name(&self) -> String {
        "queue_housekeeping".to_owned()
    }

    fn drops_at_stop(&self) -> bool {
        true
    }

    async fn activate(&mut self) -> ActivationResult {
        if self.engine.is_settling() {
            return Ok(Value::Null);
        }
        let watch = Stopwatch::start();
        let batches = Batches::new(BATCH, MAX_BATCHES);
        let deleted = self.delete(self.pace.deletions(batches)).await;
        self.pace.note(&watch);
        deleted
    }
}

impl QueueHousekeeping {
    pub fn new(engine: Arc<Engine>) -> Self {
        Self {
            engine,
            pace: DeletionPace::default(),
        }
    }

    /// An activation with other limits, which apply to each kind of row, and hardly a pause.
    pub async fn in_batches(&self, batches: Batches) -> ActivationResult {
        self.delete(Deletions::hasty(batches)).await
    }

    async fn delete(&self, deletions: Deletions) -> ActivationResult {
        let (now, store) = (self.engine.clock.now(), &self.engine.store);
        let forget = |name, delete| deletions.delete(store, name, now, delete);
        let mut tally = DeletionTally::default();
        let tasks = forget("task_expire", tasks::delete_expired).await;
        tally.add("tasks", tasks);
        let groups = forget("task_group_expire", task_groups::delete_expired).await;
        tally.add("task_groups", groups);
        let queues = forget("task_queue_expire", task_queues::delete_expired).await;
        tally.add("task_queues", queues);
        tally.result()
    }
}
