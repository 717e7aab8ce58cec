//! A wrapper of every provider: a panic in its code becomes an error of that call, with its name in
//! the log. So no provider disturbs another, or the decision that asked it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use async_trait::async_trait;
use contract::{Invalid, Problem};
use domain::id::{LaunchToken, PoolId, ProviderId, WorkerGroup, WorkerKey};
use domain::launch_config::LaunchConfig;
use domain::plan::{BidRequest, Bids};
use domain::pool::Pool;
use domain::text::one_line;
use domain::time::Timestamp;
use domain::worker::Worker;
use futures_util::FutureExt as _;
use serde_json::{Map, Value};

use crate::{
    CallBudget, CloudError, ConfiguredRegion, Fills, IdentityClaim, ImageTarget, LaunchError,
    LaunchOrder, LaunchedMachine, Leftover, Machines, OwnedPage, Place, PlacesUnknown,
    PoolResourceMaker, Proof, Provider, Region, SetupError, Sighting, ValidateError, Verification,
    VerifyError, WorkerCreator, WorkerDeclarer, WorkerLog, WorkerOrder,
};

/// Longest text of a panic in an error.
const MAX_PANIC_CHARS: usize = 300;

/// Image targets and declarations of hosts are not wrapped: their calls run in jobs and requests.
pub(crate) struct PanicGuard {
    id: ProviderId,
    provider: Arc<dyn Provider>,
}

/// A provider whose constructor panicked. Its set-up always fails.
pub(crate) struct FailedProvider {
    pub(crate) kind: &'static str,
    pub(crate) why: String,
}

/// Builds a provider. If its constructor panics, only this provider is out of service.
pub(crate) fn build_or_fail(
    kind: &'static str,
    build: impl FnOnce() -> Arc<dyn Provider>,
) -> Arc<dyn Provider> {
    catch_unwind(AssertUnwindSafe(build)).unwrap_or_else(|panic| {
        let why = format!("the constructor panicked: {}", text_of(panic.as_ref()));
        Arc::new(FailedProvider { kind, why })
    })
}

#[async_trait]
impl Provider for FailedProvider {
    fn kind(&self) -> &'static str {
        self.kind
    }

    fn validate(&self, _config: &mut Value) -> Result<(), Invalid> {
        Ok(())
    }

    async fn setup(&self) -> Result<(), SetupError> {
        Err(SetupError(self.why.clone()))
    }

    async fn verify(&self, _claim: &IdentityClaim<'_>) -> Result<Verification, VerifyError> {
        Err(CloudError::Unavailable(self.why.clone()).into())
    }
}

impl PanicGuard {
    pub(crate) fn new(id: ProviderId, provider: Arc<dyn Provider>) -> Self {
        Self { id, provider }
    }

    /// The result of a call, or the text of its panic.
    async fn caught<T>(
        &self,
        call: &'static str,
        asked: impl Future<Output = T> + Send,
    ) -> Result<T, String> {
        let caught = AssertUnwindSafe(asked).catch_unwind().await;
        caught.map_err(|panic| self.report(call, panic.as_ref()))
    }

    fn caught_now<T>(&self, call: &'static str, ask: impl FnOnce() -> T) -> Result<T, String> {
        let caught = catch_unwind(AssertUnwindSafe(ask));
        caught.map_err(|panic| self.report(call, panic.as_ref()))
    }

    fn report(&self, call: &'static str, panic: &(dyn Any + Send)) -> String {
        let (id, text) = (&self.id, text_of(panic));
        tracing::error!(provider.id = %id, "provider {id} panicked in {call}: {text}");
        format!("the code of provider {id} panicked in {call}: {text}")
    }

    fn inner(&self) -> &dyn Machines {
        let machines = self.provider.machines();
        machines.expect("`machines` returns this wrapper only for a provider that has machines")
    }
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    one_line(&text.unwrap_or_default(), MAX_PANIC_CHARS)
}

fn lost<T>(result: Result<Result<T, CloudError>, String>) -> Result<T, CloudError> {
    result.unwrap_or_else(|panic| Err(CloudError::Unavailable(panic)))
}

#[async_trait]
impl Provider for PanicGuard {
    fn kind(&self) -> &'static str {
        self.provider.kind()
    }

    fn validate(&self, config: &mut Value) -> Result<(), Invalid> {
        let asked = self.caught_now("validate", || self.provider.validate(config));
        asked.unwrap_or_else(|message| {
            let pointer = String::new();
            let problems = vec![Problem { pointer, message }];
            let schema = self.provider.kind().to_owned();
            Err(Invalid { schema, problems })
        })
    }

    async fn validate_outside(&self, config: &mut Value) -> Result<(), ValidateError> {
        let asked = self.provider.validate_outside(config);
        let asked = self.caught("validate", asked).await;
        asked.unwrap_or_else(|panic| Err(CloudError::Unavailable(panic).into()))
    }

    async fn setup(&self) -> Result<(), SetupError> {
        let asked = self.caught("setup", self.provider.setup()).await;
        asked.unwrap_or_else(|panic| Err(SetupError(panic)))
    }

    async fn terminate(&self) -> Result<(), CloudError> {
        lost(self.caught("terminate", self.provider.terminate()).await)
    }

    async fn verify(&self, claim: &IdentityClaim<'_>) -> Result<Verification, VerifyError> {
        let asked = self.caught("verify", self.provider.verify(claim)).await;
        asked.unwrap_or_else(|panic| Err(CloudError::Unavailable(panic).into()))
    }

    fn offered_by(&self, worker: &WorkerKey, proof: &Proof) -> Option<LaunchToken> {
        let asked = self.caught_now("offered_by", || self.provider.offered_by(worker, proof));
        asked.ok().flatten()
    }

    fn places(&self) -> Result<Vec<Place>, PlacesUnknown> {
        let asked = self.caught_now("places", || self.provider.places());
        asked.unwrap_or_else(|panic| Err(PlacesUnknown(panic)))
    }

    fn region(&self) -> Option<&ConfiguredRegion> {
        self.provider.region()
    }

    fn fills(&self) -> Fills {
        let asked = self.caught_now("fills", || self.provider.fills());
        asked.unwrap_or_default()
    }

    fn declarer(&self) -> Option<&dyn WorkerDeclarer> {
        self.provider.declarer()
    }

    fn creator(&self) -> Option<&dyn WorkerCreator> {
        self.provider.creator().map(|_| self as &dyn WorkerCreator)
    }

    fn pool_resources(&self) -> Option<&dyn PoolResourceMaker> {
        let maker = self.provider.pool_resources();
        maker.map(|_| self as &dyn PoolResourceMaker)
    }

    fn machines(&self) -> Option<&dyn Machines> {
        self.provider.machines().map(|_| self as &dyn Machines)
    }

    fn images(&self) -> Option<&dyn ImageTarget> {
        self.provider.images()
    }

    fn images_need(&self) -> Option<&'static str> {
        self.provider.images_need()
    }
}

#[async_trait]
impl WorkerCreator for PanicGuard {
    async fn create_worker(&self, order: &WorkerOrder<'_>) -> Result<Value, CloudError> {
        let Some(creator) = self.provider.creator() else {
            return Err(gone("makes no single workers"));
        };
        lost(
            self.caught("createWorker", creator.create_worker(order))
                .await,
        )
    }

    async fn update_worker(
        &self,
        worker: &Worker,
        parameters: &Map<String, Value>,
    ) -> Result<Value, CloudError> {
        let Some(creator) = self.provider.creator() else {
            return Err(gone("makes no single workers"));
        };
        let asked = creator.update_worker(worker, parameters);
        lost(self.caught("updateWorker", asked).await)
    }
}

#[async_trait]
impl PoolResourceMaker for PanicGuard {
    async fn prepare_pool(&self, pool: &Pool, data: &Value) -> Result<Value, CloudError> {
        let Some(maker) = self.provider.pool_resources() else {
            return Err(gone("keeps no resources for pools"));
        };
        lost(
            self.caught("prepare_pool", maker.prepare_pool(pool, data))
                .await,
        )
    }

    async fn release_pool(&self, pool_id: &PoolId, data: &Value) -> Result<(), CloudError> {
        let Some(maker) = self.provider.pool_resources() else {
            return Err(gone("keeps no resources for pools"));
        };
        let asked = maker.release_pool(pool_id, data);
        lost(self.caught("release_pool", asked).await)
    }
}

/// The description of the provider has changed since it was asked.
fn gone(what: &str) -> CloudError {
    CloudError::Unavailable(format!("the provider {what} any more"))
}

#[async_trait]
impl Machines for PanicGuard {
    /// A provider that cannot say how many machines it takes gets no more.
    fn max_machines(&self) -> Option<u64> {
        let asked = self.caught_now("max_machines", || self.inner().max_machines());
        asked.unwrap_or(Some(0))
    }

    fn bids(&self, config: &LaunchConfig, request: Option<&BidRequest>, now: Timestamp) -> Bids {
        let asked = self.caught_now("bids", || self.inner().bids(config, request, now));
        asked.unwrap_or_else(Err)
    }

    fn call_budgets(&self) -> Vec<CallBudget> {
        let asked = self.caught_now("call_budgets", || self.inner().call_budgets());
        asked.unwrap_or_default()
    }

    fn wants_refresh(&self) -> bool {
        let asked = self.caught_now("wants_refresh", || self.inner().wants_refresh());
        asked.unwrap_or(false)
    }

    async fn reread_files(&self) {
        let _ = self
            .caught("reread_files", self.inner().reread_files())
            .await;
    }

    fn warning(&self) -> Option<String> {
        let asked = self.caught_now("warning", || self.inner().warning());
        asked.unwrap_or_else(Some)
    }

    async fn refresh(&self) -> Result<(), CloudError> {
        lost(self.caught("refresh", self.inner().refresh()).await)
    }

    async fn launch(&self, order: &LaunchOrder<'_>) -> Result<Vec<LaunchedMachine>, LaunchError> {
        let asked = self.caught("launch", self.inner().launch(order)).await;
        asked.unwrap_or_else(|panic| Err(LaunchError::Unknown(panic)))
    }

    async fn look(&self, workers: &[Worker]) -> Result<Vec<(WorkerKey, Sighting)>, CloudError> {
        lost(self.caught("look", self.inner().look(workers)).await)
    }

    async fn read_log(&self, worker: &Worker) -> Result<WorkerLog, CloudError> {
        lost(self.caught("read_log", self.inner().read_log(worker)).await)
    }

    fn look_batch(&self) -> usize {
        let asked = self.caught_now("look_batch", || self.inner().look_batch());
        asked.unwrap_or(1)
    }

    fn regions(&self) -> Vec<Region> {
        let asked = self.caught_now("regions", || self.inner().regions());
        asked.unwrap_or_default()
    }

    fn region_of(&self, group: &WorkerGroup) -> Region {
        let asked = self.caught_now("region_of", || self.inner().region_of(group));
        asked.unwrap_or(Region::Everything)
    }

    /// Otherwise the worker would be ended here although another process has it.
    fn can_end(&self, worker: &Worker) -> bool {
        let asked = self.caught_now("can_end", || self.inner().can_end(worker));
        asked.unwrap_or(false)
    }

    async fn owned_page(
        &self,
        region: &Region,
        after: Option<&str>,
    ) -> Result<OwnedPage, CloudError> {
        lost(
            self.caught("owned", self.inner().owned_page(region, after))
                .await,
        )
    }

    async fn inherited_page(
        &self,
        region: &Region,
        after: Option<&str>,
    ) -> Result<OwnedPage, CloudError> {
        let asked = self.inner().inherited_page(region, after);
        lost(self.caught("inherited", asked).await)
    }

    async fn remove_leftovers(&self, region: &Region) -> Result<Vec<Leftover>, CloudError> {
        let asked = self.inner().remove_leftovers(region);
        lost(self.caught("leftovers", asked).await)
    }

    fn group(&self, launch_config: &LaunchConfig) -> Option<WorkerGroup> {
        let asked = self.caught_now("group", || self.inner().group(launch_config));
        asked.ok().flatten()
    }

    async fn end(&self, worker: &Worker) -> Result<(), CloudError> {
        lost(self.caught("end", self.inner().end(worker)).await)
    }

    async fn end_many(&self, workers: &[Worker]) -> Vec<Result<(), CloudError>> {
        let asked = self.caught("end", self.inner().end_many(workers)).await;
        asked.unwrap_or_else(|panic| vec![Err(CloudError::Unavailable(panic)); workers.len()])
    }

    fn end_batch(&self) -> usize {
        let asked = self.caught_now("end_batch", || self.inner().end_batch());
        asked.unwrap_or(1)
    }
}
