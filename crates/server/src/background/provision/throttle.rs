//! Limits how often a woken pool is decided on.
//!
//! The first decisions are immediate. Under load, decisions of one pool keep a minimum interval on
//! average, since each sees all changes since the last one. After a launch, the next one waits for
//! that interval. Rounds ignore this limit; they have a period of their own.

use std::collections::BTreeMap;

use domain::id::PoolId;
use domain::time::{MINUTE_MS, SECOND_MS, Timestamp};

/// Interval after a decision that launched nothing.
const AFTER_LOOK_MS: i64 = 100;
/// Decisions that launched nothing may be ahead of their intervals by this time. So a task does not
/// wait because something else happened in its pool a moment before.
const MAX_AHEAD_MS: i64 = 3 * AFTER_LOOK_MS;
/// Interval after a decision that launched workers.
const AFTER_LAUNCH_MS: i64 = SECOND_MS;
/// Interval after a decision for which a strategy service was asked.
const AFTER_ASKING_MS: i64 = SECOND_MS;
/// Interval after a first failure; each further failure doubles it.
const AFTER_FAILURE_MS: i64 = SECOND_MS;
const LONGEST_AFTER_FAILURE_MS: i64 = MINUTE_MS;
/// At this number of pools, expired intervals are dropped.
const MAX_KEPT: usize = 10_000;

/// The recently decided pools.
#[derive(Default)]
pub(super) struct PoolThrottle {
    by_pool: BTreeMap<PoolId, Delay>,
}

#[derive(Clone, Copy)]
struct Delay {
    not_before: Timestamp,
    /// When the intervals of all decisions will have passed.
    over: Timestamp,
    /// Failures in a row.
    n_failed: u32,
}

impl PoolThrottle {
    /// The earliest time of the next decision, if it is in the future. A time in the far future is
    /// from before the clock was set back.
    pub(super) fn not_before(&self, id: &PoolId, now: Timestamp) -> Option<Timestamp> {
        let at = self.by_pool.get(id)?.not_before;
        let wait = at.millis_since(now);
        (0 < wait && wait <= LONGEST_AFTER_FAILURE_MS).then_some(at)
    }

    pub(super) fn looked(&mut self, id: &PoolId, now: Timestamp) {
        let before = self.by_pool.get(id).map_or(now, |delay| delay.over);
        let is_clock_back = before.millis_since(now) > LONGEST_AFTER_FAILURE_MS;
        let begin = if is_clock_back { now } else { before.max(now) };
        let over = begin.plus_millis(AFTER_LOOK_MS);
        let not_before = over.plus_millis(-MAX_AHEAD_MS);
        let delay = Delay {
            not_before,
            over,
            n_failed: 0,
        };
        self.insert(id, now, delay);
    }

    pub(super) fn asked(&mut self, id: &PoolId, now: Timestamp) {
        self.wait(id, now, AFTER_ASKING_MS, 0);
    }

    pub(super) fn launched(&mut self, id: &PoolId, now: Timestamp) {
        self.wait(id, now, AFTER_LAUNCH_MS, 0);
    }

    /// Returns the time of the next try.
    pub(super) fn failed(&mut self, id: &PoolId, now: Timestamp) -> Timestamp {
        let before = self.by_pool.get(id).map_or(0, |delay| delay.n_failed);
        let wait_ms = AFTER_FAILURE_MS << before.min(6);
        let wait_ms = wait_ms.min(LONGEST_AFTER_FAILURE_MS);
        self.wait(id, now, wait_ms, before.saturating_add(1));
        now.plus_millis(wait_ms)
    }

    fn wait(&mut self, id: &PoolId, now: Timestamp, wait_ms: i64, n_failed: u32) {
        let over = now.plus_millis(wait_ms);
        let delay = Delay {
            not_before: over,
            over,
            n_failed,
        };
        self.insert(id, now, delay);
    }

    fn insert(&mut self, id: &PoolId, now: Timestamp, delay: Delay) {
        let is_new = !self.by_pool.contains_key(id);
        if is_new && self.by_pool.len() >= MAX_KEPT {
            let late = now.plus_millis(-LONGEST_AFTER_FAILURE_MS);
            self.by_pool.retain(|_, delay| {
                delay.over > now || delay.n_failed > 0 && delay.not_before > late
            });
        }
        self.by_pool.insert(id.clone(), delay);
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(1_000_000_000 + millis)
    }

    fn pool(number: usize) -> PoolId {
        format!("p/n{number}").parse().unwrap()
    }

    #[test]
    fn a_pool_is_decided_on_four_times_at_once_and_then_ten_times_a_second() {
        let mut throttle = PoolThrottle::default();
        let id = pool(0);
        for _ in 0..4 {
            assert_eq!(throttle.not_before(&id, at(0)), None);
            throttle.looked(&id, at(0));
        }
        for number in 1..20 {
            let due = at(number * 100);
            let early = due.plus_millis(-1);
            assert_eq!(throttle.not_before(&id, early), Some(due), "{number}");
            assert_eq!(throttle.not_before(&id, due), None);
            throttle.looked(&id, due);
        }
        // Two intervals without a decision: two more at once.
        for _ in 0..3 {
            assert_eq!(throttle.not_before(&id, at(2_200)), None);
            throttle.looked(&id, at(2_200));
        }
        assert_eq!(throttle.not_before(&id, at(2_299)), Some(at(2_300)));
    }

    #[test]
    fn a_pool_is_launched_for_once_a_second() {
        let mut throttle = PoolThrottle::default();
        let id = pool(0);
        throttle.launched(&id, at(100));
        assert_eq!(throttle.not_before(&id, at(1_099)), Some(at(1_100)));
        assert_eq!(throttle.not_before(&id, at(1_100)), None);
        throttle.asked(&id, at(2_000));
        assert_eq!(throttle.not_before(&id, at(2_999)), Some(at(3_000)));
        assert_eq!(throttle.not_before(&pool(1), at(100)), None);
    }

    #[test]
    fn a_pool_that_fails_is_retried_at_growing_intervals() {
        let mut throttle = PoolThrottle::default();
        let id = pool(0);
        let mut waits = Vec::new();
        for _ in 0..9 {
            waits.push(throttle.failed(&id, at(0)).millis_since(at(0)) / 1_000);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(throttle.not_before(&id, at(59_999)), Some(at(60_000)));
        throttle.looked(&id, at(60_000));
        assert_eq!(throttle.failed(&id, at(60_000)), at(61_000));
    }

    #[test]
    fn a_clock_that_was_set_back_delays_no_pool() {
        let mut throttle = PoolThrottle::default();
        throttle.launched(&pool(0), at(7_200_000));
        assert_eq!(throttle.not_before(&pool(0), at(0)), None);
        throttle.looked(&pool(0), at(0));
        assert_eq!(throttle.not_before(&pool(0), at(0)), None);
    }

    #[test]
    fn the_number_of_kept_intervals_is_bounded() {
        for count in sizes_around(
            "server::background::provision::throttle::MAX_KEPT",
            MAX_KEPT,
        ) {
            let mut throttle = PoolThrottle::default();
            for number in 0..count {
                // One every ten milliseconds: ten of them are delayed.
                let now = at(10 * i64::try_from(number).unwrap());
                throttle.looked(&pool(number), now);
                assert!(throttle.by_pool.len() <= MAX_KEPT);
            }
            assert!(throttle.by_pool.len() >= count.min(10), "of {count}");
        }
    }
}
