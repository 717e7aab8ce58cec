//! Releases the resources of pools that no longer use a provider.

use std::sync::Arc;

use async_trait::async_trait;
use engine::Engine;
use engine::fleet::release_unused;
use serde_json::{Value, json};

use super::driver::{ActivationResult, BackgroundTask};

pub struct PoolResources(pub Arc<Engine>);

#[async_trait]
impl BackgroundTask for PoolResources {
    fn name(&self) -> String {
        "pool_resources".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        let done = release_unused(&self.0).await?;
        if done.released + done.failed == 0 {
            return Ok(Value::Null);
        }
        Ok(json!({"pools_released": done.released, "failed": done.failed}))
    }
}
