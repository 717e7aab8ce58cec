//! A simulated cloud: it launches at once, records the requests, and takes time for checks.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ::cloud::{
    CloudError, IdentityClaim, LaunchError, LaunchOrder, LaunchedMachine, Machines, OwnedPage,
    ProofRefused, Provider, Region, Sighting, Verification, VerifyError,
};
use async_trait::async_trait;
use contract::Invalid;
use domain::id::{PoolId, WorkerKey};
use domain::worker::Worker;
use serde_json::{Value, json};

use crate::machine::{self, Stopwatch};

/// Pools of a year-old database have another one. They would launch a hundred thousand machines at
/// once, because no worker claims their tasks.
pub(crate) const PROVIDER: &str = "bench-cloud";
/// As many machines as a large cloud describes in a call.
const LOOK_BATCH: usize = 1_000;
/// A lower limit: real clouds take several times as long.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(crate) struct BenchCloud {
    watch: Mutex<Option<Stopwatch>>,
    /// Requests for launches: pool, time in seconds, number of machines.
    asked: Mutex<Vec<(PoolId, f64, u32)>>,
    looks: Mutex<Looks>,
}

/// Calls that describe machines.
#[derive(Default)]
pub(crate) struct Looks {
    pub(crate) count: u64,
    pub(crate) n_workers: usize,
    /// How long at least one of them was running.
    pub(crate) seconds: f64,
    n_running: u32,
    /// Since the first of those that are running began.
    running: Option<Stopwatch>,
}

impl Looks {
    fn begin(&mut self, n_workers: usize) {
        self.count += 1;
        self.n_workers += n_workers;
        self.n_running += 1;
        self.running.get_or_insert_with(Stopwatch::start);
    }

    fn end(&mut self) {
        self.n_running -= 1;
        if let Some(running) = self.running.take_if(|_| self.n_running == 0) {
            self.seconds += running.elapsed().as_secs_f64();
        }
    }
}

impl BenchCloud {
    /// Starts to record launches.
    pub(crate) fn listen(&self) {
        *lock(&self.watch) = Some(Stopwatch::start());
    }

    pub(crate) fn seconds(&self) -> f64 {
        let watch = lock(&self.watch);
        watch
            .as_ref()
            .map_or(0.0, |watch| watch.elapsed().as_secs_f64())
    }

    pub(crate) fn asked(&self) -> Vec<(PoolId, f64, u32)> {
        lock(&self.asked).clone()
    }

    /// The number of machines that were requested.
    pub(crate) fn n_asked(&self) -> u32 {
        lock(&self.asked)
            .iter()
            .map(|(_, _, machines)| machines)
            .sum()
    }

    /// The calls since this was last called.
    pub(crate) fn take_looks(&self) -> Looks {
        std::mem::take(&mut *lock(&self.looks))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl Provider for BenchCloud {
    fn kind(&self) -> &'static str {
        "bench"
    }

    fn validate(&self, _config: &mut Value) -> Result<(), Invalid> {
        Ok(())
    }

    async fn verify(&self, _claim: &IdentityClaim<'_>) -> Result<Verification, VerifyError> {
        Err(ProofRefused {
            message: "not supported for this provider",
            detail: "no worker registers in this measurement".to_owned(),
        }
        .into())
    }

    fn machines(&self) -> Option<&dyn Machines> {
        Some(self)
    }
}

#[async_trait]
impl Machines for BenchCloud {
    async fn launch(&self, order: &LaunchOrder<'_>) -> Result<Vec<LaunchedMachine>, LaunchError> {
        let at = self.seconds();
        lock(&self.asked).push((order.pool.id.clone(), at, order.machines));
        let made = (0..order.machines).map(|number| LaunchedMachine {
            group: "bench".parse().expect("this is a group"),
            id: format!("{}-{number}", order.token)
                .parse()
                .expect("this is an id"),
            made: None,
            provider_data: json!({}),
        });
        Ok(made.collect())
    }

    async fn look(&self, workers: &[Worker]) -> Result<Vec<(WorkerKey, Sighting)>, CloudError> {
        lock(&self.looks).begin(workers.len());
        machine::pause(LOOK).await;
        lock(&self.looks).end();
        let seen = workers
            .iter()
            .map(|worker| (worker.key.clone(), Sighting::Alive));
        Ok(seen.collect())
    }

    fn look_batch(&self) -> usize {
        LOOK_BATCH
    }

    /// The machines of the measurement were not launched by us, so there is none to find.
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
