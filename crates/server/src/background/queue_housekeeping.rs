//! Deletes expired tasks, groups and task queues.

use std::sync::Arc;

use async_trait::async_trait;
use engine::Engine;
use store::{task_groups, task_queues, tasks};

use super::batches::Batches;
use super::driver::{ActivationResult, BackgroundTask, summary};

/// Maximum number of rows that one transaction deletes, so that others do not wait long.
const BATCH: u32 = 50;
const MAX_BATCHES: usize = 800;

pub struct QueueHousekeeping(pub Arc<Engine>);

#[async_trait]
impl BackgroundTask for QueueHousekeeping {
    const NAME: &'static str = "queue_housekeeping";

    async fn activate(&mut self) -> ActivationResult {
        self.in_batches(Batches::new(BATCH, MAX_BATCHES)).await
    }
}

impl QueueHousekeeping {
    /// An activation with other limits, which apply to each kind of row.
    pub async fn in_batches(&self, batches: Batches) -> ActivationResult {
        let (now, store) = (self.0.clock.now(), &self.0.store);
        let forget = |name, delete| batches.delete(store, name, now, delete);
        let tasks = forget("task_expire", tasks::delete_expired).await?;
        let groups = forget("task_group_expire", task_groups::delete_expired).await?;
        let queues = forget("task_queue_expire", task_queues::delete_expired).await?;
        Ok(summary(&[
            ("tasks", tasks),
            ("task_groups", groups),
            ("task_queues", queues),
        ]))
    }
}
