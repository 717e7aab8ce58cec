//! Exponential backoff after failures, with a limit and random variation.

use std::collections::BTreeMap;

use domain::time::Timestamp;
use engine::random::Random;
use rand::RngExt;

const FIRST_MS: i64 = 1_000;
const LONGEST_MS: i64 = 30_000;

/// Failures in a row.
#[derive(Debug)]
pub(super) struct Backoff {
    failing: Option<Failing>,
    longest_ms: i64,
}

#[derive(Debug)]
struct Failing {
    since: Timestamp,
    again_at: Timestamp,
    wait_ms: i64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::up_to(LONGEST_MS)
    }
}

impl Backoff {
    /// A backoff with this maximum wait.
    pub(super) fn up_to(longest_ms: i64) -> Self {
        Self {
            failing: None,
            longest_ms,
        }
    }

    /// Whether it is too early to try again.
    pub(super) fn must_wait(&self, now: Timestamp) -> bool {
        let failing = self.failing.as_ref();
        failing.is_some_and(|failing| now < failing.again_at)
    }

    /// Records a failure. Chance spreads the retries of clients that failed together. Returns
    /// whether this is the first failure in a row, which should be logged.
    pub(super) fn failed(&mut self, now: Timestamp, random: &Random) -> bool {
        self.failed_with(now, random.with(|random| random.random()))
    }

    /// `chance` is between 0 and 1.
    fn failed_with(&mut self, now: Timestamp, chance: f64) -> bool {
        let (since, wait_ms) = match &self.failing {
            None => (now, FIRST_MS),
            Some(failing) => (failing.since, (failing.wait_ms * 2).min(self.longest_ms)),
        };
        let is_first = self.failing.is_none();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            reason = "a share of half a minute in milliseconds"
        )]
        let spread_ms = (wait_ms as f64 * 0.5 * chance.clamp(0.0, 1.0)) as i64;
        self.failing = Some(Failing {
            since,
            again_at: now.plus_millis(wait_ms - spread_ms),
            wait_ms,
        });
        is_first
    }

    pub(super) fn is_failing(&self) -> bool {
        self.failing.is_some()
    }

    /// Records a success. Returns the time of the first failure, if there was one.
    pub(super) fn succeeded(&mut self) -> Option<Timestamp> {
        self.failing.take().map(|failing| failing.since)
    }
}

/// Failures in a row of each of several things.
#[derive(Debug)]
pub(super) struct Backoffs<K>(BTreeMap<K, Backoff>);

impl<K: Ord> Default for Backoffs<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord> Backoffs<K> {
    /// Whether it is too early to try this one again.
    pub(super) fn must_wait(&self, key: &K, now: Timestamp) -> bool {
        self.0
            .get(key)
            .is_some_and(|backoff| backoff.must_wait(now))
    }

    /// Records a failure. Returns whether this is the first in a row, which should be logged.
    pub(super) fn failed(&mut self, key: K, now: Timestamp, random: &Random) -> bool {
        self.0.entry(key).or_default().failed(now, random)
    }

    pub(super) fn succeeded(&mut self, key: &K) {
        self.0.remove(key);
    }

    /// Forgets all others.
    pub(super) fn keep_only(&mut self, is_kept: impl Fn(&K) -> bool) {
        self.0.retain(|key, _| is_kept(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn waits_double_up_to_a_limit() {
        let mut backoff = Backoff::default();
        let mut now = 0;
        for (number, wait) in [1, 2, 4, 8, 16, 30, 30].into_iter().enumerate() {
            assert_eq!(backoff.failed_with(at(now), 0.0), number == 0);
            let end = now + wait * 1_000;
            assert!(backoff.must_wait(at(end - 1)), "{wait}");
            assert!(!backoff.must_wait(at(end)), "{wait}");
            now = end;
        }
        assert_eq!(backoff.succeeded(), Some(at(0)));
        assert_eq!(backoff.succeeded(), None);
        assert!(
            backoff.failed_with(at(now), 0.0),
            "the next one is the first again"
        );
    }

    #[test]
    fn chance_makes_it_sooner_by_up_to_half() {
        let mut backoff = Backoff::default();
        backoff.failed_with(at(0), 1.0);
        assert!(backoff.must_wait(at(499)));
        assert!(!backoff.must_wait(at(500)));
    }
}
