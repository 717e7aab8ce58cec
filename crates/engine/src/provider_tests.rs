//! The conformance runs of this process: the last one of each provider.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cloud::ConformanceFinding;
use domain::id::{LaunchToken, PoolId, ProviderId};
use serde_json::{Map, Value};
use tokio::sync::watch;

/// A run that a caller asks for.
pub struct ProviderTestOrder {
    pub provider_id: ProviderId,
    /// Names the run. Its machine has a token of its own.
    pub id: LaunchToken,
    pub subject: Option<TestedConfig>,
    /// Whether one machine is made.
    pub launches: bool,
    /// The caller has begun this run before, and only waits for it.
    pub is_begun: bool,
    pub wait: Duration,
}

/// The launch configs that are asked about.
pub enum TestedConfig {
    Pool(PoolId),
    LaunchConfig(Map<String, Value>),
}

/// The answers so far.
#[derive(Clone, Debug, Default)]
pub struct ProviderTestProgress {
    pub findings: Vec<ConformanceFinding>,
    pub is_done: bool,
}

/// The last run of each provider in this process.
#[derive(Default)]
pub struct ProviderTests(Mutex<BTreeMap<ProviderId, TestRun>>);

#[derive(Clone)]
pub(crate) struct TestRun {
    id: LaunchToken,
    pub(crate) progress: Arc<watch::Sender<ProviderTestProgress>>,
}

/// Why a run is not begun, or not waited for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoRun {
    /// Another run of the provider goes on.
    Busy,
    /// This process does not know the run.
    Unknown,
}

impl ProviderTests {
    /// The run that this caller has begun. `None`: it is to begin.
    pub(crate) fn known(&self, order: &ProviderTestOrder) -> Result<Option<TestRun>, NoRun> {
        let runs = self.runs();
        match runs.get(&order.provider_id) {
            Some(run) if run.id == order.id => Ok(Some(run.clone())),
            Some(_) | None if order.is_begun => Err(NoRun::Unknown),
            Some(run) if !run.progress.borrow().is_done => Err(NoRun::Busy),
            Some(_) | None => Ok(None),
        }
    }

    /// Takes the place of the provider's run, if no other has it.
    pub(crate) fn enter(&self, order: &ProviderTestOrder) -> Result<TestRun, NoRun> {
        let mut runs = self.runs();
        let known = runs.get(&order.provider_id);
        if known.is_some_and(|run| !run.progress.borrow().is_done) {
            return Err(NoRun::Busy);
        }
        let run = TestRun {
            id: order.id.clone(),
            progress: Arc::default(),
        };
        runs.insert(order.provider_id.clone(), run.clone());
        Ok(run)
    }

    fn runs(&self) -> MutexGuard<'_, BTreeMap<ProviderId, TestRun>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Marks the run as done when it is dropped.
pub(crate) struct DoneGuard(pub(crate) Arc<watch::Sender<ProviderTestProgress>>);

impl Drop for DoneGuard {
    fn drop(&mut self) {
        self.0.send_modify(|progress| progress.is_done = true);
    }
}
