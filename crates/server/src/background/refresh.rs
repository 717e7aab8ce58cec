//! Refreshes the data that providers' bids depend on, such as prices.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cloud::Machines;
use domain::id::ProviderId;
use domain::time::MINUTE_MS;
use engine::Engine;
use futures_util::future::join_all;

use super::driver::{ActivationResult, BackgroundTask, summary};

/// A slower provider keeps its previous data.
const MAX_REFRESH: Duration = Duration::from_secs(120);
/// The data of a provider is refreshed after this time, or as soon as a bid lacks some.
const FRESH_MS: i64 = 5 * MINUTE_MS;

pub struct Refresh {
    engine: Arc<Engine>,
    /// When each provider was refreshed, by the steady clock.
    refreshed: BTreeMap<ProviderId, i64>,
}

impl Refresh {
    pub fn new(engine: Arc<Engine>) -> Self {
        Self {
            engine,
            refreshed: BTreeMap::new(),
        }
    }

    fn is_due(&self, id: &ProviderId, machines: &dyn Machines, now_ms: i64) -> bool {
        let last = self.refreshed.get(id);
        machines.wants_refresh() || last.is_none_or(|last| now_ms - last >= FRESH_MS)
    }
}

#[async_trait]
impl BackgroundTask for Refresh {
    const NAME: &'static str = "refresh";

    async fn activate(&mut self) -> ActivationResult {
        let engine = Arc::clone(&self.engine);
        let awaiting = engine.wakeups.take_awaiting_refresh();
        let now_ms = engine.clock.steady_ms();
        let providers = engine.providers.listed();
        let machines: Vec<_> = providers
            .filter_map(|(id, _)| Some((id, engine.providers.machines(id)?)))
            .collect();
        join_all(machines.iter().map(|(_, machines)| machines.reread_files())).await;
        let due = machines.into_iter();
        let due: Vec<_> = due
            .filter(|(id, machines)| self.is_due(id, *machines, now_ms))
            .collect();
        for (id, _) in &due {
            self.refreshed.insert((*id).clone(), now_ms);
        }
        let refreshes = due.into_iter().map(|(id, machines)| refresh(id, machines));
        let n_failed: u64 = join_all(refreshes).await.into_iter().sum();
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
