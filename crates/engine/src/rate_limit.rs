//! Limits the rate of calls to clouds, with limits for each region.
//!
//! Each kind of call has a token bucket. When the cloud throttles a call, the bucket fills half as
//! fast and the region is not called for a while, for no pool; then the rate recovers slowly. The
//! cloud may ask for a longer pause. A launch that would wait too long is refused here, as the
//! cloud would.

mod bucket;
mod limits;
mod requests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use cloud::image::ImageTarget;
use cloud::{
    CallBudget, CloudError, Fills, IdentityClaim, LaunchError, LaunchOrder, LaunchedMachine,
    Leftover, Machines, OwnedPage, Place, PlacesUnknown, PoolResourceMaker, Proof, Provider,
    Region, SetupError, Sighting, ValidateError, Verification, VerifyError, WorkerCreator,
    WorkerDeclarer, WorkerLog, with_notes,
};
use contract::Invalid;
use domain::id::{LaunchToken, ProviderId, WorkerGroup, WorkerKey};
use domain::launch::Cause;
use domain::launch_config::LaunchConfig;
use domain::plan::{BidRequest, Bids};
use domain::time::{Clock, SECOND_MS, Timestamp};
use domain::worker::Worker;
use metrics::{counter, gauge};
use serde_json::Value;

use self::bucket::Bucket;
pub use self::limits::RateLimits;
use self::requests::RequestsSince;
use crate::measures::{CLOUD_CALLS, CLOUD_RATE};
use crate::taskcluster_records;

/// The maximum waits for a permit. The time limits of the calls themselves are longer.
const MAX_READ_WAIT_MS: i64 = 30 * SECOND_MS;
const MAX_LAUNCH_WAIT_MS: i64 = 10 * SECOND_MS;
const MAX_END_WAIT_MS: i64 = 20 * SECOND_MS;
const MAX_END_PAUSE: Duration = Duration::from_secs(60);

/// The kinds of calls, each with its own limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CallKind {
    Read,
    Launch,
    End,
}

/// Waits. Tests use a timer without real waiting.
#[async_trait]
pub trait Timer: Send + Sync {
    async fn wait(&self, duration: Duration);
}

pub struct SystemTimer;

#[async_trait]
impl Timer for SystemTimer {
    async fn wait(&self, duration: Duration) {
        let _ = tokio::time::timeout(duration, std::future::pending::<()>()).await;
    }
}

pub struct RateLimitedProvider {
    id: ProviderId,
    provider: Arc<dyn Provider>,
    limits: RateLimits,
    clock: Arc<dyn Clock>,
    timer: Arc<dyn Timer>,
    buckets: Mutex<BTreeMap<(Region, CallKind), Bucket>>,
    /// Whether pauses and requests are log records of Taskcluster's form.
    writes_records: bool,
    requests: RequestsSince,
}

impl CallKind {
    /// The longest pause that a cloud may ask for. Machines cost money until they have ended.
    fn longest_pause(self) -> Duration {
        match self {
            Self::Read | Self::Launch => Duration::MAX,
            Self::End => MAX_END_PAUSE,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Launch => "launch",
            Self::End => "end",
        }
    }

    fn max_wait_ms(self) -> i64 {
        match self {
            Self::Read => MAX_READ_WAIT_MS,
            Self::Launch => MAX_LAUNCH_WAIT_MS,
            Self::End => MAX_END_WAIT_MS,
        }
    }
}

impl RateLimitedProvider {
    pub fn new(
        id: ProviderId,
        provider: Arc<dyn Provider>,
        limits: RateLimits,
        clock: Arc<dyn Clock>,
        timer: Arc<dyn Timer>,
    ) -> Self {
        Self {
            id,
            provider,
            limits,
            clock,
            timer,
            buckets: Mutex::default(),
            writes_records: false,
            requests: RequestsSince::default(),
        }
    }

    /// Whether to write log records in the form of Taskcluster's services.
    pub fn with_records(mut self, writes_records: bool) -> Self {
        self.writes_records = writes_records;
        self
    }

    fn limited(&self) -> &dyn Machines {
        let machines = self.provider.machines();
        machines.expect("`machines` returns this wrapper only for a provider that has machines")
    }

    /// The steady clock: setting the clock of the day back must not keep a region closed.
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.clock.steady_ms())
    }

    fn with_bucket<T>(
        &self,
        region: &Region,
        kind: CallKind,
        now: Timestamp,
        use_it: impl FnOnce(&mut Bucket) -> T,
    ) -> T {
        let rate = match kind {
            CallKind::Read => self.limits.reads_per_second,
            CallKind::Launch => self.limits.launches_per_second,
            CallKind::End => self.limits.ends_per_second,
        };
        let buckets = self.buckets.lock();
        let mut buckets = buckets.unwrap_or_else(PoisonError::into_inner);
        let bucket = buckets
            .entry((region.clone(), kind))
            .or_insert_with(|| Bucket::new(rate, now));
        bucket.fill(now);
        use_it(bucket)
    }

    /// Waits for the permit of a call, and returns its time. The error says why there is none.
    async fn wait_for_permit(&self, region: &Region, kind: CallKind) -> Result<Timestamp, String> {
        let limit = self.now().plus_millis(kind.max_wait_ms());
        let mut reservation = None;
        loop {
            let now = self.now();
            let taken = self.with_bucket(region, kind, now, |bucket| {
                bucket.reserve(reservation, now, limit.millis_since(now))
            });
            let taken = taken.map_err(|wait_ms| {
                self.count(region, kind, "refused");
                self.throttled_message(region, wait_ms)
            })?;
            if taken.due <= now {
                return Ok(now);
            }
            reservation = Some(taken);
            // The cloud may throttle other calls meanwhile.
            let wait_ms = taken.due.millis_since(now).unsigned_abs();
            self.timer.wait(Duration::from_millis(wait_ms)).await;
        }
    }

    /// Makes a call with a permit, and adjusts the limit to its answer.
    async fn call<T>(
        &self,
        region: &Region,
        kind: CallKind,
        call: impl Future<Output = T> + Send,
        is_throttled: fn(&T) -> bool,
    ) -> Result<T, String> {
        let began = self.wait_for_permit(region, kind).await?;
        let (answer, notes) = with_notes(call).await;
        self.record_answer(region, kind, began, is_throttled(&answer), notes.pause);
        if self.writes_records
            && let Some(record) = self.requests.add(&self.id, notes.requests, self.now())
        {
            record.write();
        }
        Ok(answer)
    }

    fn throttled_message(&self, region: &Region, wait_ms: i64) -> String {
        let (id, seconds) = (&self.id, wait_ms / SECOND_MS + 1);
        format!("{id} is asked as often as its cloud allows in {region}; try again in {seconds} s")
    }

    /// `pause`: the cloud asks for it.
    fn record_answer(
        &self,
        region: &Region,
        kind: CallKind,
        began: Timestamp,
        is_throttled: bool,
        pause: Option<Duration>,
    ) {
        let now = self.now();
        let queue = || format!("{region}.{}", kind.as_str());
        let (rate, record) = self.with_bucket(region, kind, now, |bucket| {
            let record = if is_throttled {
                let pause = bucket.record_throttling(began, now);
                pause.map(|(ms, n_waiting)| {
                    taskcluster_records::paused(&self.id, &queue(), n_waiting, ms)
                })
            } else {
                let is_over = bucket.record_success(began);
                is_over.then(|| taskcluster_records::resumed(&self.id, &queue()))
            };
            if let Some(pause) = pause {
                bucket.pause(pause.min(kind.longest_pause()), now);
            }
            (bucket.rate, record)
        });
        if let Some(record) = record.filter(|_| self.writes_records) {
            record.write();
        }
        let outcome = if is_throttled {
            "throttled"
        } else {
            "answered"
        };
        self.count(region, kind, outcome);
        let labels = [
            ("providerId", self.id.to_string()),
            ("region", region.to_string()),
            ("call", kind.as_str().to_owned()),
        ];
        gauge!(CLOUD_RATE, &labels).set(rate);
    }

    fn count(&self, region: &Region, kind: CallKind, outcome: &str) {
        let labels = [
            ("providerId", self.id.to_string()),
            ("region", region.to_string()),
            ("call", kind.as_str().to_owned()),
            ("outcome", outcome.to_owned()),
        ];
        counter!(CLOUD_CALLS, &labels).increment(1);
    }

    fn region_of_launch(&self, config: &LaunchConfig) -> Region {
        let group = self.limited().group(config);
        group.map_or(Region::Everything, |group| self.region_of(&group))
    }

    /// Workers of one call are in one region.
    fn region_of_all(&self, workers: &[Worker]) -> Region {
        let first = workers.first();
        first.map_or(Region::Everything, |worker| {
            self.region_of(&worker.key.group)
        })
    }
}

fn is_throttled<T>(result: &Result<T, CloudError>) -> bool {
    matches!(result, Err(CloudError::Throttled(_)))
}

#[async_trait]
impl Provider for RateLimitedProvider {
    fn kind(&self) -> &'static str {
        self.provider.kind()
    }

    fn validate(&self, config: &mut Value) -> Result<(), Invalid> {
        self.provider.validate(config)
    }

    async fn validate_outside(&self, config: &mut Value) -> Result<(), ValidateError> {
        self.provider.validate_outside(config).await
    }

    async fn setup(&self) -> Result<(), SetupError> {
        self.provider.setup().await
    }

    async fn verify(&self, claim: &IdentityClaim<'_>) -> Result<Verification, VerifyError> {
        self.provider.verify(claim).await
    }

    fn offered_by(&self, worker: &WorkerKey, proof: &Proof) -> Option<LaunchToken> {
        self.provider.offered_by(worker, proof)
    }

    fn places(&self) -> Result<Vec<Place>, PlacesUnknown> {
        self.provider.places()
    }

    fn fills(&self) -> Fills {
        self.provider.fills()
    }

    fn declarer(&self) -> Option<&dyn WorkerDeclarer> {
        self.provider.declarer()
    }

    async fn terminate(&self) -> Result<(), CloudError> {
        self.provider.terminate().await
    }

    /// Calls for single workers and for pools are few, and not limited.
    fn creator(&self) -> Option<&dyn WorkerCreator> {
        self.provider.creator()
    }

    fn pool_resources(&self) -> Option<&dyn PoolResourceMaker> {
        self.provider.pool_resources()
    }

    /// Calls about images are few, and not limited.
    fn images(&self) -> Option<&dyn ImageTarget> {
        self.provider.images()
    }

    fn images_need(&self) -> Option<&'static str> {
        self.provider.images_need()
    }

    fn machines(&self) -> Option<&dyn Machines> {
        self.provider.machines().map(|_| self as &dyn Machines)
    }
}

#[async_trait]
impl Machines for RateLimitedProvider {
    fn max_machines(&self) -> Option<u64> {
        self.limited().max_machines()
    }

    /// A launch config gets no bid where a launch would wait too long.
    fn bids(&self, config: &LaunchConfig, request: Option<&BidRequest>, at: Timestamp) -> Bids {
        let bids = self.limited().bids(config, request, at)?;
        let (now, region) = (self.now(), self.region_of_launch(config));
        let wait = |bucket: &mut Bucket| bucket.wait_ms(now);
        match self.with_bucket(&region, CallKind::Launch, now, wait) {
            wait_ms if wait_ms > MAX_LAUNCH_WAIT_MS => {
                Err(self.throttled_message(&region, wait_ms))
            }
            _ => Ok(bids),
        }
    }

    fn call_budgets(&self) -> Vec<CallBudget> {
        let now = self.now();
        let buckets = self.buckets.lock();
        let mut buckets = buckets.unwrap_or_else(PoisonError::into_inner);
        let budgets = buckets.iter_mut().map(|((region, kind), bucket)| {
            bucket.fill(now);
            CallBudget {
                region: region.clone(),
                call: kind.as_str(),
                per_second: bucket.rate,
                full_per_second: bucket.full_rate(),
                used: bucket.used(),
                throttled_ms: bucket.throttled_ms(now),
            }
        });
        budgets.collect()
    }

    fn wants_refresh(&self) -> bool {
        self.limited().wants_refresh()
    }

    async fn reread_files(&self) {
        self.limited().reread_files().await;
    }

    fn warning(&self) -> Option<String> {
        self.limited().warning()
    }

    async fn refresh(&self) -> Result<(), CloudError> {
        self.limited().refresh().await
    }

    async fn launch(&self, order: &LaunchOrder<'_>) -> Result<Vec<LaunchedMachine>, LaunchError> {
        let region = self.region_of_launch(order.launch_config);
        let launch = self.limited().launch(order);
        let answer = self.call(&region, CallKind::Launch, launch, |answer| {
            matches!(
                answer,
                Err(LaunchError::Refused {
                    cause: Cause::Throttled,
                    ..
                })
            )
        });
        let refused = |error| LaunchError::Refused {
            cause: Cause::Throttled,
            error,
        };
        answer.await.map_err(refused)?
    }

    async fn look(&self, workers: &[Worker]) -> Result<Vec<(WorkerKey, Sighting)>, CloudError> {
        let region = self.region_of_all(workers);
        let look = self.limited().look(workers);
        let answer = self.call(&region, CallKind::Read, look, is_throttled);
        answer.await.map_err(CloudError::Throttled)?
    }

    async fn read_log(&self, worker: &Worker) -> Result<WorkerLog, CloudError> {
        let region = self.region_of(&worker.key.group);
        let read = self.limited().read_log(worker);
        // Clouds limit these calls apart from others: a reader of logs slows no fleet.
        let answer = self.call(&region, CallKind::Read, read, |_| false);
        answer.await.map_err(CloudError::Throttled)?
    }

    fn look_batch(&self) -> usize {
        self.limited().look_batch()
    }

    fn regions(&self) -> Vec<Region> {
        self.limited().regions()
    }

    fn region_of(&self, group: &WorkerGroup) -> Region {
        self.limited().region_of(group)
    }

    fn can_end(&self, worker: &Worker) -> bool {
        self.limited().can_end(worker)
    }

    async fn owned_page(
        &self,
        region: &Region,
        after: Option<&str>,
    ) -> Result<OwnedPage, CloudError> {
        let page = self.limited().owned_page(region, after);
        let answer = self.call(region, CallKind::Read, page, is_throttled);
        answer.await.map_err(CloudError::Throttled)?
    }

    async fn inherited_page(
        &self,
        region: &Region,
        after: Option<&str>,
    ) -> Result<OwnedPage, CloudError> {
        let page = self.limited().inherited_page(region, after);
        let answer = self.call(region, CallKind::Read, page, is_throttled);
        answer.await.map_err(CloudError::Throttled)?
    }

    async fn remove_leftovers(&self, region: &Region) -> Result<Vec<Leftover>, CloudError> {
        let removal = self.limited().remove_leftovers(region);
        let answer = self.call(region, CallKind::End, removal, is_throttled);
        answer.await.map_err(CloudError::Throttled)?
    }

    fn group(&self, launch_config: &LaunchConfig) -> Option<WorkerGroup> {
        self.limited().group(launch_config)
    }

    async fn end(&self, worker: &Worker) -> Result<(), CloudError> {
        let mut results = self.end_many(std::slice::from_ref(worker)).await;
        results.pop().unwrap_or(Ok(()))
    }

    async fn end_many(&self, workers: &[Worker]) -> Vec<Result<(), CloudError>> {
        let region = self.region_of_all(workers);
        let end = self.limited().end_many(workers);
        let results = self.call(&region, CallKind::End, end, |results| {
            results.iter().any(is_throttled)
        });
        let refused = |problem| vec![Err(CloudError::Throttled(problem)); workers.len()];
        results.await.unwrap_or_else(refused)
    }

    fn end_batch(&self) -> usize {
        self.limited().end_batch()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    struct AdjustableClock {
        now: Timestamp,
        steady_ms: AtomicI64,
    }

    impl Clock for AdjustableClock {
        fn now(&self) -> Timestamp {
            // Set back by a millisecond whenever one passes.
            self.now.plus_millis(-self.steady_ms())
        }

        fn steady_ms(&self) -> i64 {
            self.steady_ms.load(Ordering::SeqCst)
        }
    }

    #[tokio::test]
    async fn a_clock_that_is_set_back_keeps_no_region_closed() {
        let clock = Arc::new(AdjustableClock {
            now: at(0),
            steady_ms: AtomicI64::new(1),
        });
        let limits = RateLimits {
            reads_per_second: 1.0,
            launches_per_second: 1.0,
            ends_per_second: 1.0,
        };
        let id = "one".parse().unwrap();
        let same = Arc::clone(&clock) as Arc<dyn Clock>;
        let provider = Arc::new(cloud::NullProvider);
        let limited = RateLimitedProvider::new(id, provider, limits, same, Arc::new(SystemTimer));
        let region = Region::Everything;
        assert_eq!(limited.call_budgets(), []);
        limited.record_answer(&region, CallKind::Read, limited.now(), true, None);
        let throttled = CallBudget {
            region: region.clone(),
            call: "read",
            per_second: 0.5,
            full_per_second: 1.0,
            // One call may try whether the cloud still throttles.
            used: 0.8,
            throttled_ms: Some(SECOND_MS),
        };
        assert_eq!(limited.call_budgets(), [throttled]);
        clock.steady_ms.fetch_add(SECOND_MS, Ordering::SeqCst);
        let reservation = limited.wait_for_permit(&region, CallKind::Read).await;
        assert_eq!(reservation, Ok(at(1 + SECOND_MS)));
        // The cloud asks for a pause, although it has answered.
        let pause = Some(Duration::from_secs(90));
        limited.record_answer(&region, CallKind::Read, limited.now(), false, pause);
        let refused = limited.wait_for_permit(&region, CallKind::Read).await;
        assert!(refused.unwrap_err().contains("try again in 91 s"));
        let other = limited.wait_for_permit(&region, CallKind::End).await;
        assert!(other.is_ok(), "other kinds of calls go on");
        clock.steady_ms.fetch_add(90 * SECOND_MS, Ordering::SeqCst);
        assert!(
            limited
                .wait_for_permit(&region, CallKind::Read)
                .await
                .is_ok()
        );
    }
}
