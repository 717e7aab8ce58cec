//! Refreshes the data that providers' bids depend on, such as prices.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cloud::Machines;
use domain::id::ProviderId;
use engine::Engine;
use futures_util::future::join_all;

use super::driver::{ActivationResult, BackgroundTask, summary};

/// A slower provider keeps its previous data.
const MAX_REFRESH: Duration = Duration::from_secs(120);

pub struct Refresh(pub Arc<Engine>);

#[async_trait]
impl BackgroundTask for Refresh {
    const NAME: &'static str = "refresh";

    async fn activate(&mut self) -> ActivationResult {
        let providers = &self.0.providers;
        let refreshes = providers
            .listed()
            .filter_map(|(id, _)| Some(refresh(id, providers.machines(id)?)));
        let n_failed: u64 = join_all(refreshes).await.into_iter().sum();
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
