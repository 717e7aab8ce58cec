//! Lets PostgreSQL count tables that it has never counted.

use std::sync::Arc;

use async_trait::async_trait;
use engine::Engine;
use serde_json::Value;

use super::driver::{ActivationResult, BackgroundTask};

pub struct MissingStatistics(pub Arc<Engine>);

#[async_trait]
impl BackgroundTask for MissingStatistics {
    fn name(&self) -> String {
        "missing_statistics".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        self.0.store.gather_missing_statistics().await?;
        Ok(Value::Null)
    }
}
