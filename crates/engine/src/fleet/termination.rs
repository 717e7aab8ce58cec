//! Ends the machines of stopping workers, with retries until they have ended.
//!
//! Machines are ended in batches where the cloud allows it, region by region, without waiting for
//! other regions. A machine that the cloud refuses to end is retried with growing pauses. A call
//! without an answer says nothing about its machines: they are retried soon, after all others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cloud::{CloudError, Machines, Region};
use domain::id::{ProviderId, WorkerKey};
use domain::time::{HOUR_MS, MINUTE_MS, SECOND_MS, Timestamp};
use domain::worker::Worker;
use futures_util::StreamExt;
use futures_util::stream;

use super::regions::RegionTasks;
use crate::Engine;

const PAGE: u32 = 500;
const MAX_OF_REGION: usize = 1_000;
const MAX_CALLS: usize = 8;
const MAX_CALL: Duration = Duration::from_secs(30);
const MAX_FAILURES: usize = 2;
/// An activation waits at most this long for its regions, and the next one not for slow regions.
const MAX_REGION_WAIT: Duration = Duration::from_secs(30);
/// After the cloud has accepted to end a machine, the call is repeated no sooner than this.
const REPEAT_MS: i64 = MINUTE_MS;
/// A region that answered no call is not called for this time. The pause does not grow, since
/// machines cost money until they end.
const OUTAGE_MS: i64 = 3 * SECOND_MS;
/// A machine that the cloud refused to end is retried after this time, doubled with each refusal.
const FIRST_BACKOFF_MS: i64 = 2 * SECOND_MS;
const MAX_BACKOFF_MS: i64 = 20 * MINUTE_MS;
/// Longer than any pause: older attempts are forgotten, which costs one more call.
const FORGET_MS: i64 = HOUR_MS;

const _: () = assert!(MAX_BACKOFF_MS < FORGET_MS && REPEAT_MS < FORGET_MS);

#[derive(Clone, Copy, Debug)]
pub struct TerminationLimits {
    /// Rows per query.
    pub page: u32,
    /// Machines of one region that one activation ends; the next one ends others.
    pub of_region: usize,
    /// Concurrent calls to one region.
    pub calls: usize,
    /// After this many calls that ended no machine, a region is skipped until the next activation.
    pub failures: usize,
}

impl Default for TerminationLimits {
    fn default() -> Self {
        Self {
            page: PAGE,
            of_region: MAX_OF_REGION,
            calls: MAX_CALLS,
            failures: MAX_FAILURES,
        }
    }
}

/// The result of a call for one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndResult {
    Accepted,
    Refused,
    /// The cloud gave no answer about this machine: it was unavailable, or throttled the call.
    Unanswered,
}

/// The last call for a machine.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    at: Timestamp,
    outcome: EndResult,
    /// Refusals since the cloud last accepted.
    n_refused: u32,
}

/// Ends the machines of one provider, activation by activation.
pub struct Terminator {
    engine: Arc<Engine>,
    provider_id: ProviderId,
    pub limits: TerminationLimits,
    attempts: BTreeMap<WorkerKey, Attempt>,
    /// Regions that answered no call of their last activation, and when that was.
    outages: BTreeMap<Region, Timestamp>,
    regions: RegionTasks<Vec<(WorkerKey, EndResult)>>,
}

impl EndResult {
    fn of(result: &Result<(), CloudError>) -> Self {
        match result {
            Ok(()) => Self::Accepted,
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
            EndResult::Accepted => REPEAT_MS,
            EndResult::Unanswered => 0, // A region that answers nothing has its own pause.
            EndResult::Refused => {
                // 2^20 times the first pause is far beyond the maximum.
                let doublings = self.n_refused.saturating_sub(1).min(20);
                (FIRST_BACKOFF_MS << doublings).min(MAX_BACKOFF_MS)
            }
        }
    }
}

impl Terminator {
    pub fn new(engine: Arc<Engine>, provider_id: ProviderId) -> Self {
        Self {
            engine,
            provider_id,
            limits: TerminationLimits::default(),
            attempts: BTreeMap::new(),
            outages: BTreeMap::new(),
            regions: RegionTasks::default(),
        }
    }

    /// Asks the provider to end the machines of stopping workers. Returns how many it accepted.
    pub async fn end_stopping(&mut self) -> store::Result<u64> {
        self.end_for(MAX_REGION_WAIT).await
    }

    /// Like `end_stopping`, with another limit for waiting.
    pub async fn end_for(&mut self, max_wait: Duration) -> store::Result<u64> {
        let engine = Arc::clone(&self.engine);
        let Some(machines) = engine.providers.machines(&self.provider_id) else {
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
        let mut n_accepted = 0;
        for (region, ended) in self.regions.ended(max_wait).await {
            let results = ended.unwrap_or_else(|problem| {
                tracing::error!(provider.id = %self.provider_id, region = %region,
                    "ending machines in {region} failed: {problem}");
                Vec::new()
            });
            let is_silent =
                |(_, outcome): &(WorkerKey, EndResult)| *outcome == EndResult::Unanswered;
            if !results.is_empty() && results.iter().all(is_silent) {
                self.outages.insert(region, now);
            }
            for (key, outcome) in results {
                n_accepted += u64::from(outcome == EndResult::Accepted);
                self.note(key, outcome, now);
            }
        }
        Ok(n_accepted)
    }

    fn note(&mut self, key: WorkerKey, outcome: EndResult, at: Timestamp) {
        let before = self
            .attempts
            .get(&key)
            .map_or(0, |attempt| attempt.n_refused);
        let n_refused = match outcome {
            EndResult::Accepted => 0,
            EndResult::Refused => before.saturating_add(1),
            EndResult::Unanswered => before,
        };
        let attempt = Attempt {
            at,
            outcome,
            n_refused,
        };
        self.attempts.insert(key, attempt);
    }

    /// Stopping workers whose machines are to be ended now, by region.
    async fn due(
        &self,
        machines: &dyn Machines,
        now: Timestamp,
    ) -> store::Result<BTreeMap<Region, Vec<Worker>>> {
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
                if machines.can_end(&worker) && self.is_due(&worker.key, &region, now) {
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

    /// Keeps as many as one activation ends: those not tried yet, then those tried longest ago.
    fn keep_first(&self, workers: &mut Vec<Worker>) {
        workers.sort_by_key(|worker| self.attempts.get(&worker.key).map(|attempt| attempt.at));
        if workers.len() > self.limits.of_region {
            workers.truncate(self.limits.of_region);
            // The rest is for the next activation.
            self.engine.wakeups.ending(&self.provider_id).notify_one();
        }
    }
}

/// False after the clock was set back, so that no pause lasts for hours.
fn is_within(now: Timestamp, since: Timestamp, wait_ms: i64) -> bool {
    (0..wait_ms).contains(&now.millis_since(since))
}

/// Ends these machines of one region. Returns the results of those that were tried.
async fn end_in(
    engine: &Arc<Engine>,
    provider_id: &ProviderId,
    region: &Region,
    workers: Vec<Worker>,
    limits: TerminationLimits,
) -> Vec<(WorkerKey, EndResult)> {
    let Some(machines) = engine.providers.machines(provider_id) else {
        return Vec::new();
    };
    // Collected first: a future with a closure over borrows is not `Send` for any lifetime.
    let mut calls = Vec::new();
    for batch in workers.chunks(machines.end_batch().max(1)) {
        calls.push(end_batch(machines, batch));
    }
    let mut calls = stream::iter(calls).buffer_unordered(limits.calls);
    let mut results = Vec::new();
    let mut n_failed = 0;
    while let Some(done) = calls.next().await {
        // Machine by machine: a refusal says nothing about the region.
        let is_silent = |(_, result): &(WorkerKey, Result<(), CloudError>)| {
            EndResult::of(result) == EndResult::Unanswered
        };
        n_failed += usize::from(done.iter().all(is_silent));
        for (key, result) in done {
            if let Err(problem) = &result {
                tracing::warn!(provider.id = %provider_id, region = %region, worker.id = %key.id,
                    worker.pool = %key.pool_id, error = %problem,
                    "cannot end {key}; it is tried again later: {problem}");
            }
            results.push((key, EndResult::of(&result)));
        }
        if n_failed >= limits.failures {
            break;
        }
    }
    results
}

/// The time limit begins when the call is made.
async fn end_batch(
    machines: &dyn Machines,
    workers: &[Worker],
) -> Vec<(WorkerKey, Result<(), CloudError>)> {
    let keys = workers.iter().map(|worker| worker.key.clone());
    match tokio::time::timeout(MAX_CALL, machines.end_many(workers)).await {
        Ok(results) => keys.zip(results).collect(),
        Err(_) => keys.map(|key| (key, Err(timeout_error()))).collect(),
    }
}

/// One call, within the time limit.
pub(super) async fn end_now(machines: &dyn Machines, worker: &Worker) -> Result<(), CloudError> {
    let ended = tokio::time::timeout(MAX_CALL, machines.end(worker)).await;
    ended.unwrap_or_else(|_| Err(timeout_error()))
}

fn timeout_error() -> CloudError {
    CloudError::Unavailable(format!("no answer within {} s", MAX_CALL.as_secs()))
}
