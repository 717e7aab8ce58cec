//! The calls that one region allows of one kind: tokens that fill steadily, until the cloud complains.

use domain::time::{SECOND_MS, Timestamp};

/// How many seconds' worth of calls may be made at once.
const BURST_SECONDS: f64 = 5.0;
/// A bucket fills no slower than this part of its full speed.
const MAX_SLOWDOWN: f64 = 64.0;
/// From a standstill back to full speed.
const RECOVERY_SECONDS: f64 = 300.0;
/// For how long nothing is asked after the first answer that we ask too often. Each further one doubles that.
const FIRST_PAUSE_MS: i64 = SECOND_MS;
const MAX_DOUBLINGS: u32 = 6;

#[derive(Debug)]
pub(super) struct Bucket {
    /// Calls a second when the cloud does not complain.
    full_rate: f64,
    /// Calls a second now.
    pub(super) rate: f64,
    /// Calls that may be made now; below zero: calls that wait.
    tokens: f64,
    at: Timestamp,
    /// Nothing is asked before this.
    closed_until: Option<Timestamp>,
    last_throttled: Option<Timestamp>,
    /// Complaints in a row.
    n_throttled: u32,
    /// All complaints. A call that got its turn before the last one must ask for a new turn.
    n_complaints: u64,
}

/// A call's place among those that wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) due: Timestamp,
    n_complaints: u64,
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
            n_complaints: 0,
        }
    }

    /// Up to this moment. Nothing fills while the bucket is closed: after it, one call finds out whether it helped.
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

    /// The turn of a call that has this one so far; or how long it would wait, where that is longer than it may.
    pub(super) fn take_turn(
        &mut self,
        turn: Option<Turn>,
        now: Timestamp,
        limit_ms: i64,
    ) -> Result<Turn, i64> {
        if let Some(turn) = turn.filter(|turn| turn.n_complaints == self.n_complaints) {
            return Ok(turn);
        }
        let wait_ms = self.wait_ms(now);
        if wait_ms > limit_ms {
            return Err(wait_ms);
        }
        self.tokens -= 1.0;
        Ok(Turn {
            due: now.plus_millis(wait_ms),
            n_complaints: self.n_complaints,
        })
    }

    /// The cloud complained about a call that began then. What began before the last complaint says nothing new: many
    /// calls at once are one event.
    pub(super) fn throttled(&mut self, began: Timestamp, now: Timestamp) {
        if self.last_throttled.is_some_and(|last| began <= last) {
            return;
        }
        self.fill(now);
        self.last_throttled = Some(now);
        self.rate = (self.rate / 2.0).max(self.full_rate / MAX_SLOWDOWN);
        self.tokens = 1.0;
        self.n_complaints = self.n_complaints.saturating_add(1);
        let pause_ms = FIRST_PAUSE_MS << self.n_throttled.min(MAX_DOUBLINGS);
        self.n_throttled = self.n_throttled.saturating_add(1);
        self.closed_until = Some(now.plus_millis(pause_ms));
    }

    pub(super) fn answered(&mut self, began: Timestamp) {
        if self.last_throttled.is_none_or(|last| began > last) {
            self.n_throttled = 0;
        }
    }
}

/// At least one, else nothing could ever be asked.
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
        // It recovers by itself, once it is open.
        now = now.plus_millis(64 * SECOND_MS);
        bucket.fill(now.plus_millis(150 * SECOND_MS));
        assert!((4.0..4.3).contains(&bucket.rate), "{}", bucket.rate);
        bucket.fill(now.plus_millis(400 * SECOND_MS));
        assert!((7.99..8.01).contains(&bucket.rate), "{}", bucket.rate);
    }

    #[test]
    fn after_a_complaint_those_that_wait_queue_again_and_one_goes_after_each_pause() {
        let mut bucket = Bucket::new(2.0, at(0));
        assert_eq!(at_once(&mut bucket, at(0)), 10);
        let limit_ms = 10 * SECOND_MS;
        let take = |bucket: &mut Bucket, turn, now| bucket.take_turn(turn, at(now), limit_ms);
        let waiting: Vec<Turn> = (0..20)
            .map(|_| take(&mut bucket, None, 0).unwrap())
            .collect();
        assert_eq!(waiting[19].due, at(10_000));
        // The 21st would wait too long.
        assert_eq!(take(&mut bucket, None, 0).unwrap_err(), 10_500);
        // A call that has a turn keeps it.
        assert_eq!(
            take(&mut bucket, Some(waiting[19]), 400).unwrap().due,
            at(10_000)
        );
        bucket.throttled(at(100), at(400));
        let again = |bucket: &mut Bucket| {
            let dues = waiting.iter().map(|turn| {
                let taken = take(bucket, Some(*turn), 500);
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
