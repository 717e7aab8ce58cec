//! The clouds of the fleet's tests: fake ones, with a limit of ours, and with changes during a
//! scan.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use cloud::{
    CloudError, FakeCloud, FakeSettings, IdentityClaim, ImageTarget, LaunchError, LaunchOrder,
    LaunchedMachine, Leftover, MachineEnd, Machines, OwnedPage, PoolResourceMaker, Proof, Provider,
    ProviderContext, Region, Sighting, ValidateError, Verification, VerifyError, WorkerLog,
};
use contract::{Invalid, Schemas};
use domain::id::{LaunchToken, WorkerGroup, WorkerKey};
use domain::launch_config::LaunchConfig;
use domain::plan::{BidRequest, Bids};
use domain::time::Timestamp;
use domain::worker::Worker;
use serde_json::Value;
use server::config::Config;
use tokio::sync::{Barrier, Semaphore};

use crate::world::{ROOT_URL, TestClock};

type Happening = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(crate) struct TestCloud {
    /// The cloud itself, for scripts and for direct inspection.
    pub(crate) fake: FakeCloud,
    max_machines: Option<u64>,
    meanwhile: Mutex<Option<Happening>>,
    n_bids: AtomicUsize,
    pub(crate) looks: AtOnce,
    pub(crate) launches: AtOnce,
    /// Launches wait here for as long as there is one.
    pub(crate) launch_permits: Mutex<Option<Arc<Semaphore>>>,
    /// Each call that describes machines takes one of these.
    pub(crate) look_permits: Mutex<Option<Arc<Semaphore>>>,
    /// Refreshes wait here for as long as there is one.
    pub(crate) refresh_permits: Mutex<Option<Arc<Semaphore>>>,
    /// Another process ends the machines of this group.
    pub(crate) elsewhere: Mutex<Option<WorkerGroup>>,
    /// The logs of all its workers. Without it, the cloud answers as the fake one.
    pub(crate) log: Mutex<Option<Result<WorkerLog, CloudError>>>,
    /// Leftovers for the next removal, and the number of removals.
    leftovers: Mutex<(Vec<Leftover>, usize)>,
    /// Why the cloud cannot make the machines that it has accepted.
    not_made: Mutex<Option<MachineEnd>>,
    /// Where this cloud meets others that check a config at the same time.
    pub(crate) meeting: Mutex<Option<Arc<Barrier>>>,
}

/// How many calls of a kind are under way.
#[derive(Default)]
pub(crate) struct AtOnce {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl AtOnce {
    async fn count<T>(&self, call: impl Future<Output = T>) -> T {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        // Those that may be made at the same time are.
        tokio::task::yield_now().await;
        let answer = call.await;
        self.now.fetch_sub(1, Ordering::SeqCst);
        answer
    }

    pub(crate) fn now(&self) -> usize {
        self.now.load(Ordering::SeqCst)
    }

    /// The maximum number of concurrent calls since the last request.
    pub(crate) fn take_most(&self) -> usize {
        self.most.swap(0, Ordering::SeqCst)
    }
}

impl TestCloud {
    pub(crate) fn new(
        id: &str,
        max_machines: Option<u64>,
        config: &Config,
        clock: &Arc<TestClock>,
    ) -> Arc<Self> {
        let context = ProviderContext {
            id: id.parse().unwrap(),
            schemas: Schemas::new(),
            keyring: Arc::new(config.keyring().unwrap()),
            root_url: ROOT_URL.to_owned(),
            data: None,
            clock: Arc::clone(clock) as _,
        };
        Arc::new(Self {
            fake: FakeCloud::new(context, FakeSettings::default()),
            max_machines,
            meanwhile: Mutex::default(),
            n_bids: AtomicUsize::new(0),
            looks: AtOnce::default(),
            launches: AtOnce::default(),
            launch_permits: Mutex::default(),
            look_permits: Mutex::default(),
            refresh_permits: Mutex::default(),
            meeting: Mutex::default(),
            elsewhere: Mutex::default(),
            log: Mutex::default(),
            leftovers: Mutex::default(),
            not_made: Mutex::default(),
        })
    }

    /// How often bids were asked for since the last request.
    pub(crate) fn take_bids(&self) -> usize {
        self.n_bids.swap(0, Ordering::SeqCst)
    }

    /// Machines have left these. Returns how often leftovers were removed so far.
    pub(crate) fn leave(&self, left: impl IntoIterator<Item = Leftover>) -> usize {
        let mut leftovers = self.leftovers.lock().unwrap();
        leftovers.0.extend(left);
        leftovers.1
    }

    /// The cloud turns out to be unable to make its machines.
    pub(crate) fn fail_machines(&self, end: MachineEnd) {
        self.fake.set_lists_sightings(false);
        *self.not_made.lock().unwrap() = Some(end);
    }

    /// Runs after the next read of the cloud, and before we get its result.
    pub(crate) fn during_the_next_look(
        &self,
        happening: impl Future<Output = ()> + Send + 'static,
    ) {
        // With a list that contains the machines' states, no further read is needed.
        self.fake.set_lists_sightings(false);
        *self.meanwhile.lock().unwrap() = Some(Box::pin(happening));
    }
}

#[async_trait]
impl Provider for TestCloud {
    fn kind(&self) -> &'static str {
        self.fake.kind()
    }

    fn images(&self) -> Option<&dyn ImageTarget> {
        Provider::images(&self.fake)
    }

    fn validate(&self, config: &mut Value) -> Result<(), Invalid> {
        self.fake.validate(config)
    }

    async fn validate_outside(&self, _config: &mut Value) -> Result<(), ValidateError> {
        let meeting = self.meeting.lock().unwrap().clone();
        if let Some(meeting) = meeting {
            meeting.wait().await;
        }
        Ok(())
    }

    async fn verify(&self, claim: &IdentityClaim<'_>) -> Result<Verification, VerifyError> {
        self.fake.verify(claim).await
    }

    fn offered_by(&self, worker: &WorkerKey, proof: &Proof) -> Option<LaunchToken> {
        self.fake.offered_by(worker, proof)
    }

    fn machines(&self) -> Option<&dyn Machines> {
        Some(self)
    }

    async fn terminate(&self) -> Result<(), CloudError> {
        self.fake.terminate().await
    }

    fn pool_resources(&self) -> Option<&dyn PoolResourceMaker> {
        self.fake.pool_resources()
    }
}

#[async_trait]
impl Machines for TestCloud {
    fn max_machines(&self) -> Option<u64> {
        self.max_machines
    }

    fn bids(&self, config: &LaunchConfig, request: Option<&BidRequest>, now: Timestamp) -> Bids {
        self.n_bids.fetch_add(1, Ordering::SeqCst);
        self.fake.bids(config, request, now)
    }

    async fn refresh(&self) -> Result<(), CloudError> {
        let permits = self.refresh_permits.lock().unwrap().clone();
        if let Some(permits) = permits {
            permits.acquire().await.unwrap().forget();
        }
        self.fake.refresh().await
    }

    async fn launch(&self, order: &LaunchOrder<'_>) -> Result<Vec<LaunchedMachine>, LaunchError> {
        let launch_permits = self.launch_permits.lock().unwrap().clone();
        let passing = async {
            if let Some(launch_permits) = launch_permits {
                launch_permits.acquire().await.unwrap().forget();
            }
            self.fake.launch(order).await
        };
        self.launches.count(passing).await
    }

    async fn look(&self, workers: &[Worker]) -> Result<Vec<(WorkerKey, Sighting)>, CloudError> {
        let look_permits = self.look_permits.lock().unwrap().clone();
        let passing = async {
            if let Some(look_permits) = look_permits {
                look_permits.acquire().await.unwrap().forget();
            }
            self.fake.look(workers).await
        };
        let mut seen = self.looks.count(passing).await;
        let not_made = self.not_made.lock().unwrap().clone();
        if let (Some(end), Ok(seen)) = (not_made, &mut seen) {
            for (_, sighting) in seen {
                *sighting = Sighting::Ended(end.clone());
            }
        }
        let happening = self.meanwhile.lock().unwrap().take();
        if let Some(happening) = happening {
            happening.await;
        }
        seen
    }

    async fn read_log(&self, worker: &Worker) -> Result<WorkerLog, CloudError> {
        let log = self.log.lock().unwrap().clone();
        match log {
            Some(log) => log,
            None => self.fake.read_log(worker).await,
        }
    }

    fn look_batch(&self) -> usize {
        self.fake.look_batch()
    }

    fn regions(&self) -> Vec<Region> {
        self.fake.regions()
    }

    fn region_of(&self, group: &WorkerGroup) -> Region {
        self.fake.region_of(group)
    }

    fn can_end(&self, worker: &Worker) -> bool {
        self.elsewhere.lock().unwrap().as_ref() != Some(&worker.key.group)
    }

    async fn owned_page(
        &self,
        region: &Region,
        after: Option<&str>,
    ) -> Result<OwnedPage, CloudError> {
        self.fake.owned_page(region, after).await
    }

    async fn inherited_page(
        &self,
        region: &Region,
        after: Option<&str>,
    ) -> Result<OwnedPage, CloudError> {
        self.fake.inherited_page(region, after).await
    }

    async fn remove_leftovers(&self, _region: &Region) -> Result<Vec<Leftover>, CloudError> {
        let mut leftovers = self.leftovers.lock().unwrap();
        leftovers.1 += 1;
        Ok(std::mem::take(&mut leftovers.0))
    }

    fn group(&self, launch_config: &LaunchConfig) -> Option<WorkerGroup> {
        self.fake.group(launch_config)
    }

    async fn end(&self, worker: &Worker) -> Result<(), CloudError> {
        self.fake.end(worker).await
    }

    async fn end_many(&self, workers: &[Worker]) -> Vec<Result<(), CloudError>> {
        self.fake.end_many(workers).await
    }

    fn end_batch(&self) -> usize {
        self.fake.end_batch()
    }
}
