//! The breaker of a strategy service: after failures in a row, it is asked rarely.

use domain::time::{MINUTE_MS, SECOND_MS, Timestamp};

/// This many failures in a row pause the service.
const FAILURES_TO_PAUSE: u32 = 3;
/// The first pause; each further failure doubles it.
const FIRST_PAUSE_MS: i64 = 10 * SECOND_MS;
const LONGEST_PAUSE_MS: i64 = 5 * MINUTE_MS;
/// A trial without a result after this time was given up.
const TRIAL_MS: i64 = MINUTE_MS;

#[derive(Default)]
pub(super) struct ServiceBreaker {
    /// Failures in a row, and the last of them.
    n_failed: u32,
    last_failure: String,
    paused_until: Option<Timestamp>,
    /// After a pause, one request tries whether the service works.
    trial_since: Option<Timestamp>,
}

/// Whether the service may be asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Ask,
    /// Not now, with the reason.
    Paused(String),
}

impl ServiceBreaker {
    pub(super) fn turn(&mut self, now: Timestamp) -> Turn {
        let Some(until) = self.paused_until else {
            return Turn::Ask;
        };
        let wait_ms = until.millis_since(now);
        // A later time is from before the clock was set back.
        if 0 < wait_ms && wait_ms <= LONGEST_PAUSE_MS {
            return Turn::Paused(format!(
                "it failed {} times in a row and is not asked before {until}; {}",
                self.n_failed, self.last_failure
            ));
        }
        let trial_ms = self.trial_since.map(|since| now.millis_since(since));
        if trial_ms.is_some_and(|ms| (0..TRIAL_MS).contains(&ms)) {
            return Turn::Paused(format!(
                "it failed {} times in a row, and one request tries whether it works again",
                self.n_failed
            ));
        }
        self.trial_since = Some(now);
        Turn::Ask
    }

    /// Returns whether the service is paused by this failure and was not before.
    pub(super) fn fail(&mut self, now: Timestamp, why: &str) -> bool {
        self.n_failed = self.n_failed.saturating_add(1);
        why.clone_into(&mut self.last_failure);
        let was_paused = self.paused_until.is_some();
        let is_trial = self.trial_since.take().is_some();
        if self.n_failed < FAILURES_TO_PAUSE {
            return false;
        }
        // Requests that were sent before the pause fail during it; these do not prolong it.
        if !was_paused || is_trial {
            let doublings = self.n_failed - FAILURES_TO_PAUSE;
            let pause_ms = FIRST_PAUSE_MS << doublings.min(10);
            let until = now.plus_millis(pause_ms.min(LONGEST_PAUSE_MS));
            self.paused_until = Some(until);
        } else {
            self.n_failed -= 1;
        }
        !was_paused
    }

    /// Returns whether the service was paused.
    pub(super) fn succeed(&mut self) -> bool {
        let was_paused = self.paused_until.is_some();
        *self = Self::default();
        was_paused
    }
}

#[cfg(test)]
mod tests {
    use domain::time::DAY_MS;
    use testing::sizes_around;

    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(1_790_000_000_000 + ms)
    }

    fn asks(breaker: &mut ServiceBreaker, ms: i64) -> bool {
        breaker.turn(at(ms)) == Turn::Ask
    }

    #[test]
    fn a_service_is_paused_after_three_failures_in_a_row_and_then_tried_once() {
        let mut breaker = ServiceBreaker::default();
        for (n, pauses) in [(0, false), (1, false), (2, true)] {
            assert!(asks(&mut breaker, n));
            assert_eq!(breaker.fail(at(n), "late"), pauses);
        }
        let why =
            "it failed 3 times in a row and is not asked before 2026-09-21T14:13:30.002Z; late";
        assert_eq!(breaker.turn(at(3)), Turn::Paused(why.to_owned()));
        assert!(!asks(&mut breaker, 10_001));
        assert!(asks(&mut breaker, 10_002));
        let why = "it failed 3 times in a row, and one request tries whether it works again";
        assert_eq!(breaker.turn(at(10_003)), Turn::Paused(why.to_owned()));
        assert!(!breaker.fail(at(11_000), "late"), "it was known");
        assert!(!asks(&mut breaker, 30_999));
        assert!(asks(&mut breaker, 31_000));
        assert!(breaker.succeed());
        assert!(asks(&mut breaker, 31_001) && asks(&mut breaker, 31_001));
    }

    #[test]
    fn a_service_is_paused_by_the_third_failure_in_a_row_and_not_before() {
        let bound = FAILURES_TO_PAUSE as usize;
        for count in sizes_around(
            "engine::strategy_services::breaker::FAILURES_TO_PAUSE",
            bound,
        ) {
            let mut breaker = ServiceBreaker::default();
            for _ in 0..count {
                breaker.fail(at(0), "late");
            }
            assert_eq!(asks(&mut breaker, 1), count < bound, "{count}");
        }
    }

    #[test]
    fn failures_between_successes_pause_nothing() {
        let mut breaker = ServiceBreaker::default();
        for n in 0..100 {
            assert!(!breaker.fail(at(n), "late") && !breaker.fail(at(n), "late"));
            assert!(!breaker.succeed());
        }
        assert!(asks(&mut breaker, 101));
    }

    #[test]
    fn requests_that_fail_during_a_pause_do_not_prolong_it() {
        let mut breaker = ServiceBreaker::default();
        for _ in 0..16 {
            breaker.fail(at(0), "late");
        }
        assert!(asks(&mut breaker, 10_000));
    }

    #[test]
    fn a_service_that_is_down_for_a_day_is_asked_less_than_300_times() {
        let mut breaker = ServiceBreaker::default();
        let mut n_asked = 0;
        // As often as ten pools with a decision each second would.
        for ms in (0..DAY_MS).step_by(100) {
            if asks(&mut breaker, ms) {
                n_asked += 1;
                breaker.fail(at(ms), "Connection refused");
            }
        }
        assert_eq!(n_asked, 294);
    }

    #[test]
    fn a_trial_that_was_given_up_and_a_clock_that_was_set_back_block_nothing() {
        let mut breaker = ServiceBreaker::default();
        for _ in 0..3 {
            breaker.fail(at(DAY_MS), "late");
        }
        assert!(asks(&mut breaker, 0), "the clock was set back");
        assert!(!asks(&mut breaker, 1));
        assert!(!asks(&mut breaker, TRIAL_MS - 1));
        assert!(asks(&mut breaker, TRIAL_MS), "the trial was given up");
    }
}
