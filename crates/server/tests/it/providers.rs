//! Providers that do on demand what real ones do when nobody expects it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use cloud::{
    CloudError, IdentityClaim, LaunchError, LaunchOrder, LaunchedMachine, Machines, OwnedPage,
    ProofRefused, Provider, Region, SetupError, Sighting, Verification, VerifyError,
};
use contract::Invalid;
use domain::id::WorkerKey;
use domain::worker::Worker;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

/// Its set-up fails until it is told to succeed.
#[derive(Default)]
pub(crate) struct Shaky {
    pub(crate) works: AtomicBool,
    /// It cannot tell whether a proof is right.
    pub(crate) is_blind: AtomicBool,
}

#[async_trait]
impl Provider for Shaky {
    fn kind(&self) -> &'static str {
        "shaky"
    }

    fn validate(&self, _config: &mut Value) -> Result<(), Invalid> {
        Ok(())
    }

    async fn setup(&self) -> Result<(), SetupError> {
        match self.works.load(Ordering::Acquire) {
            true => Ok(()),
            false => Err(SetupError("the cloud is on holiday".to_owned())),
        }
    }

    async fn verify(&self, _claim: &IdentityClaim<'_>) -> Result<Verification, VerifyError> {
        if self.is_blind.load(Ordering::Acquire) {
            let outage = "its service does not answer".to_owned();
            return Err(CloudError::Unavailable(outage).into());
        }
        Err(ProofRefused {
            message: "never satisfied",
            detail: "on principle".to_owned(),
        }
        .into())
    }
}

/// Believes everybody, but only once it is let go on.
pub(crate) struct Pausing {
    /// A permit for each claim that may be answered.
    pub(crate) go: Semaphore,
    /// A permit for each claim that has arrived.
    pub(crate) arrived: Semaphore,
}

impl Pausing {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            go: Semaphore::new(0),
            arrived: Semaphore::new(0),
        })
    }
}

#[async_trait]
impl Provider for Pausing {
    fn kind(&self) -> &'static str {
        "pausing"
    }

    fn validate(&self, _config: &mut Value) -> Result<(), Invalid> {
        Ok(())
    }

    async fn verify(&self, claim: &IdentityClaim<'_>) -> Result<Verification, VerifyError> {
        self.arrived.add_permits(1);
        self.go.acquire().await.unwrap().forget();
        let state = claim
            .worker
            .state
            .register()
            .map_err(|problem| ProofRefused {
                message: "too late",
                detail: problem.to_string(),
            })?;
        Ok(Verification {
            state,
            lasts_ms: 3_600_000,
            worker_config: json!({}),
        })
    }

    fn machines(&self) -> Option<&dyn Machines> {
        Some(self)
    }
}

#[async_trait]
impl Machines for Pausing {
    async fn launch(&self, _order: &LaunchOrder<'_>) -> Result<Vec<LaunchedMachine>, LaunchError> {
        Ok(Vec::new())
    }

    async fn look(&self, _workers: &[Worker]) -> Result<Vec<(WorkerKey, Sighting)>, CloudError> {
        Ok(Vec::new())
    }

    async fn owned_page(
        &self,
        _region: &Region,
        _after: Option<&str>,
    ) -> Result<OwnedPage, CloudError> {
        Ok(OwnedPage::default())
    }

    async fn end(&self, _worker: &Worker) -> Result<(), CloudError> {
        Ok(())
    }
}
