//! Ending machines whose workers were told to go, again and again until they are gone.
//!
//! Many by one call where the cloud can; region by region, and none waits for another. A machine that the cloud refuses to
//! end is tried again later and later. A call that got no answer says nothing about its machines: they are tried again
//! soon, after all others, so that no machine keeps another from its end.

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
use crate::Engine;

const PAGE: u32 = 500;
const MAX_OF_REGION: usize = 1_000;
const MAX_CALLS: usize = 8;
const MAX_CALL: Duration = Duration::from_secs(30);
const MAX_FAILURES: usize = 2;
/// An activation waits no longer for its regions. The next one does not wait for those that took longer.
const PATIENCE: Duration = Duration::from_secs(30);
/// A cloud that was told to end a machine is not told again before this has passed.
const AGAIN_MS: i64 = MINUTE_MS;
/// A region that answered no call is left alone for this time. It does not grow: machines cost money until they are gone.
const OUTAGE_MS: i64 = 3 * SECOND_MS;
/// A machine that the cloud refused to end is tried again after this time, which doubles with each refusal.
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

/// What a call about a machine came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Told,
    Refused,
    /// The cloud did not say anything about this machine: it was down, or asked us to slow down.
    Unanswered,
}

/// The last call about a machine.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    at: Timestamp,
    outcome: Outcome,
    /// Refusals since the cloud was last told.
    n_refused: u32,
}

/// Ends the machines of one provider, activation by activation.
pub struct Ender {
    engine: Arc<Engine>,
    provider_id: ProviderId,
    limits: EndingLimits,
    attempts: BTreeMap<WorkerKey, Attempt>,
    /// Regions that answered no call of their last activation, and when that was.
    outages: BTreeMap<Region, Timestamp>,
    regions: RegionTasks<Vec<(WorkerKey, Outcome)>>,
}

impl Outcome {
    fn of(result: &Result<(), CloudError>) -> Self {
        match result {
            Ok(()) => Self::Told,
            Err(CloudError::Refused(_)) => Self::Refused,
            Err(
                CloudError::Throttled(_) | CloudError::Credentials(_) | CloudError::Unavailable(_),
            ) => Self::Unanswered,
        }
    }
}

impl Attempt {
    fn is_over(&self, now: Timestamp) -> bool {
        !is_within(now, self.at, self.wait_ms())
    }

    fn wait_ms(&self) -> i64 {
        match self.outcome {
            Outcome::Told => AGAIN_MS,
            Outcome::Unanswered => 0, // Its region waits, if it answers nothing.
            Outcome::Refused => {
                // 2^20 times the first is far beyond the longest.
                let doublings = self.n_refused.saturating_sub(1).min(20);
                (FIRST_BACKOFF_MS << doublings).min(MAX_BACKOFF_MS)
            }
        }
    }
}

impl Ender {
    pub fn new(engine: Arc<Engine>, provider_id: ProviderId) -> Self {
        Self::with_limits(engine, provider_id, EndingLimits::default())
    }

    pub fn with_limits(engine: Arc<Engine>, provider_id: ProviderId, limits: EndingLimits) -> Self {
        Self {
            engine,
            provider_id,
            limits,
            attempts: BTreeMap::new(),
            outages: BTreeMap::new(),
            regions: RegionTasks::default(),
        }
    }

    /// Tells the provider to end machines whose workers are stopping. Returns how many it was told to end.
    pub async fn end_stopping(&mut self) -> Result<u64, StoreError> {
        self.end_for(PATIENCE).await
    }

    /// Waits no longer than this for the provider's regions.
    pub async fn end_for(&mut self, patience: Duration) -> Result<u64, StoreError> {
        let engine = Arc::clone(&self.engine);
        let Ok(provider) = engine.providers.get(&self.provider_id) else {
            return Ok(0);
        };
        let Some(machines) = provider.machines() else {
            return Ok(0);
        };
        let now = engine.clock.now();
        self.attempts
            .retain(|_, attempt| now.millis_since(attempt.at) < FORGET_MS);
        self.outages.retain(|_, at| is_within(now, *at, OUTAGE_MS));
        for (region, workers) in self.due(machines, now).await? {
            let (engine, id, of) = (
                Arc::clone(&engine),
                self.provider_id.clone(),
                region.clone(),
            );
            let limits = self.limits;
            let work = async move { end_in(&engine, &id, &of, workers, limits).await };
            self.regions.start(region, work);
        }
        let mut n_told = 0;
        for (region, ended) in self.regions.ended(patience).await {
            let results = ended.unwrap_or_else(|problem| {
                tracing::error!(provider.id = %self.provider_id, region = %region,
                    "ending machines in {region} failed: {problem}");
                Vec::new()
            });
            let is_silent = |(_, outcome): &(WorkerKey, Outcome)| *outcome == Outcome::Unanswered;
            if !results.is_empty() && results.iter().all(is_silent) {
                self.outages.insert(region, now);
            }
            for (key, outcome) in results {
                n_told += u64::from(outcome == Outcome::Told);
                self.note(key, outcome, now);
            }
        }
        Ok(n_told)
    }

    fn note(&mut self, key: WorkerKey, outcome: Outcome, at: Timestamp) {
        let before = self
            .attempts
            .get(&key)
            .map_or(0, |attempt| attempt.n_refused);
        let n_refused = match outcome {
            Outcome::Told => 0,
            Outcome::Refused => before.saturating_add(1),
            Outcome::Unanswered => before,
        };
        let attempt = Attempt {
            at,
            outcome,
            n_refused,
        };
        self.attempts.insert(key, attempt);
    }

    /// Stopping workers about which the provider is to be called now, by region.
    async fn due(
        &self,
        machines: &dyn Machines,
        now: Timestamp,
    ) -> Result<BTreeMap<Region, Vec<Worker>>, StoreError> {
        let mut due: BTreeMap<Region, Vec<Worker>> = BTreeMap::new();
        let mut after: Option<WorkerKey> = None;
        loop {
            let (id, start) = (self.provider_id.clone(), after.take());
            let size = self.limits.page;
            let page = self.engine.store.read("worker_list_stopping", move |tx| {
                store::workers::list_stopping(tx, &id, start.as_ref(), size)
            });
            let page = page.await?;
            let is_last = page.len() < size as usize;
            after = page.last().map(|worker| worker.key.clone());
            for worker in page {
                let region = machines.region_of(&worker.key.group);
                if self.is_due(&worker.key, &region, now) {
                    due.entry(region).or_default().push(worker);
                }
            }
            for workers in due.values_mut() {
                self.keep_first(workers);
            }
            if is_last {
                return Ok(due);
            }
        }
    }

    fn is_due(&self, key: &WorkerKey, region: &Region, now: Timestamp) -> bool {
        let attempt = self.attempts.get(key);
        attempt.is_none_or(|attempt| attempt.is_over(now))
            && !self.regions.is_busy(region)
            && !self.outages.contains_key(region)
    }

    /// As many as one activation ends: those that were not tried yet, then those that were tried longest ago.
    fn keep_first(&self, workers: &mut Vec<Worker>) {
        workers.sort_by_key(|worker| self.attempts.get(&worker.key).map(|attempt| attempt.at));
        if workers.len() > self.limits.of_region {
            workers.truncate(self.limits.of_region);
            // There is more to do than this time.
            self.engine.wake.ending(&self.provider_id).notify_one();
        }
    }
}

/// Not if the clock was set back since: nothing waits for hours because the time was put right.
fn is_within(now: Timestamp, since: Timestamp, wait_ms: i64) -> bool {
    (0..wait_ms).contains(&now.millis_since(since))
}

/// Ends these machines of one region. Returns those that were tried, and what came of it.
async fn end_in(
    engine: &Arc<Engine>,
    provider_id: &ProviderId,
    region: &Region,
    workers: Vec<Worker>,
    limits: EndingLimits,
) -> Vec<(WorkerKey, Outcome)> {
    let provider = engine.providers.get(provider_id).ok();
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
        let is_silent = |(_, result): &(WorkerKey, Result<(), CloudError>)| {
            Outcome::of(result) == Outcome::Unanswered
        };
        n_failed += usize::from(done.iter().all(is_silent));
        for (key, result) in done {
            if let Err(problem) = &result {
                tracing::warn!(provider.id = %provider_id, region = %region, worker.id = %key.id,
                    worker.pool = %key.pool_id, error = %problem,
                    "cannot end {key}; it is tried again later: {problem}");
            }
            results.push((key, Outcome::of(&result)));
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
