//! The `local` provider: worker processes on this machine.
//!
//! Processes survive a restart of the server: each has a folder with what is needed to find it
//! again (see `folder`). Each has its own process group and writes its output to a file.

mod environment;
mod folder;
mod host;
mod images;
mod in_image;
mod order;
mod process;
mod rooted;
#[cfg(test)]
mod tests;
mod unpack;

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use contract::Invalid;
use domain::id::{LaunchToken, WorkerKey};
use domain::launch_config::LaunchConfig;
use domain::plan::{Bid, BidRequest, Bids};
use domain::time::Timestamp;
use domain::worker::Worker;
use serde::Deserialize;
use serde_json::Value;

use self::folder::WorkerFolder;
use self::host::{Host, Step};
use self::order::Order;
use crate::provider::refuse_if_any;
use crate::{
    CloudError, ConfiguredRegion, CostPerHour, IdentityClaim, ImageTarget, LaunchError,
    LaunchOrder, LaunchedMachine, Machines, OwnedPage, Proof, Provider, ProviderContext, Region,
    SetupError, Sighting, Verification, VerifyError, WorkerLog,
};

const SCHEMA: &str = "fleetwright/v1/config-local.json";
/// Workers that one `look` takes.
const LOOK_BATCH: usize = 1_000;

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LocalSettings {
    /// Workers at a time; `None`: the number of processor cores.
    pub max_machines: Option<u32>,
    /// The program and its arguments; `{identity}` stands for the path of the worker's identity
    /// file. Empty: this program as a worker.
    pub command: Vec<String>,
    /// Programs of images run with the rights of their owner, as `sudo` needs.
    pub image_setuid: bool,
    /// Dollars per hour and worker.
    pub cost_per_hour: CostPerHour,
    /// The region of its places, for rules. Default: the id of the provider.
    pub region: Option<ConfiguredRegion>,
}

pub struct LocalProvider(Arc<Host>);

impl LocalProvider {
    pub fn new(context: ProviderContext, settings: LocalSettings) -> Self {
        Self::with_steps(context, settings, |_| ())
    }

    /// Calls `at_step` at each step of a launch, so that tests can stop there.
    fn with_steps(context: ProviderContext, settings: LocalSettings, at_step: fn(Step)) -> Self {
        Self(Arc::new(Host::new(context, settings, at_step)))
    }

    /// Runs work that blocks on files and processes.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<Host>) -> T + Send + 'static,
    ) -> Result<T, CloudError> {
        let host = Arc::clone(&self.0);
        let done = tokio::task::spawn_blocking(move || work(&host)).await;
        done.map_err(|error| CloudError::Unavailable(error.to_string()))
    }
}

#[async_trait]
impl Provider for LocalProvider {
    fn kind(&self) -> &'static str {
        "local"
    }

    fn validate(&self, config: &mut Value) -> Result<(), Invalid> {
        self.0.context.schemas.validate(SCHEMA, config)?;
        refuse_if_any(SCHEMA, environment::problems(config))
    }

    async fn setup(&self) -> Result<(), SetupError> {
        let done = self.run(|host| host.set_up()).await;
        done.map_err(|error| SetupError(error.to_string()))?
    }

    /// A worker registers once, while it is requested.
    async fn verify(&self, claim: &IdentityClaim<'_>) -> Result<Verification, VerifyError> {
        Ok(self.0.tokens.verify(claim)?)
    }

    fn offered_by(&self, worker: &WorkerKey, proof: &Proof) -> Option<LaunchToken> {
        self.0.tokens.offered_by(worker, proof)
    }

    fn region(&self) -> Option<&ConfiguredRegion> {
        self.0.region.as_ref()
    }

    fn machines(&self) -> Option<&dyn Machines> {
        Some(self)
    }

    fn images(&self) -> Option<&dyn ImageTarget> {
        Some(self)
    }
}

#[async_trait]
impl Machines for LocalProvider {
    fn max_machines(&self) -> Option<u64> {
        Some(self.0.max_machines.into())
    }

    fn bids(&self, _config: &LaunchConfig, _request: Option<&BidRequest>, _now: Timestamp) -> Bids {
        Ok(vec![Bid {
            price: self.0.cost.price(),
            ..Bid::plain(self.0.group.to_string())
        }])
    }

    async fn launch(&self, order: &LaunchOrder<'_>) -> Result<Vec<LaunchedMachine>, LaunchError> {
        let order = Order::new(order);
        let done = self.run(move |host| host.launch(&order)).await;
        done.unwrap_or_else(|error| Err(LaunchError::Unknown(error.to_string())))
    }

    async fn look(&self, workers: &[Worker]) -> Result<Vec<(WorkerKey, Sighting)>, CloudError> {
        let keys: Vec<WorkerKey> = workers.iter().map(|worker| worker.key.clone()).collect();
        self.run(move |host| host.look(keys)).await?
    }

    async fn read_log(&self, worker: &Worker) -> Result<WorkerLog, CloudError> {
        let key = worker.key.clone();
        self.run(move |host| {
            let root = host.known_root()?;
            let folder = WorkerFolder::of(&root, &key);
            folder.map_or(Ok(WorkerLog::Missing), |folder| {
                folder.log_end().map(WorkerLog::Kept)
            })
        })
        .await?
        .map_err(|error: io::Error| CloudError::Unavailable(error.to_string()))
    }

    fn look_batch(&self) -> usize {
        LOOK_BATCH
    }

    fn can_end(&self, worker: &Worker) -> bool {
        self.0.may_have(&worker.key)
    }

    async fn owned_page(
        &self,
        _region: &Region,
        _after: Option<&str>,
    ) -> Result<OwnedPage, CloudError> {
        let owned = self.run(|host| host.owned()).await?;
        owned.map(OwnedPage::only)
    }

    async fn end(&self, worker: &Worker) -> Result<(), CloudError> {
        let key = worker.key.clone();
        self.run(move |host| host.end(&key)).await?
    }
}
