//! Records which overrides have ended, and announces the end of pauses.
//!
//! An override has no effect after its end, whether this task runs or not.

use std::sync::Arc;

use async_trait::async_trait;
use engine::{Engine, fleet};
use serde_json::Value;

use super::batches::Batches;
use super::driver::{ActivationResult, BackgroundTask, summary};

/// Maximum number of overrides in one activation; the next one continues.
const BATCH: u32 = 200;

pub struct Overrides(pub Arc<Engine>);

#[async_trait]
impl BackgroundTask for Overrides {
    fn name(&self) -> String {
        "overrides".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        if self.0.is_settling() {
            return Ok(Value::Null);
        }
        let (now, names) = (self.0.clock.now(), ["override_list_due", "override_end"]);
        let (one_batch, list) = (Batches::new(BATCH, 1), store::overrides::list_due);
        let ended = one_batch.settle(&self.0, names, [now; 2], list, |change, mut given| {
            fleet::end_override(change, &mut given)?;
            fleet::wake_target(change, &given);
            Ok(())
        });
        Ok(summary(&[("ended", ended.await?)]))
    }
}
