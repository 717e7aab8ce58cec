//! Sends spans to the collector of traces.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use super::driver::{ActivationResult, BackgroundTask};
use crate::telemetry::Traces;

pub(super) struct TraceExport(pub(super) Arc<Traces>);

#[async_trait]
impl BackgroundTask for TraceExport {
    fn name(&self) -> String {
        "trace-export".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        if let Err(problem) = self.0.send().await {
            tracing::warn!(error = %problem,
                "the collector of traces does not take spans; they wait: {problem}");
        }
        Ok(Value::Null)
    }
}
