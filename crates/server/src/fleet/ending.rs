//! Ending machines whose workers were told to go, again and again until they are gone.
//!
//! Many by one call where the cloud can; region by region, and none waits for another. A machine that cannot be ended
//! is tried again later and later, and keeps no other from its end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cloud::{CloudError, Machines, Region};
use domain::id::{ProviderId, WorkerKey};
use domain::time::{HOUR_MS, MINUTE_MS, SECOND_MS, Timestamp};
use domain::worker::Worker;
use futures_util::StreamExt;
use futures_util::stream;
use store::StoreError;

use super::regions::RegionTasks;
use crate::app::App;

const PAGE: u32 = 500;
const MAX_OF_REGION: usize = 1_000;
const MAX_CALLS: usize = 8;
const MAX_CALL: Duration = Duration::from_secs(30);
const MAX_FAILURES: usize = 2;
/// An activation waits no longer for its regions. The next one does not wait for those that took longer.
const PATIENCE: Duration = Duration::from_secs(30);
/// A cloud that was told to end a machine is not told again before this has passed.
const AGAIN_MS: i64 = MINUTE_MS;
/// A machine that could not be ended is tried again after this time, which doubles with each failure.
const FIRST_BACKOFF_MS: i64 = 2 * SECOND_MS;
const MAX_BACKOFF_MS: i64 = 20 * MINUTE_MS;
/// Longer than any wait: what is older is forgotten. That costs a further call, no more.
const FORGET_MS: i64 = HOUR_MS;

const _: () = assert!(MAX_BACKOFF_MS < FORGET_MS && AGAIN_MS < FORGET_MS);

/// How much is done at a time.
#[derive(Clone, Copy, Debug)]
pub struct EndingLimits {
    /// Rows that are read at a time.
    pub page: u32,
    /// Machines of one region that are ended by one activation; the next ends others.
    pub of_region: usize,
    /// Calls to one region that are under way at the same time.
    pub calls: usize,
    /// After this many calls that ended no machine a region is left alone until the next activation.
    pub failures: usize,
}

impl Default for EndingLimits {
    fn default() -> Self {
        Self {
            page: PAGE,
            of_region: MAX_OF_REGION,
            calls: MAX_CALLS,
            failures: MAX_FAILURES,
        }
    }
}

/// The last call about a machine.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    at: Timestamp,
    /// Failures in a row.
    n_failed: u32,
}

/// Ends the machines of one provider, activation by activation.
pub struct Ender {
    app: Arc<App>,
    provider_id: ProviderId,
    limits: EndingLimits,
    attempts: BTreeMap<WorkerKey, Attempt>,
    regions: RegionTasks<Vec<(WorkerKey, bool)>>,
}

impl Attempt {
    fn is_over(&self, now: Timestamp) -> bool {
        now.millis_since(self.at) >= self.wait_ms()
    }

    fn wait_ms(&self) -> i64 {
        match self.n_failed.checked_sub(1) {
            None => AGAIN_MS,
            // 2^20 times the first is far beyond the longest.
            Some(doublings) => (FIRST_BACKOFF_MS << doublings.min(20)).min(MAX_BACKOFF_MS),
        }
    }
}

impl Ender {
    pub fn new(app: Arc<App>, provider_id: ProviderId) -> Self {
        Self::with_limits(app, provider_id, EndingLimits::default())
    }

    pub fn with_limits(app: Arc<App>, provider_id: ProviderId, limits: EndingLimits) -> Self {
        Self {
            app,
            provider_id,
            limits,
            attempts: BTreeMap::new(),
            regions: RegionTasks::default(),
        }
    }

    /// Tells the provider to end machines whose workers are stopping. Returns how many it was told to end.
    pub async fn end_stopping(&mut self) -> Result<u64, StoreError> {
        self.end_for(PATIENCE).await
    }

    /// Waits no longer than this for the provider's regions.
    pub async fn end_for(&mut self, patience: Duration) -> Result<u64, StoreError> {
        let app = Arc::clone(&self.app);
        let Ok(provider) = app.providers.get(&self.provider_id) else {
            return Ok(0);
        };
        let Some(machines) = provider.machines() else {
            return Ok(0);
        };
        let now = app.clock.now();
        self.attempts
            .retain(|_, attempt| now.millis_since(attempt.at) < FORGET_MS);
        for (region, workers) in self.due(machines, now).await? {
            let (app, id, of) = (Arc::clone(&app), self.provider_id.clone(), region.clone());
            let limits = self.limits;
            let work = async move { end_in(&app, &id, &of, workers, limits).await };
            self.regions.start(region, work);
        }
        let mut n_told = 0;
        for (region, ended) in self.regions.ended(patience).await {
            let results = ended.unwrap_or_else(|problem| {
                tracing::error!(provider.id = %self.provider_id, region = %region,
                    "ending machines in {region} failed: {problem}");
                Vec::new()
            });
            for (key, is_told) in results {
                n_told += u64::from(is_told);
                self.note(key, is_told, now);
            }
        }
        Ok(n_told)
    }

    fn note(&mut self, key: WorkerKey, is_told: bool, at: Timestamp) {
        let before = self
            .attempts
            .get(&key)
            .map_or(0, |attempt| attempt.n_failed);
        let n_failed = if is_told { 0 } else { before + 1 };
        self.attempts.insert(key, Attempt { at, n_failed });
    }

    /// Stopping workers about which the provider is to be called now, by region.
    async fn due(
        &self,
        machines: &dyn Machines,
        now: Timestamp,
    ) -> Result<BTreeMap<Region, Vec<Worker>>, StoreError> {
        let mut due: BTreeMap<Region, Vec<Worker>> = BTreeMap::new();
        let EndingLimits {
            page: size,
            of_region,
            ..
        } = self.limits;
        let mut after: Option<WorkerKey> = None;
        loop {
            let (id, start) = (self.provider_id.clone(), after.take());
            let page = self.app.store.read("worker_list_stopping", move |tx| {
                store::worker_list_stopping(tx, &id, start.as_ref(), size)
            });
            let page = page.await?;
            let is_last = page.len() < size as usize;
            after = page.last().map(|worker| worker.key.clone());
            for worker in page {
                let attempt = self.attempts.get(&worker.key);
                if attempt.is_some_and(|attempt| !attempt.is_over(now)) {
                    continue;
                }
                let region = machines.region_of(&worker.key.group);
                if self.regions.is_busy(&region) {
                    continue;
                }
                let workers = due.entry(region).or_default();
                if workers.len() < of_region {
                    workers.push(worker);
                } else {
                    // There is more to do than this time.
                    self.app.wake.ending(&self.provider_id).notify_one();
                }
            }
            if is_last {
                return Ok(due);
            }
        }
    }
}

/// Ends these machines of one region. Returns those that were tried, and whether the cloud was told.
async fn end_in(
    app: &Arc<App>,
    provider_id: &ProviderId,
    region: &Region,
    workers: Vec<Worker>,
    limits: EndingLimits,
) -> Vec<(WorkerKey, bool)> {
    let provider = app.providers.get(provider_id).ok();
    let Some(machines) = provider.and_then(|provider| provider.machines()) else {
        return Vec::new();
    };
    // Gathered first: a future that holds a closure over borrows is not general enough for the tasks.
    let mut calls = Vec::new();
    for batch in workers.chunks(machines.end_batch().max(1)) {
        calls.push(end_batch(machines, batch));
    }
    let mut calls = stream::iter(calls).buffer_unordered(limits.calls);
    let mut results = Vec::new();
    let mut n_failed = 0;
    while let Some(done) = calls.next().await {
        // Machine by machine: one that is refused says nothing about its region.
        let is_down = |(_, result): &(WorkerKey, Result<(), CloudError>)| {
            result
                .as_ref()
                .is_err_and(|problem| !matches!(problem, CloudError::Refused(_)))
        };
        n_failed += usize::from(done.iter().all(is_down));
        for (key, result) in done {
            if let Err(problem) = &result {
                tracing::warn!(provider.id = %provider_id, region = %region, worker.id = %key.id,
                    worker.pool = %key.pool_id, error = %problem,
                    "cannot end {key}; it is tried again later: {problem}");
            }
            results.push((key, result.is_ok()));
        }
        if n_failed >= limits.failures {
            break;
        }
    }
    results
}

/// Its time begins when it is made, not when it is planned.
async fn end_batch(
    machines: &dyn Machines,
    workers: &[Worker],
) -> Vec<(WorkerKey, Result<(), CloudError>)> {
    let keys = workers.iter().map(|worker| worker.key.clone());
    match tokio::time::timeout(MAX_CALL, machines.end_many(workers)).await {
        Ok(results) => keys.zip(results).collect(),
        Err(_) => keys.map(|key| (key, Err(late()))).collect(),
    }
}

/// Once, within limits.
pub(super) async fn end_now(machines: &dyn Machines, worker: &Worker) -> Result<(), CloudError> {
    let ended = tokio::time::timeout(MAX_CALL, machines.end(worker)).await;
    ended.unwrap_or_else(|_| Err(late()))
}

fn late() -> CloudError {
    CloudError::Unavailable(format!("no answer within {} s", MAX_CALL.as_secs()))
}
