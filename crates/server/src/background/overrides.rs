//! Records which overrides have ended, and announces the end of pauses.
//!
//! An override has no effect after its end, whether this task runs or not.

use std::sync::Arc;

use async_trait::async_trait;
use engine::Engine;
use engine::fleet;
use serde_json::Value;
use store::StoreError;

use super::driver::{BackgroundTask, summary};

/// Maximum number of overrides in one activation; the next one continues.
const BATCH: u32 = 200;

pub struct Overrides(pub Arc<Engine>);

#[async_trait]
impl BackgroundTask for Overrides {
    const NAME: &'static str = "overrides";

    async fn activate(&mut self) -> Result<Value, String> {
        let ended = self.end().await;
        let ended = ended.map_err(|problem| problem.to_string())?;
        Ok(summary(&[("ended", ended)]))
    }
}

impl Overrides {
    async fn end(&self) -> Result<u64, StoreError> {
        let now = self.0.clock.now();
        let looking = self.0.store.read("override_list_due", move |tx| {
            store::overrides::list_due(tx, now, 1)
        });
        if looking.await?.is_empty() {
            return Ok(0);
        }
        let ending = self.0.change("override_end", now, move |change| {
            let due = store::overrides::list_due(change.tx, now, BATCH)?;
            let n_ended = due.len() as u64;
            for mut given in due {
                fleet::end_override(change, &mut given)?;
                fleet::wake_target(change, &given);
            }
            Ok::<_, StoreError>(n_ended)
        });
        ending.await
    }
}
