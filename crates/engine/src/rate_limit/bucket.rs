//! A token bucket for one kind of call to one region. It slows down when the cloud throttles calls.

use std::time::Duration;

use domain::time::{SECOND_MS, Timestamp};

/// Calls of this many seconds may be made at once.
const BURST_SECONDS: f64 = 5.0;
/// A bucket fills no slower than this fraction of its full rate.
const MAX_SLOWDOWN: f64 = 64.0;
/// The time from rate zero back to the full rate.
const RECOVERY_SECONDS: f64 = 300.0;
/// No calls for this time after the first throttled call. Each further one doubles it.
const FIRST_PAUSE_MS: i64 = SECOND_MS;
const MAX_DOUBLINGS: u32 = 6;

#[derive(Debug)]
pub(super) struct Bucket {
    /// Calls per second, unless the cloud throttles.
    full_rate: f64,
    /// Calls per second now.
    pub(super) rate: f64,
    /// Calls that may be made now; negative: calls that wait.
    tokens: f64,
    at: Timestamp,
    /// No calls before this moment.
    closed_until: Option<Timestamp>,
    last_throttled: Option<Timestamp>,
    /// Throttled calls in a row.
    n_throttled: u32,
    /// All throttled calls. Each one cancels the reservations made before it.
    n_throttlings: u64,
}

/// The reserved time of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reservation {
    pub(super) due: Timestamp,
    n_throttlings: u64,
}

impl Bucket {
    pub(super) fn new(full_rate: f64, now: Timestamp) -> Self {
        Self {
            full_rate,
            rate: full_rate,
            tokens: burst(full_rate),
            at: now,
            closed_until: None,
            last_throttled: None,
            n_throttled: 0,
            n_throttlings: 0,
        }
    }

    /// Adds tokens up to this moment. A closed bucket does not fill: then one call tries whether
    /// the cloud still throttles.
    #[expect(
        clippy::cast_precision_loss,
        reason = "milliseconds between calls are far below what an f64 holds exactly"
    )]
    pub(super) fn fill(&mut self, now: Timestamp) {
        let from = Some(self.at).max(self.closed_until).unwrap_or(self.at);
        let seconds = now.millis_since(from).max(0) as f64 / 1_000.0;
        self.at = self.at.max(now);
        self.tokens = (self.tokens + self.rate * seconds).min(burst(self.full_rate));
        let faster = self.rate + self.full_rate * seconds / RECOVERY_SECONDS;
        self.rate = faster.min(self.full_rate);
    }

    pub(super) fn full_rate(&self) -> f64 {
        self.full_rate
    }

    /// The part of the calls that may be made at once which is used up: from 0 to 1.
    pub(super) fn used(&self) -> f64 {
        (1.0 - self.tokens / burst(self.full_rate)).clamp(0.0, 1.0)
    }

    /// For how long no call is made, because the cloud throttled one.
    pub(super) fn throttled_ms(&self, now: Timestamp) -> Option<i64> {
        Some(self.closed_ms(now)).filter(|millis| *millis > 0)
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
    pub(super) fn wait_ms(&self, now: Timestamp) -> i64 {
        let missing = (1.0 - self.tokens).max(0.0);
        let for_token = (missing / self.rate * 1_000.0).ceil() as i64;
        for_token.saturating_add(self.closed_ms(now))
    }

    /// Reserves a time for a call, or keeps its valid reservation. Error: a wait beyond the limit.
    pub(super) fn reserve(
        &mut self,
        reservation: Option<Reservation>,
        now: Timestamp,
        limit_ms: i64,
    ) -> Result<Reservation, i64> {
        if let Some(reservation) =
            reservation.filter(|reservation| reservation.n_throttlings == self.n_throttlings)
        {
            return Ok(reservation);
        }
        let wait_ms = self.wait_ms(now);
        if wait_ms > limit_ms {
            return Err(wait_ms);
        }
        self.tokens -= 1.0;
        Ok(Reservation {
            due: now.plus_millis(wait_ms),
            n_throttlings: self.n_throttlings,
        })
    }

    /// The cloud throttled a call that began then. Calls that began before the last throttling do
    /// not count again. Returns the pause that begins, and the calls that wait for its end.
    pub(super) fn record_throttling(
        &mut self,
        began: Timestamp,
        now: Timestamp,
    ) -> Option<(i64, u64)> {
        if self.last_throttled.is_some_and(|last| began <= last) {
            return None;
        }
        let n_waiting = self.n_waiting();
        self.fill(now);
        self.last_throttled = Some(now);
        self.rate = (self.rate / 2.0).max(self.full_rate / MAX_SLOWDOWN);
        self.tokens = 1.0;
        self.n_throttlings = self.n_throttlings.saturating_add(1);
        let pause_ms = FIRST_PAUSE_MS << self.n_throttled.min(MAX_DOUBLINGS);
        self.n_throttled = self.n_throttled.saturating_add(1);
        // The cloud may have asked for a longer pause before.
        self.closed_until = self.closed_until.max(Some(now.plus_millis(pause_ms)));
        Some((pause_ms, n_waiting))
    }

    /// The cloud asks not to be called for this long. Waiting calls get new reservations, and the
    /// first one tries whether it works again.
    pub(super) fn pause(&mut self, pause: Duration, now: Timestamp) {
        let pause_ms = i64::try_from(pause.as_millis()).unwrap_or(i64::MAX);
        let until = Some(now.plus_millis(pause_ms));
        if pause_ms > 0 && until > self.closed_until {
            self.fill(now);
            self.closed_until = until;
            self.tokens = 1.0;
            self.n_throttlings = self.n_throttlings.saturating_add(1);
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number below the range becomes 0, and a number above it the largest"
    )]
    fn n_waiting(&self) -> u64 {
        (-self.tokens).ceil() as u64
    }

    /// Returns whether this ends a pause.
    pub(super) fn record_success(&mut self, began: Timestamp) -> bool {
        let is_later = self.last_throttled.is_none_or(|last| began > last);
        is_later && std::mem::take(&mut self.n_throttled) > 0
    }
}

/// At least one, or no call could ever be made.
fn burst(rate: f64) -> f64 {
    (rate * BURST_SECONDS).max(1.0)
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
    fn a_bucket_holds_the_calls_of_five_seconds_and_fills_steadily() {
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
    fn each_throttling_closes_a_bucket_for_longer_and_halves_its_rate() {
        let mut bucket = Bucket::new(8.0, at(0));
        let mut closed = Vec::new();
        let mut now = at(0);
        for _ in 0..9 {
            bucket.record_throttling(now.plus_millis(1), now.plus_millis(2));
            now = now.plus_millis(2);
            closed.push(bucket.closed_ms(now) / SECOND_MS);
        }
        assert_eq!(closed, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
        assert!((0.12..0.13).contains(&bucket.rate), "{}", bucket.rate);
        // It recovers by itself, once it is open.
        now = now.plus_millis(64 * SECOND_MS);
        bucket.fill(now.plus_millis(150 * SECOND_MS));
        assert!((4.0..4.3).contains(&bucket.rate), "{}", bucket.rate);
        bucket.fill(now.plus_millis(400 * SECOND_MS));
        assert!((7.99..8.01).contains(&bucket.rate), "{}", bucket.rate);
    }

    #[test]
    fn after_a_throttling_waiting_calls_get_new_reservations_one_after_the_other() {
        let mut bucket = Bucket::new(2.0, at(0));
        assert_eq!(at_once(&mut bucket, at(0)), 10);
        let limit_ms = 10 * SECOND_MS;
        let take =
            |bucket: &mut Bucket, reservation, now| bucket.reserve(reservation, at(now), limit_ms);
        let waiting: Vec<Reservation> = (0..20)
            .map(|_| take(&mut bucket, None, 0).unwrap())
            .collect();
        assert_eq!(waiting[19].due, at(10_000));
        // The 21st would wait too long.
        assert_eq!(take(&mut bucket, None, 0).unwrap_err(), 10_500);
        // A valid reservation stays.
        assert_eq!(
            take(&mut bucket, Some(waiting[19]), 400).unwrap().due,
            at(10_000)
        );
        bucket.record_throttling(at(100), at(400));
        let again = |bucket: &mut Bucket| {
            let dues = waiting.iter().map(|reservation| {
                let taken = take(bucket, Some(*reservation), 500);
                taken.map(|taken| taken.due.as_millis()).ok()
            });
            dues.flatten().collect::<Vec<_>>()
        };
        let dues = again(&mut bucket);
        assert_eq!(dues.len(), 10, "{dues:?}");
        assert!(dues[0] >= 1_400 && dues.is_sorted(), "{dues:?}");
        assert!(
            dues.windows(2).all(|two| two[1] - two[0] >= 900),
            "{dues:?}"
        );
    }

    #[test]
    fn a_pause_that_the_cloud_asks_for_closes_a_bucket_without_slowing_it_down() {
        let mut bucket = Bucket::new(2.0, at(0));
        let early = bucket.reserve(None, at(0), SECOND_MS).unwrap();
        bucket.pause(Duration::from_secs(30), at(0));
        bucket.pause(Duration::from_secs(20), at(0));
        bucket.pause(Duration::ZERO, at(0));
        assert_eq!(bucket.closed_ms(at(0)), 30_000);
        assert_eq!(
            bucket.reserve(Some(early), at(0), SECOND_MS).unwrap_err(),
            30_000
        );
        assert!((1.99..2.01).contains(&bucket.rate), "{}", bucket.rate);
        assert_eq!(at_once(&mut bucket, at(30_000)), 1);
        // After a throttled call, the longer of both pauses counts.
        bucket.record_throttling(at(30_001), at(30_002));
        bucket.pause(Duration::from_secs(5), at(30_002));
        assert_eq!(bucket.closed_ms(at(30_002)), 5_000);
    }

    #[test]
    fn concurrent_throttled_calls_count_once() {
        let mut bucket = Bucket::new(8.0, at(0));
        for number in 0..16 {
            bucket.record_throttling(at(10), at(20 + number));
        }
        assert_eq!((bucket.n_throttled, bucket.closed_ms(at(20))), (1, 1_000));
        // An answer to an earlier call does not count either.
        bucket.record_success(at(15));
        assert_eq!(bucket.n_throttled, 1);
        bucket.record_success(at(2_000));
        assert_eq!(bucket.n_throttled, 0);
    }
}
