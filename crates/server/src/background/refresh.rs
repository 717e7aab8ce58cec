//! Refreshes the data that a provider's bids depend on, such as prices.
//!
//! Each provider has a task of its own, so an unresponsive one delays no bids of others.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cloud::Machines;
use domain::id::ProviderId;
use domain::time::MINUTE_MS;
use engine::Engine;

use super::driver::{ActivationResult, BackgroundTask, summary};

/// A slower provider keeps its previous data.
const MAX_REFRESH: Duration = Duration::from_secs(120);
/// The data of a provider is refreshed after this time, or as soon as a bid lacks some.
const FRESH_MS: i64 = 5 * MINUTE_MS;

pub struct Refresh {
    engine: Arc<Engine>,
    provider_id: ProviderId,
    /// When the provider was refreshed, by the steady clock.
    refreshed: Option<i64>,
}

impl Refresh {
    /// One for each provider.
    pub fn each(engine: &Arc<Engine>) -> Vec<Self> {
        let providers = engine.providers.listed();
        let of = |id: &ProviderId| Self {
            engine: Arc::clone(engine),
            provider_id: id.clone(),
            refreshed: None,
        };
        providers.map(|(id, _)| of(id)).collect()
    }

    pub fn provider_id(&self) -> &ProviderId {
        &self.provider_id
    }

    fn is_due(&self, machines: &dyn Machines, now_ms: i64) -> bool {
        let is_old = |last| now_ms - last >= FRESH_MS;
        machines.wants_refresh() || self.refreshed.is_none_or(is_old)
    }
}

#[async_trait]
impl BackgroundTask for Refresh {
    fn name(&self) -> String {
        format!("refresh {}", self.provider_id)
    }

    async fn activate(&mut self) -> ActivationResult {
        let engine = Arc::clone(&self.engine);
        let awaiting = engine.wakeups.take_awaiting_refresh(&self.provider_id);
        let now_ms = engine.clock.steady_ms();
        let machines = engine.providers.machines(&self.provider_id);
        let mut n_failed = 0;
        if let Some(machines) = machines.filter(|machines| self.is_due(*machines, now_ms)) {
            self.refreshed = Some(now_ms);
            n_failed = refresh(&self.provider_id, machines).await;
        }
        // After a failure as well: bids then do not wait any longer.
        for id in &awaiting {
            engine.wakeups.wake_pool(id);
        }
        Ok(summary(&[("failed", n_failed)]))
    }
}

/// Returns the number of failures: none or one.
async fn refresh(id: &ProviderId, machines: &dyn Machines) -> u64 {
    let refreshed = tokio::time::timeout(MAX_REFRESH, machines.refresh()).await;
    let problem = match refreshed {
        Ok(Ok(())) => return 0,
        Ok(Err(problem)) => problem.to_string(),
        Err(_) => format!("it took longer than {} s", MAX_REFRESH.as_secs()),
    };
    tracing::warn!(provider.id = %id, error = %problem,
        "cannot refresh the prices of {id}, its bids use earlier ones: {problem}");
    1
}
