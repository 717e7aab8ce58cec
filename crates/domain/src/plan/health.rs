//! How a launch config has been doing, and what follows from it (RFC 191).
//!
//! Only its own launches count, never those of others. One that is ill is not used but tried again now and then
//! with one machine, so that it can come back: not before a pause after its last failure, which doubles with each.

use super::need::exact;
use super::{Health, Tries};
use crate::time::{MINUTE_MS, SECOND_MS, Timestamp};

/// A machine that has not registered for so long is not expected to any more.
pub const START_UP_MS: i64 = 30 * MINUTE_MS;
/// The pause after a first failure.
const FIRST_PAUSE_MS: i64 = 60 * SECOND_MS;
/// The longest pause.
const LONGEST_PAUSE_MS: i64 = 480 * SECOND_MS;

/// What to do with a launch config now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Condition {
    /// To be used, with its weight times this share (above 0, at most 1).
    Usable(f64),
    /// To be tried with one machine.
    Due,
    /// Ill, and not to be tried before then.
    Resting { until: Timestamp },
    /// Ill; whether the machine with which it was tried registers is not known yet.
    Awaited,
}

impl Health {
    pub(super) fn failures(&self) -> u64 {
        self.failed.saturating_add(self.never_registered)
    }

    /// Did machines fail that had been made? Such a failure takes its time to show.
    pub(super) fn fails_late(&self) -> bool {
        self.never_registered > 0 || self.created > self.registered
    }

    pub(super) fn condition(&self, tries: &Tries, now: Timestamp) -> Condition {
        let share = self.share(tries, now);
        if share > 0.0 {
            return Condition::Usable(share);
        }
        let too_late = |since: Timestamp| now.millis_since(since) >= START_UP_MS;
        if self.is_unsettled(tries) && !tries.last.is_some_and(too_late) {
            return Condition::Awaited;
        }
        let Some(last) = self.last_failure.max(tries.last) else {
            return Condition::Due;
        };
        let until = last.plus_millis(self.pause_ms(tries));
        if until <= now {
            Condition::Due
        } else {
            Condition::Resting { until }
        }
    }

    /// RFC 191: the share of attempts that did not fail. While none of its machines has registered, nothing is known
    /// in its favour: then it has no share as soon as anything failed, or the time to start up has passed.
    fn share(&self, tries: &Tries, now: Timestamp) -> f64 {
        let failures = self.failures();
        if self.registered == 0 {
            let too_late = |since: Timestamp| now.millis_since(since) >= START_UP_MS;
            let never_came = self.created > 0 && tries.awaited_since.is_some_and(too_late);
            return if failures > 0 || never_came { 0.0 } else { 1.0 };
        }
        let attempts = self.attempted.max(failures).max(1);
        exact(attempts - failures) / exact(attempts)
    }

    /// Is there a machine, or a launch without an answer, of which nobody knows yet what becomes of it? A launch
    /// that was refused for other reasons than its own looks like one without an answer; the time of the newest
    /// launch says more.
    fn is_unsettled(&self, tries: &Tries) -> bool {
        let unanswered = self.attempted > self.failed.saturating_add(self.created);
        self.created > self.registered.saturating_add(self.never_registered)
            || unanswered && tries.last.is_none()
    }

    fn pause_ms(&self, tries: &Tries) -> i64 {
        let bursts = tries.failed_launches.unwrap_or(self.failed);
        let failures = bursts.saturating_add(self.never_registered).max(1);
        let doublings = u32::try_from(failures - 1).unwrap_or(u32::MAX).min(8);
        (FIRST_PAUSE_MS << doublings).min(LONGEST_PAUSE_MS)
    }

    /// For people: what went wrong, if anything.
    pub(super) fn trouble(&self) -> Option<String> {
        let failures = self.failures();
        if failures > 0 {
            let attempts = self.attempted.max(failures);
            return Some(format!(
                "{failures} of {attempts} launches failed in the last hour"
            ));
        }
        (self.created > 0 && self.registered == 0).then(|| {
            let machines = if self.created == 1 {
                "machine"
            } else {
                "machines"
            };
            format!(
                "{} {machines} made in the last hour, none registered yet",
                self.created
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 100_000_000;

    fn at(seconds_ago: i64) -> Timestamp {
        Timestamp::from_millis(NOW - seconds_ago * SECOND_MS)
    }

    /// The others registered.
    fn failed(failed: u64, attempted: u64) -> Health {
        Health {
            attempted,
            failed,
            created: attempted - failed,
            registered: attempted - failed,
            last_failure: Some(at(30)),
            ..Health::default()
        }
    }

    fn condition(health: Health, tries: Tries) -> Condition {
        health.condition(&tries, at(0))
    }

    #[test]
    fn the_share_falls_with_failures_of_its_own() {
        let none = Tries::default();
        assert_eq!(condition(Health::default(), none), Condition::Usable(1.0));
        assert_eq!(condition(failed(1, 1_000), none), Condition::Usable(0.999));
        assert_eq!(condition(failed(8, 10), none), Condition::Usable(0.2));
        let late = Health {
            never_registered: 2,
            created: 4,
            registered: 2,
            ..failed(1, 5)
        };
        assert_eq!(condition(late, none), Condition::Usable(0.4));
    }

    #[test]
    fn machines_that_never_showed_up_are_judged_by_the_three_cases() {
        let created = |failed, registered| Health {
            attempted: 3 + failed,
            created: 3,
            registered,
            failed,
            last_failure: (failed > 0).then(|| at(30)),
            ..Health::default()
        };
        let since = |seconds_ago| Tries {
            awaited_since: Some(at(seconds_ago)),
            last: Some(at(seconds_ago)),
            ..Tries::default()
        };
        assert_eq!(
            condition(created(0, 0), since(1_799)),
            Condition::Usable(1.0)
        );
        assert_eq!(
            condition(created(0, 0), Tries::default()),
            Condition::Usable(1.0)
        );
        assert_eq!(condition(created(2, 0), since(60)), Condition::Awaited);
        assert_eq!(condition(created(2, 1), since(60)), Condition::Usable(0.6));
        assert_eq!(condition(created(0, 0), since(1_800)), Condition::Due);
    }

    #[test]
    fn the_pause_doubles_with_each_failed_launch_up_to_eight_minutes() {
        let pause = |failed_launches: u64| {
            let tries = Tries {
                failed_launches: Some(failed_launches),
                ..Tries::default()
            };
            failed(10, 10).pause_ms(&tries) / SECOND_MS
        };
        assert_eq!(
            [0, 1, 2, 3, 4, 5, u64::MAX].map(pause),
            [60, 60, 120, 240, 480, 480, 480]
        );
        assert_eq!(failed(2, 2).pause_ms(&Tries::default()), 120 * SECOND_MS);
    }

    #[test]
    fn one_that_is_ill_is_tried_when_its_pause_is_over() {
        let tries = |seconds_ago| Tries {
            failed_launches: Some(1),
            last: Some(at(seconds_ago)),
            ..Tries::default()
        };
        let resting = Condition::Resting { until: at(-30) };
        assert_eq!(condition(failed(3, 3), tries(30)), resting);
        let long_ago = Health {
            last_failure: Some(at(60)),
            ..failed(3, 3)
        };
        assert_eq!(condition(long_ago, tries(60)), Condition::Due);
        // A try whose outcome is not known yet is a try.
        let resting = Condition::Resting { until: at(-50) };
        assert_eq!(condition(long_ago, tries(10)), resting);
        let unknown_when = Health {
            last_failure: None,
            ..failed(3, 3)
        };
        assert_eq!(condition(unknown_when, Tries::default()), Condition::Due);
    }

    #[test]
    fn a_machine_that_never_comes_does_not_keep_one_from_being_tried_for_ever() {
        let health = Health {
            attempted: 4,
            failed: 3,
            created: 1,
            last_failure: Some(at(3_000)),
            ..Health::default()
        };
        let tried = |seconds_ago| Tries {
            last: Some(at(seconds_ago)),
            ..Tries::default()
        };
        assert_eq!(condition(health, tried(1_799)), Condition::Awaited);
        assert_eq!(condition(health, tried(1_800)), Condition::Due);
    }

    #[test]
    fn a_launch_without_an_answer_speaks_for_nothing() {
        let asked = Health {
            attempted: 5,
            last_failure: Some(at(90)),
            ..failed(4, 4)
        };
        assert_eq!(condition(asked, Tries::default()), Condition::Awaited);
        let tried = |seconds_ago| Tries {
            failed_launches: Some(1),
            last: Some(at(seconds_ago)),
            ..Tries::default()
        };
        let resting = Condition::Resting { until: at(-20) };
        assert_eq!(condition(asked, tried(40)), resting);
        assert_eq!(condition(asked, tried(60)), Condition::Due);
    }

    #[test]
    fn nonsense_is_survived() {
        let health = Health {
            attempted: 0,
            failed: u64::MAX,
            created: u64::MAX,
            registered: u64::MAX,
            never_registered: u64::MAX,
            last_failure: Some(at(0)),
        };
        assert_eq!(
            condition(health, Tries::default()),
            Condition::Resting { until: at(-480) }
        );
    }
}
