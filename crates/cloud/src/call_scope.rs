//! Notes that the requests of a call to a cloud leave beside its answer.
//!
//! Clouds say in headers how long not to call them again, of refusals and of successes, and far
//! below the code that knows the region and the kind of the call. So the caller opens a scope
//! around its call, and the code that sends requests notes there what it finds.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Longest pause that a cloud may ask for.
pub(crate) const MAX_PAUSE: Duration = Duration::from_secs(600);
/// Times of requests that are kept. Further requests are only counted.
pub(crate) const MAX_TIMES: usize = 10_000;

/// Requests to a cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloudRequests {
    by_status: BTreeMap<u16, u64>,
    millis: Vec<u64>,
}

/// Numbers about requests; times in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestNumbers {
    pub total: u64,
    pub success: u64,
    /// By HTTP status; 0 stands for no answer.
    pub by_status: BTreeMap<u16, u64>,
    pub min: u64,
    pub max: u64,
    pub average: u64,
    pub median: u64,
    pub p95: u64,
    pub p99: u64,
}

/// Beside the answer of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallNotes {
    /// How long the cloud asks not to be called again.
    pub pause: Option<Duration>,
    pub requests: CloudRequests,
}

tokio::task_local! {
    static NOTES: RefCell<CallNotes>;
}

/// Makes calls, and returns their result with what their requests showed. The calls run in the task
/// of the caller.
pub async fn with_notes<T>(calls: impl Future<Output = T>) -> (T, CallNotes) {
    let scope = async {
        let result = calls.await;
        (result, NOTES.with(RefCell::take))
    };
    NOTES.scope(RefCell::default(), scope).await
}

/// Notes that the cloud asks for a pause of its calls. Outside of a scope, nothing waits for it.
pub(crate) fn ask_for_pause(pause: Duration) {
    let pause = Some(pause.min(MAX_PAUSE));
    note(|notes| notes.pause = notes.pause.max(pause));
}

/// A request that is under way.
pub(crate) struct RequestWatch(Instant);

impl RequestWatch {
    #[expect(
        clippy::disallowed_methods,
        reason = "the time of a request is for records of the log only"
    )]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Notes its end. `None`: it had no answer.
    pub(crate) fn end(self, status: Option<u16>) {
        let millis = u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX);
        note(|notes| notes.requests.add(status.unwrap_or(0), millis));
    }
}

fn note(change: impl FnOnce(&mut CallNotes)) {
    let _ = NOTES.try_with(|notes| change(&mut notes.borrow_mut()));
}

impl CloudRequests {
    /// Adds one. A status of 0 stands for no answer.
    pub fn add(&mut self, status: u16, millis: u64) {
        let count = self.by_status.entry(status).or_default();
        *count = count.saturating_add(1);
        if self.millis.len() < MAX_TIMES {
            self.millis.push(millis);
        }
    }

    pub fn append(&mut self, other: Self) {
        for (status, more) in other.by_status {
            let count = self.by_status.entry(status).or_default();
            *count = count.saturating_add(more);
        }
        let room = MAX_TIMES - self.millis.len();
        self.millis.extend(other.millis.into_iter().take(room));
    }

    /// `None`: there was no request.
    pub fn numbers(&self) -> Option<RequestNumbers> {
        let mut sorted = self.millis.clone();
        sorted.sort_unstable();
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        // The time that this percentage of the requests did not exceed.
        let percentile = |percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100);
            sorted[rank.saturating_sub(1)]
        };
        let total = self.by_status.values().sum();
        let successes = self.by_status.range(200..300);
        let sum = sorted
            .iter()
            .fold(0_u64, |sum, one| sum.saturating_add(*one));
        Some(RequestNumbers {
            total,
            success: successes.map(|(_, count)| count).sum(),
            by_status: self.by_status.clone(),
            min,
            max,
            average: sum / sorted.len() as u64,
            median: percentile(50),
            p95: percentile(95),
            p99: percentile(99),
        })
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    #[tokio::test]
    async fn the_longest_pause_of_the_calls_of_a_scope_counts() {
        let seconds = Duration::from_secs;
        ask_for_pause(seconds(1));
        let (result, notes) = with_notes(async {
            ask_for_pause(seconds(2));
            let inner = with_notes(async { ask_for_pause(seconds(9)) }).await;
            assert_eq!(inner.1.pause, Some(seconds(9)));
            tokio::task::yield_now().await;
            ask_for_pause(seconds(3));
            ask_for_pause(seconds(1));
            7
        })
        .await;
        assert_eq!((result, notes.pause), (7, Some(seconds(3))));
        assert_eq!(with_notes(async {}).await.1, CallNotes::default());
        let (_, notes) = with_notes(async { ask_for_pause(seconds(100_000)) }).await;
        assert_eq!(notes.pause, Some(MAX_PAUSE));
    }

    #[tokio::test]
    async fn requests_of_a_scope_are_counted_by_their_status() {
        let (_, notes) = with_notes(async {
            for status in [Some(200), Some(200), Some(429), None] {
                RequestWatch::start().end(status);
            }
        })
        .await;
        let numbers = notes.requests.numbers().unwrap();
        assert_eq!((numbers.total, numbers.success), (4, 2));
        let expected = BTreeMap::from([(200, 2), (429, 1), (0, 1)]);
        assert_eq!(numbers.by_status, expected);
    }

    #[test]
    fn times_are_those_that_a_share_of_the_requests_did_not_exceed() {
        let mut requests = CloudRequests::default();
        assert_eq!(requests.numbers(), None);
        requests.add(200, 7);
        let one = requests.numbers().unwrap();
        assert_eq!((one.min, one.median, one.p99, one.max), (7, 7, 7, 7));
        let mut many = CloudRequests::default();
        (1..=200).rev().for_each(|millis| many.add(204, millis));
        let numbers = many.numbers().unwrap();
        assert_eq!((numbers.min, numbers.average, numbers.max), (1, 100, 200));
        assert_eq!((numbers.median, numbers.p95, numbers.p99), (100, 190, 198));
        requests.append(many);
        assert_eq!(requests.numbers().unwrap().total, 201);
    }

    #[test]
    fn requests_beyond_the_limit_are_only_counted() {
        for count in sizes_around("cloud::call_scope::MAX_TIMES", MAX_TIMES) {
            let mut requests = CloudRequests::default();
            (0..count).for_each(|_| requests.add(200, 1));
            let (mut twice, other) = (requests.clone(), requests);
            twice.append(other.clone());
            assert_eq!(other.millis.len(), count.min(MAX_TIMES));
            assert_eq!(twice.millis.len(), (2 * count).min(MAX_TIMES));
            assert_eq!(twice.by_status.values().sum::<u64>(), 2 * count as u64);
        }
    }
}
