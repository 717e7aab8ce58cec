//! Forgets tasks, groups and task queues that have had their time.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use store::{StoreError, Tx};

use super::driver::{Task, summary};
use crate::app::App;

/// What one transaction deletes at most, so that nobody waits long for it.
const BATCH: u32 = 200;
const MAX_BATCHES: usize = 200;

pub struct QueueHousekeeping(pub Arc<App>);

#[async_trait]
impl Task for QueueHousekeeping {
    const NAME: &'static str = "queue_housekeeping";

    async fn activate(&mut self) -> Result<Value, String> {
        self.tidy().await.map_err(|problem| problem.to_string())
    }
}

impl QueueHousekeeping {
    async fn tidy(&self) -> Result<Value, StoreError> {
        let now = self.0.clock.now();
        let tasks = self
            .batches("task_expire", move |tx| {
                store::task_delete_expired(tx, now, BATCH)
            })
            .await?;
        let groups = self.batches("task_group_expire", move |tx| {
            store::task_group_delete_expired(tx, now, BATCH)
        });
        let groups = groups.await?;
        let queues = self.batches("task_queue_expire", move |tx| {
            store::task_queue_delete_expired(tx, now, BATCH)
        });
        let queues = queues.await?;
        Ok(summary(&[
            ("tasks", tasks),
            ("task_groups", groups),
            ("task_queues", queues),
        ]))
    }

    /// Repeats a deletion, each batch in a transaction of its own, until nothing is left.
    async fn batches(
        &self,
        name: &'static str,
        delete: impl Fn(&mut Tx<'_>) -> Result<u64, StoreError> + Clone + Send + 'static,
    ) -> Result<u64, StoreError> {
        let mut total = 0;
        for _ in 0..MAX_BATCHES {
            let deleted = self.0.store.write(name, delete.clone()).await?;
            total += deleted;
            if deleted < u64::from(BATCH) {
                break;
            }
        }
        Ok(total)
    }
}
