//! How often clouds are called: a wrapper around every provider that calls out, with a budget for each region.
//!
//! A budget is a bucket of tokens that fills steadily, one for each kind of call. Where the cloud answers that we ask too
//! often, the bucket fills half as fast, and for a while nothing is asked there at all, by no pool; then it fills faster
//! again, little by little. A launch that would wait too long is refused here, as the cloud would.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use cloud::{
    BidRequest, ByHand, CloudError, Fills, IdentityClaim, LaunchError, LaunchOrder, Launched,
    Machines, NotValidated, NotVerified, OwnedPage, Place, PlacesUnknown, Proof, Provider, Region,
    SetupFailed, Sighting, Verified,
};
use contract::Invalid;
use domain::id::{LaunchToken, ProviderId, WorkerGroup, WorkerKey};
use domain::launch::Cause;
use domain::launch_config::LaunchConfig;
use domain::plan::Bid;
use domain::time::{Clock, SECOND_MS, Timestamp};
use domain::worker::Worker;
use metrics::{counter, gauge};
use serde_json::Value;

use crate::config::RateLimits;
use crate::telemetry::{CLOUD_CALLS, CLOUD_RATE};

/// A call waits no longer for its turn. The limits of calls themselves are longer.
const MAX_READ_WAIT_MS: i64 = 30 * SECOND_MS;
const MAX_LAUNCH_WAIT_MS: i64 = 10 * SECOND_MS;
const MAX_END_WAIT_MS: i64 = 20 * SECOND_MS;
/// How many seconds' worth of calls may be made at once.
const BURST_SECONDS: f64 = 5.0;
/// A bucket fills no slower than this part of its full speed.
const MAX_SLOWDOWN: f64 = 64.0;
/// From a standstill back to full speed.
const RECOVERY_SECONDS: f64 = 300.0;
/// For how long nothing is asked after the first answer that we ask too often. Each further one doubles that.
const FIRST_PAUSE_MS: i64 = SECOND_MS;
const MAX_DOUBLINGS: u32 = 6;

/// What a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Read,
    Launch,
    End,
}

/// Lets time pass. Tests let it pass at once.
#[async_trait]
pub trait Pauses: Send + Sync {
    async fn pause(&self, duration: Duration);
}

/// Time as it is.
pub struct RealPauses;

#[async_trait]
impl Pauses for RealPauses {
    async fn pause(&self, duration: Duration) {
        let _ = tokio::time::timeout(duration, std::future::pending::<()>()).await;
    }
}

/// A provider that is called no more often than its cloud can take.
pub struct RateLimited {
    id: ProviderId,
    provider: Arc<dyn Provider>,
    limits: RateLimits,
    clock: Arc<dyn Clock>,
    pauses: Arc<dyn Pauses>,
    buckets: Mutex<BTreeMap<(Region, Kind), Bucket>>,
}

#[derive(Debug)]
struct Bucket {
    /// Calls a second, when nobody complains and now.
    full_rate: f64,
    rate: f64,
    /// Calls that may be made now; below zero: calls that wait.
    tokens: f64,
    at: Timestamp,
    /// Nothing is asked before this.
    closed_until: Option<Timestamp>,
    last_throttled: Option<Timestamp>,
    /// Complaints in a row.
    n_throttled: u32,
}

impl Kind {
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

impl Bucket {
    fn new(full_rate: f64, now: Timestamp) -> Self {
        Self {
            full_rate,
            rate: full_rate,
            tokens: burst(full_rate),
            at: now,
            closed_until: None,
            last_throttled: None,
            n_throttled: 0,
        }
    }

    /// Up to this moment.
    #[expect(
        clippy::cast_precision_loss,
        reason = "milliseconds between calls are far below what an f64 holds exactly"
    )]
    fn fill(&mut self, now: Timestamp) {
        let seconds = now.millis_since(self.at).max(0) as f64 / 1_000.0;
        self.at = self.at.max(now);
        self.tokens = (self.tokens + self.rate * seconds).min(burst(self.full_rate));
        let faster = self.rate + self.full_rate * seconds / RECOVERY_SECONDS;
        self.rate = faster.min(self.full_rate);
    }

    fn closed_ms(&self, now: Timestamp) -> i64 {
        self.closed_until
            .map_or(0, |until| until.millis_since(now).max(0))
    }

    /// How long the next call would wait.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a float too large for an integer becomes the largest one"
    )]
    fn wait_ms(&self, now: Timestamp) -> i64 {
        let missing = (1.0 - self.tokens).max(0.0);
        let for_token = (missing / self.rate * 1_000.0).ceil() as i64;
        for_token.max(self.closed_ms(now))
    }

    /// The cloud complained about a call that began then. What began before the last complaint says nothing new: many
    /// calls at once are one event.
    fn throttled(&mut self, began: Timestamp, now: Timestamp) {
        if self.last_throttled.is_some_and(|last| began <= last) {
            return;
        }
        self.fill(now);
        self.last_throttled = Some(now);
        self.rate = (self.rate / 2.0).max(self.full_rate / MAX_SLOWDOWN);
        self.tokens = self.tokens.min(0.0);
        let pause_ms = FIRST_PAUSE_MS << self.n_throttled.min(MAX_DOUBLINGS);
        self.n_throttled = self.n_throttled.saturating_add(1);
        self.closed_until = Some(now.plus_millis(pause_ms));
    }

    fn answered(&mut self, began: Timestamp) {
        if self.last_throttled.is_none_or(|last| began > last) {
            self.n_throttled = 0;
        }
    }
}

/// At least one, else nothing could ever be asked.
fn burst(rate: f64) -> f64 {
    (rate * BURST_SECONDS).max(1.0)
}

impl RateLimited {
    pub fn new(
        id: ProviderId,
        provider: Arc<dyn Provider>,
        limits: RateLimits,
        clock: Arc<dyn Clock>,
        pauses: Arc<dyn Pauses>,
    ) -> Self {
        Self {
            id,
            provider,
            limits,
            clock,
            pauses,
            buckets: Mutex::default(),
        }
    }

    fn inner(&self) -> Result<&dyn Machines, CloudError> {
        let machines = self.provider.machines();
        machines.ok_or_else(|| CloudError::Refused("it makes no machines".to_owned()))
    }

    fn buckets(&self) -> MutexGuard<'_, BTreeMap<(Region, Kind), Bucket>> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_bucket<T>(
        &self,
        region: &Region,
        kind: Kind,
        now: Timestamp,
        use_it: impl FnOnce(&mut Bucket) -> T,
    ) -> T {
        let rate = match kind {
            Kind::Read => self.limits.reads_per_second,
            Kind::Launch => self.limits.launches_per_second,
            Kind::End => self.limits.ends_per_second,
        };
        let mut buckets = self.buckets();
        let bucket = buckets
            .entry((region.clone(), kind))
            .or_insert_with(|| Bucket::new(rate, now));
        bucket.fill(now);
        use_it(bucket)
    }

    /// Waits for the turn of a call, and returns when it came. The error says why it does not come.
    async fn turn(&self, region: &Region, kind: Kind) -> Result<Timestamp, String> {
        let (begin, limit) = (self.clock.now(), kind.max_wait_ms());
        let wait_ms = self.with_bucket(region, kind, begin, |bucket| {
            let wait_ms = bucket.wait_ms(begin);
            if wait_ms <= limit {
                bucket.tokens -= 1.0;
            }
            wait_ms
        });
        let mut wait_ms = wait_ms;
        loop {
            let waited = self.clock.now().millis_since(begin).max(0);
            if waited + wait_ms > limit {
                self.count(region, kind, "refused");
                return Err(self.too_often(region, wait_ms));
            }
            if wait_ms == 0 {
                return Ok(self.clock.now());
            }
            self.pauses
                .pause(Duration::from_millis(wait_ms.unsigned_abs()))
                .await;
            // The cloud may have complained meanwhile.
            let now = self.clock.now();
            wait_ms = self.with_bucket(region, kind, now, |bucket| bucket.closed_ms(now));
        }
    }

    fn too_often(&self, region: &Region, wait_ms: i64) -> String {
        let (id, seconds) = (&self.id, wait_ms / SECOND_MS + 1);
        format!("{id} is asked as often as its cloud allows in {region}; try again in {seconds} s")
    }

    fn note(&self, region: &Region, kind: Kind, began: Timestamp, is_throttled: bool) {
        let now = self.clock.now();
        let rate = self.with_bucket(region, kind, now, |bucket| {
            match is_throttled {
                true => bucket.throttled(began, now),
                false => bucket.answered(began),
            }
            bucket.rate
        });
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

    fn count(&self, region: &Region, kind: Kind, outcome: &str) {
        let labels = [
            ("providerId", self.id.to_string()),
            ("region", region.to_string()),
            ("call", kind.as_str().to_owned()),
            ("outcome", outcome.to_owned()),
        ];
        counter!(CLOUD_CALLS, &labels).increment(1);
    }

    fn region_of_launch(&self, machines: &dyn Machines, config: &LaunchConfig) -> Region {
        let group = machines.group(config);
        group.map_or(Region::Everything, |group| machines.region_of(&group))
    }

    /// Workers that are asked about together are in one region.
    fn region_of_all(&self, machines: &dyn Machines, workers: &[Worker]) -> Region {
        let first = workers.first();
        first.map_or(Region::Everything, |worker| {
            machines.region_of(&worker.key.group)
        })
    }
}

fn is_throttled<T>(result: &Result<T, CloudError>) -> bool {
    matches!(result, Err(CloudError::Throttled(_)))
}

#[async_trait]
impl Provider for RateLimited {
    fn kind(&self) -> &'static str {
        self.provider.kind()
    }

    fn validate(&self, config: &mut Value) -> Result<(), Invalid> {
        self.provider.validate(config)
    }

    async fn validate_outside(&self, config: &mut Value) -> Result<(), NotValidated> {
        self.provider.validate_outside(config).await
    }

    async fn setup(&self) -> Result<(), SetupFailed> {
        self.provider.setup().await
    }

    async fn verify(&self, claim: &IdentityClaim<'_>) -> Result<Verified, NotVerified> {
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

    fn by_hand(&self) -> Option<&dyn ByHand> {
        self.provider.by_hand()
    }

    fn machines(&self) -> Option<&dyn Machines> {
        self.provider.machines().map(|_| self as &dyn Machines)
    }
}

#[async_trait]
impl Machines for RateLimited {
    fn max_machines(&self) -> Option<u64> {
        self.inner().ok()?.max_machines()
    }

    /// Where a launch would have to wait too long there is no bid: no pool tries.
    fn bids(&self, ask: &BidRequest<'_>) -> Vec<Result<Bid, String>> {
        let Ok(machines) = self.inner() else {
            return vec![Err("it makes no machines".to_owned()); ask.launch_configs.len()];
        };
        let now = self.clock.now();
        let bids = machines.bids(ask).into_iter();
        let allowed = bids.zip(ask.launch_configs).map(|(bid, config)| {
            let bid = bid?;
            let region = self.region_of_launch(machines, config);
            let wait = |bucket: &mut Bucket| bucket.wait_ms(now);
            match self.with_bucket(&region, Kind::Launch, now, wait) {
                wait_ms if wait_ms > MAX_LAUNCH_WAIT_MS => Err(self.too_often(&region, wait_ms)),
                _ => Ok(bid),
            }
        });
        allowed.collect()
    }

    fn wants_refresh(&self) -> bool {
        self.inner().is_ok_and(|machines| machines.wants_refresh())
    }

    async fn refresh(&self) -> Result<(), CloudError> {
        self.inner()?.refresh().await
    }

    async fn launch(&self, order: &LaunchOrder<'_>) -> Result<Vec<Launched>, LaunchError> {
        let refused = |cause, problem| LaunchError::Refused { cause, problem };
        let machines = self.inner();
        let machines = machines.map_err(|problem| {
            let problem = problem.to_string();
            refused(Cause::Configuration, problem)
        })?;
        let region = self.region_of_launch(machines, order.launch_config);
        let turn = self.turn(&region, Kind::Launch).await;
        let began = turn.map_err(|problem| refused(Cause::Throttled, problem))?;
        let answer = machines.launch(order).await;
        let throttled = matches!(
            answer,
            Err(LaunchError::Refused {
                cause: Cause::Throttled,
                ..
            })
        );
        self.note(&region, Kind::Launch, began, throttled);
        answer
    }

    async fn look(&self, workers: &[Worker]) -> Result<Vec<(WorkerKey, Sighting)>, CloudError> {
        let machines = self.inner()?;
        let region = self.region_of_all(machines, workers);
        let turn = self.turn(&region, Kind::Read).await;
        let began = turn.map_err(CloudError::Throttled)?;
        let answer = machines.look(workers).await;
        self.note(&region, Kind::Read, began, is_throttled(&answer));
        answer
    }

    fn look_batch(&self) -> usize {
        self.inner().map_or(1, |machines| machines.look_batch())
    }

    fn regions(&self) -> Vec<Region> {
        self.inner()
            .map_or_else(|_| Vec::new(), |machines| machines.regions())
    }

    fn region_of(&self, group: &WorkerGroup) -> Region {
        let machines = self.inner();
        machines.map_or(Region::Everything, |machines| machines.region_of(group))
    }

    async fn owned_page(
        &self,
        region: &Region,
        after: Option<&str>,
    ) -> Result<OwnedPage, CloudError> {
        let machines = self.inner()?;
        let turn = self.turn(region, Kind::Read).await;
        let began = turn.map_err(CloudError::Throttled)?;
        let answer = machines.owned_page(region, after).await;
        self.note(region, Kind::Read, began, is_throttled(&answer));
        answer
    }

    fn group(&self, launch_config: &LaunchConfig) -> Option<WorkerGroup> {
        self.inner().ok()?.group(launch_config)
    }

    async fn end(&self, worker: &Worker) -> Result<(), CloudError> {
        let mut results = self.end_many(std::slice::from_ref(worker)).await;
        results.pop().unwrap_or(Ok(()))
    }

    async fn end_many(&self, workers: &[Worker]) -> Vec<Result<(), CloudError>> {
        let all = |problem: CloudError| vec![Err(problem); workers.len()];
        let machines = match self.inner() {
            Ok(machines) => machines,
            Err(problem) => return all(problem),
        };
        let region = self.region_of_all(machines, workers);
        let began = match self.turn(&region, Kind::End).await {
            Ok(began) => began,
            Err(problem) => return all(CloudError::Throttled(problem)),
        };
        let results = machines.end_many(workers).await;
        let throttled = results.iter().any(is_throttled);
        self.note(&region, Kind::End, began, throttled);
        results
    }

    fn end_batch(&self) -> usize {
        self.inner().map_or(1, |machines| machines.end_batch())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// How many calls can be made at once at this moment.
    fn at_once(bucket: &mut Bucket, now: Timestamp) -> usize {
        bucket.fill(now);
        let mut count = 0;
        while bucket.wait_ms(now) == 0 {
            bucket.tokens -= 1.0;
            count += 1;
        }
        count
    }

    #[test]
    fn a_bucket_holds_five_seconds_worth_of_calls_and_fills_steadily() {
        let mut bucket = Bucket::new(2.0, at(0));
        assert_eq!(at_once(&mut bucket, at(0)), 10);
        assert_eq!(bucket.wait_ms(at(0)), 500);
        assert_eq!(at_once(&mut bucket, at(499)), 0);
        assert_eq!(at_once(&mut bucket, at(500)), 1);
        assert_eq!(at_once(&mut bucket, at(1_000_000)), 10);
        // A clock that is set back fills nothing, and takes nothing.
        assert_eq!(at_once(&mut bucket, at(0)), 0);
    }

    #[test]
    fn after_complaints_a_bucket_stays_closed_for_longer_and_fills_half_as_fast_each_time() {
        let mut bucket = Bucket::new(8.0, at(0));
        let mut closed = Vec::new();
        let mut now = at(0);
        for _ in 0..9 {
            bucket.throttled(now.plus_millis(1), now.plus_millis(2));
            now = now.plus_millis(2);
            closed.push(bucket.closed_ms(now) / SECOND_MS);
        }
        assert_eq!(closed, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
        assert!((0.12..0.13).contains(&bucket.rate), "{}", bucket.rate);
        // It recovers by itself.
        bucket.fill(now.plus_millis(150 * SECOND_MS));
        assert!((4.0..4.3).contains(&bucket.rate), "{}", bucket.rate);
        bucket.fill(now.plus_millis(400 * SECOND_MS));
        assert!((7.99..8.01).contains(&bucket.rate), "{}", bucket.rate);
    }

    #[test]
    fn many_calls_at_once_that_are_throttled_are_one_event() {
        let mut bucket = Bucket::new(8.0, at(0));
        for number in 0..16 {
            bucket.throttled(at(10), at(20 + number));
        }
        assert_eq!((bucket.n_throttled, bucket.closed_ms(at(20))), (1, 1_000));
        // An answer to what was asked before says nothing either.
        bucket.answered(at(15));
        assert_eq!(bucket.n_throttled, 1);
        bucket.answered(at(2_000));
        assert_eq!(bucket.n_throttled, 0);
    }
}
