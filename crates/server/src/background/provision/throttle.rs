//! How soon a pool that rings is looked at again.
//!
//! The first time at once. Then a busy queue keeps the planner from looking more often than it
//! helps: each look sees all that has changed since the last one. ProvisionRounds do not heed this; they
//! have a delay of their own.

use std::collections::BTreeMap;

use domain::id::PoolId;
use domain::time::{MINUTE_MS, SECOND_MS, Timestamp};

/// After a look at which nothing was launched.
const AFTER_LOOK_MS: i64 = 100;
/// After a plan that launches.
const AFTER_LAUNCH_MS: i64 = SECOND_MS;
/// After a first failure; doubled by each further one.
const AFTER_FAILURE_MS: i64 = SECOND_MS;
const LONGEST_AFTER_FAILURE_MS: i64 = MINUTE_MS;
/// PoolThrottle are kept for this many pools before those that hold nobody up are forgotten.
const MAX_KEPT: usize = 10_000;

/// The pools that were looked at lately.
#[derive(Default)]
pub(super) struct PoolThrottle {
    by_pool: BTreeMap<PoolId, Delay>,
}

#[derive(Clone, Copy)]
struct Delay {
    not_before: Timestamp,
    /// Failures in a row.
    n_failed: u32,
}

impl PoolThrottle {
    /// When the pool may be looked at, if not now. A moment that is too far away is from before the
    /// clock was set back.
    pub(super) fn not_before(&self, id: &PoolId, now: Timestamp) -> Option<Timestamp> {
        let at = self.by_pool.get(id)?.not_before;
        let wait = at.millis_since(now);
        (0 < wait && wait <= LONGEST_AFTER_FAILURE_MS).then_some(at)
    }

    pub(super) fn looked(&mut self, id: &PoolId, now: Timestamp) {
        self.set(id, now, AFTER_LOOK_MS, 0);
    }

    pub(super) fn launched(&mut self, id: &PoolId, now: Timestamp) {
        self.set(id, now, AFTER_LAUNCH_MS, 0);
    }

    /// Returns when to try again.
    pub(super) fn failed(&mut self, id: &PoolId, now: Timestamp) -> Timestamp {
        let before = self.by_pool.get(id).map_or(0, |delay| delay.n_failed);
        let wait_ms = AFTER_FAILURE_MS << before.min(6);
        let wait_ms = wait_ms.min(LONGEST_AFTER_FAILURE_MS);
        self.set(id, now, wait_ms, before.saturating_add(1));
        now.plus_millis(wait_ms)
    }

    fn set(&mut self, id: &PoolId, now: Timestamp, wait_ms: i64, n_failed: u32) {
        let is_new = !self.by_pool.contains_key(id);
        if is_new && self.by_pool.len() >= MAX_KEPT {
            let late = now.plus_millis(-LONGEST_AFTER_FAILURE_MS);
            self.by_pool.retain(|_, delay| {
                delay.not_before > now || delay.n_failed > 0 && delay.not_before > late
            });
        }
        let not_before = now.plus_millis(wait_ms);
        let delay = Delay {
            not_before,
            n_failed,
        };
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
    fn a_pool_is_looked_at_at_once_then_ten_times_a_second_and_launched_for_once_a_second() {
        let mut throttle = PoolThrottle::default();
        let id = pool(0);
        assert_eq!(throttle.not_before(&id, at(0)), None);
        throttle.looked(&id, at(0));
        assert_eq!(throttle.not_before(&id, at(99)), Some(at(100)));
        assert_eq!(throttle.not_before(&id, at(100)), None);
        throttle.launched(&id, at(100));
        assert_eq!(throttle.not_before(&id, at(1_099)), Some(at(1_100)));
        assert_eq!(throttle.not_before(&id, at(1_100)), None);
        assert_eq!(throttle.not_before(&pool(1), at(100)), None);
    }

    #[test]
    fn a_pool_that_fails_is_tried_later_and_later_until_it_is_decided_on() {
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
    fn a_clock_that_was_set_back_holds_nobody_up() {
        let mut throttle = PoolThrottle::default();
        throttle.launched(&pool(0), at(7_200_000));
        assert_eq!(throttle.not_before(&pool(0), at(0)), None);
    }

    #[test]
    fn what_is_kept_is_bounded_by_the_pools_that_are_held_up() {
        for count in sizes_around(
            "server::background::provision::throttle::MAX_KEPT",
            MAX_KEPT,
        ) {
            let mut throttle = PoolThrottle::default();
            for number in 0..count {
                // One each ten milliseconds: ten of them are held up.
                let now = at(10 * i64::try_from(number).unwrap());
                throttle.looked(&pool(number), now);
                assert!(throttle.by_pool.len() <= MAX_KEPT);
            }
            assert!(throttle.by_pool.len() >= count.min(10), "of {count}");
        }
    }
}
