//! Takes events out of the outbox, in their order, and tells them.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use store::StoreError;

use super::driver::Task;
use crate::app::App;

const BATCH: u32 = 200;
const MAX_BATCHES: usize = 50;

/// Tells events to our log. At least once: a crash between telling and marking tells them again.
pub struct Publish(pub Arc<App>);

#[async_trait]
impl Task for Publish {
    const NAME: &'static str = "publish";

    async fn activate(&mut self) -> Result<Value, String> {
        for _ in 0..MAX_BATCHES {
            let told = self.batch().await.map_err(|problem| problem.to_string())?;
            if told < BATCH as usize {
                break;
            }
        }
        Ok(Value::Null)
    }
}

impl Publish {
    async fn batch(&self) -> Result<usize, StoreError> {
        let app = &self.0;
        let rows = app
            .store
            .read("outbox_take", |tx| store::outbox_take(tx, BATCH))
            .await?;
        if rows.is_empty() {
            return Ok(0);
        }
        for row in &rows {
            let name = row.topic.rsplit('/').next().unwrap_or(&row.topic);
            let about = row
                .pool_id
                .as_ref()
                .map_or_else(String::new, |pool| format!(" in {pool}"));
            tracing::info!(event.id = %row.event_id, event.topic = %row.topic,
                event.key = %row.routing_key, event.payload = %row.payload, "{name}{about}");
        }
        let sequences: Vec<i64> = rows.iter().map(|row| row.sequence).collect();
        let now = app.clock.now();
        let marked = app.store.write("outbox_mark", move |tx| {
            store::outbox_mark_published(tx, &sequences, now)
        });
        marked.await?;
        Ok(rows.len())
    }
}
