//! Sets up providers that are not ready yet, until they are.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use engine::Engine;
use serde_json::{Value, json};

use super::driver::{ActivationResult, BackgroundTask};

/// Longer than a provider's default time limits.
const SET_UP: Duration = Duration::from_secs(90);

pub struct ProviderSetup(pub Arc<Engine>);

impl ProviderSetup {
    pub const PERIOD: Duration = Duration::from_secs(60);
}

#[async_trait]
impl BackgroundTask for ProviderSetup {
    fn name(&self) -> String {
        "provider_setup".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        let (ready, failed) = self.0.providers.set_up_missing(SET_UP).await;
        let period_ms = i64::try_from(Self::PERIOD.as_millis()).unwrap_or(i64::MAX);
        let next = self.0.clock.now().plus_millis(period_ms);
        self.0.providers.note_next_set_up(next);
        for (id, problem) in failed {
            tracing::warn!(provider.id = %id, "provider {id} failed to start: {problem}");
        }
        if ready.is_empty() {
            return Ok(Value::Null);
        }
        let ready: Vec<&str> = ready.into_iter().map(|id| id.as_str()).collect();
        Ok(json!({ "in_service": ready }))
    }
}
