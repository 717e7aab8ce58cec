//! Deletes expired tasks, groups and task queues.

use std::sync::Arc;

use async_trait::async_trait;
use engine::Engine;
use serde_json::Value;
use store::{StoreError, Tx};

use super::batches::Batches;
use super::driver::{BackgroundTask, summary};

/// Maximum number of rows that one transaction deletes, so that others do not wait long.
const BATCH: u32 = 200;
const MAX_BATCHES: usize = 200;

pub struct QueueHousekeeping(pub Arc<Engine>);

#[async_trait]
impl BackgroundTask for QueueHousekeeping {
    const NAME: &'static str = "queue_housekeeping";

    async fn activate(&mut self) -> Result<Value, String> {
        let usual = Batches {
            size: BATCH,
            most: MAX_BATCHES,
        };
        self.in_batches(usual).await
    }
}

impl QueueHousekeeping {
    /// An activation with other limits, which apply to each kind of row.
    pub async fn in_batches(&self, batches: Batches) -> Result<Value, String> {
        let forgotten = self.tidy(batches).await;
        forgotten.map_err(|problem| problem.to_string())
    }

    async fn tidy(&self, batches: Batches) -> Result<Value, StoreError> {
        let (now, size) = (self.0.clock.now(), batches.size);
        let tasks = self.forget(batches, "task_expire", move |tx| {
            store::tasks::delete_expired(tx, now, size)
        });
        let tasks = tasks.await?;
        let groups = self.forget(batches, "task_group_expire", move |tx| {
            store::task_groups::delete_expired(tx, now, size)
        });
        let groups = groups.await?;
        let queues = self.forget(batches, "task_queue_expire", move |tx| {
            store::task_queues::delete_expired(tx, now, size)
        });
        let queues = queues.await?;
        Ok(summary(&[
            ("tasks", tasks),
            ("task_groups", groups),
            ("task_queues", queues),
        ]))
    }

    /// Repeats a deletion, each batch in a transaction of its own, until nothing is left.
    async fn forget(
        &self,
        batches: Batches,
        name: &'static str,
        delete: impl Fn(&mut Tx<'_>) -> Result<u64, StoreError> + Clone + Send + 'static,
    ) -> Result<u64, StoreError> {
        let forgotten = batches.repeat(|| self.0.store.write(name, delete.clone()));
        forgotten.await
    }
}
