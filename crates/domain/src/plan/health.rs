//! The health of a launch config, from its recent launches (RFC 191).
//!
//! Only its own launches count, never those of others. After a refusal it is paused and then tried
//! with one machine. A launch config of which nothing works is ill, and is treated the same until
//! one of its machines registers.

use super::need::exact;
use super::pause::AFTER_MACHINES;
use super::{Health, Offer, Tries};
use crate::market::Trouble;
use crate::time::{MINUTE_MS, SECOND_MS, Timestamp};

/// A machine that has not registered for this long is no longer expected to register.
pub const START_UP_MS: i64 = 30 * MINUTE_MS;
/// The machines of a launch whose answer was lost are no longer expected after this time, in which
/// a scan of a cloud in order finds them. Otherwise a cloud that fails would keep work from others.
pub const LOST_ANSWER_MS: i64 = 30 * SECOND_MS;
/// A registered worker that has not asked for work for this long is no longer expected to ask.
pub const FIRST_CLAIM_MS: i64 = 15 * MINUTE_MS;

/// The share that is left at least when one worker reports errors.
const LEAST_SHARE_OF_ONE: f64 = 0.5;
/// The share that is left at least when several workers report errors. Their reports never close a
/// launch config.
const LEAST_SHARE_OF_SEVERAL: f64 = 0.05;

/// Whether and how a launch config can be used now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Condition {
    /// Use it, with its weight times this share (above 0, at most 1).
    Usable(f64),
    /// Try it with one machine.
    Due,
    /// Refused or ill, and paused until this time.
    Resting { until: Timestamp },
    /// Ill, and tried with a machine that has not registered or failed yet.
    Awaited,
    /// Its breaker is open until this time.
    ShutOff { trouble: Trouble, until: Timestamp },
    /// It is being tried after its breaker was open; the next trial is due at this time.
    OnTrial { until: Timestamp },
}

impl Health {
    pub(super) fn failures(&self) -> u64 {
        self.failed.saturating_add(self.useless())
    }

    /// Machines that were made but did no work.
    fn useless(&self) -> u64 {
        let late = self.never_registered.saturating_add(self.overdue);
        late.saturating_add(self.silent)
    }

    /// Whether machines failed after they were made. Such a failure takes time to appear.
    pub(super) fn fails_late(&self) -> bool {
        self.useless() > 0 || self.created > self.registered
    }

    pub(super) fn condition(&self, tries: &Tries, now: Timestamp) -> Condition {
        let share = self.share();
        let is_ill = share <= 0.0;
        let too_late = |since: Timestamp| now.millis_since(since) >= START_UP_MS;
        if is_ill && self.is_unsettled(tries) && !tries.last.is_some_and(too_late) {
            return Condition::Awaited;
        }
        let refused = tries
            .refusals
            .map(|refusals| refusals.pause_ends(tries.last));
        let ill = self.last_failure.max(tries.last).filter(|_| is_ill);
        let ill = ill.filter(|_| refused.is_none() || self.useless() > 0);
        let ill = ill.map(|last| {
            let pause = AFTER_MACHINES.length_ms(tries.plans_without_workers);
            last.plus_millis(pause)
        });
        match refused.max(ill) {
            Some(until) if until > now => Condition::Resting { until },
            None if !is_ill => Condition::Usable(share),
            Some(_) | None => Condition::Due,
        }
    }

    /// For a strategy without memory of failures: only a launch config whose provider refuses is
    /// paused.
    pub(super) fn condition_without_memory(&self, tries: &Tries, now: Timestamp) -> Condition {
        let refusals = tries
            .refusals
            .map(|refusals| refusals.pause_ends(tries.last));
        match refusals {
            Some(until) if until > now => Condition::Resting { until },
            Some(_) | None => Condition::Usable(1.0),
        }
    }

    /// RFC 191: the share of attempts that did not fail; a quota counts as a failure here. While
    /// none of its machines has registered, it has no share as soon as anything of its own failed.
    pub(super) fn share(&self) -> f64 {
        let failures = self.failures();
        if self.registered == 0 && failures > 0 {
            return 0.0;
        }
        let lost = failures.saturating_add(self.short);
        let lost = lost.saturating_add(self.quota);
        let attempts = self.attempted.saturating_add(self.quota).max(lost).max(1);
        exact(attempts - lost) / exact(attempts) * self.share_without_errors()
    }

    /// The share of the machines whose workers reported no errors, bounded.
    fn share_without_errors(&self) -> f64 {
        let machines = self.machines.max(self.registered).max(self.reporters);
        let share = |least: f64| {
            let good = exact(machines - self.reporters) / exact(machines);
            good.max(least)
        };
        match self.reporters {
            0 => 1.0,
            1 => share(LEAST_SHARE_OF_ONE),
            _ => share(LEAST_SHARE_OF_SEVERAL),
        }
    }

    /// The workers that reported errors, if there are any, for people.
    pub(super) fn reports_text(&self) -> Option<String> {
        match self.reporters {
            0 => None,
            1 => Some("1 worker reported errors in the last hour".to_owned()),
            several => Some(format!(
                "{several} workers reported errors in the last hour"
            )),
        }
    }

    /// The pause after one more failure; `None`: nothing failed lately.
    pub(super) fn next_pause_ms(&self, tries: &Tries) -> Option<i64> {
        let refused = tries.refusals.map(|refusals| refusals.next_pause_ms());
        let ill = self.share() <= 0.0 && self.useless() > 0;
        let ill =
            ill.then(|| AFTER_MACHINES.length_ms(tries.plans_without_workers.saturating_add(1)));
        refused.max(ill)
    }

    /// Whether there is a machine, or a launch without an answer, whose result is not known yet.
    /// For a launch without an answer, the time of the newest launch is the better measure.
    fn is_unsettled(&self, tries: &Tries) -> bool {
        let answered = self
            .failed
            .saturating_add(self.created)
            .saturating_add(self.short);
        let known = self.registered.saturating_add(self.never_registered);
        self.created > known.saturating_add(self.overdue)
            || self.attempted > answered && tries.last.is_none()
    }

    /// The failures, if there are any, for people.
    fn failures_text(&self) -> Option<String> {
        let failures = self.failures().saturating_add(self.quota);
        if failures > 0 {
            let attempts = self.attempted.saturating_add(self.quota).max(failures);
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

impl Offer {
    /// The failures, if there are any, for people.
    pub(super) fn failures_text(&self) -> Option<String> {
        let refused = self.tries.refusals.map(|refusals| {
            let (times, cause) = (refusals.in_a_row.max(1), refusals.cause);
            let times = if times == 1 {
                "last launch was refused".to_owned()
            } else {
                format!("last {times} launches were refused")
            };
            format!("{times} ({cause})")
        });
        let parts: Vec<String> = self
            .health
            .failures_text()
            .into_iter()
            .chain(refused)
            .chain(self.health.reports_text())
            .collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::Cause;
    use crate::plan::Refusals;
    use crate::time::SECOND_MS;

    const NOW: i64 = 100_000_000;

    fn at(seconds_ago: i64) -> Timestamp {
        Timestamp::from_millis(NOW - seconds_ago * SECOND_MS)
    }

    /// All others registered.
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

    fn refused(cause: Cause, in_a_row: u64, seconds_ago: i64) -> Tries {
        Tries {
            refusals: Some(Refusals {
                in_a_row,
                cause,
                last: at(seconds_ago),
            }),
            last: Some(at(seconds_ago)),
            ..Tries::default()
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
            never_registered: 1,
            overdue: 1,
            created: 4,
            registered: 2,
            ..failed(1, 5)
        };
        assert_eq!(condition(late, none), Condition::Usable(0.4));
    }

    #[test]
    fn workers_that_never_take_a_task_lower_the_share() {
        let silent = |silent| Health {
            silent,
            ..failed(0, 4)
        };
        let none = Tries::default();
        assert_eq!(condition(silent(0), none), Condition::Usable(1.0));
        assert_eq!(condition(silent(1), none), Condition::Usable(0.75));
        let resting = Condition::Resting { until: at(-30) };
        assert_eq!(condition(silent(4), none), resting);
        let long_ago = Health {
            last_failure: Some(at(60)),
            ..silent(4)
        };
        assert_eq!(condition(long_ago, none), Condition::Due);
    }

    #[test]
    fn errors_that_workers_report_lower_the_share_and_close_nothing() {
        let share = |reporters, machines| {
            let health = Health {
                reporters,
                machines,
                ..failed(0, 4)
            };
            let condition = condition(health, Tries::default());
            let Condition::Usable(share) = condition else {
                panic!("{reporters} of {machines}: {condition:?}");
            };
            share
        };
        assert_eq!(share(0, 0), 1.0);
        assert_eq!(share(1, 100), 0.99);
        assert_eq!(share(1, 1), 0.75);
        assert_eq!(share(3, 4), 0.25);
        assert_eq!([share(4, 4), share(9, 4), share(u64::MAX, 0)], [0.05; 3]);
        let one_of_one = Health {
            reporters: 1,
            ..failed(0, 1)
        };
        assert_eq!(
            condition(one_of_one, Tries::default()),
            Condition::Usable(0.5)
        );
        let with_failures = Health {
            reporters: 1,
            ..failed(2, 4)
        };
        assert_eq!(
            condition(with_failures, Tries::default()),
            Condition::Usable(0.25)
        );
    }

    #[test]
    fn a_refusal_after_any_number_of_successes_pauses_and_is_tried_with_one_machine() {
        for cause in Cause::ALL {
            let lasts = matches!(cause, Cause::Configuration | Cause::Lost);
            let first = if lasts { 60 } else { 10 };
            let n_failed = u64::from(cause.is_ill_health());
            let health = failed(n_failed, 1_000);
            let resting = Condition::Resting { until: at(-1) };
            let condition = |ago| condition(health, refused(cause, 1, ago));
            assert_eq!(condition(first - 1), resting, "{cause}");
            assert_eq!(condition(first), Condition::Due, "{cause}");
        }
    }

    #[test]
    fn what_was_not_made_of_a_launch_lowers_the_share_and_makes_nothing_ill() {
        let partial = Health {
            attempted: 50,
            short: 47,
            created: 3,
            ..Health::default()
        };
        assert_eq!(
            condition(partial, Tries::default()),
            Condition::Usable(0.06)
        );
        let resting = Condition::Resting { until: at(-4) };
        assert_eq!(condition(partial, refused(Cause::Capacity, 1, 6)), resting);
        let worked = Health {
            registered: 3,
            ..partial
        };
        assert_eq!(condition(worked, Tries::default()), Condition::Usable(0.06));
    }

    #[test]
    fn machines_that_never_showed_up_are_judged_by_the_three_cases() {
        let created = |failed, registered, overdue| Health {
            attempted: 3 + failed,
            created: 3,
            registered,
            failed,
            overdue,
            last_failure: (failed > 0).then(|| at(30)),
            ..Health::default()
        };
        let tried = |seconds_ago| Tries {
            last: Some(at(seconds_ago)),
            ..Tries::default()
        };
        let (young, old) = (tried(60), tried(1_800));
        assert_eq!(condition(created(0, 0, 0), young), Condition::Usable(1.0));
        let nothing = Tries::default();
        assert_eq!(condition(created(0, 0, 0), nothing), Condition::Usable(1.0));
        assert_eq!(condition(created(2, 0, 0), young), Condition::Awaited);
        assert_eq!(condition(created(2, 1, 0), young), Condition::Usable(0.6));
        assert_eq!(condition(created(0, 0, 3), old), Condition::Due);
        // Half of them registered: the others count from the time at which they should have.
        let half = Health {
            overdue: 2,
            ..failed(0, 4)
        };
        assert_eq!(condition(half, old), Condition::Usable(0.5));
    }

    #[test]
    fn the_pause_of_one_that_is_ill_doubles_with_each_plan_up_to_eight_minutes() {
        let pause = |plans_without_workers| {
            let tries = Tries {
                plans_without_workers,
                ..Tries::default()
            };
            let health = Health {
                never_registered: 10,
                created: 10,
                last_failure: Some(at(0)),
                ..Health::default()
            };
            let Condition::Resting { until } = condition(health, tries) else {
                panic!("it rests after {plans_without_workers} plans");
            };
            until.millis_since(at(0)) / SECOND_MS
        };
        assert_eq!(
            [0, 1, 2, 3, 4, 5, u64::MAX].map(pause),
            [60, 60, 120, 240, 480, 480, 480]
        );
    }

    #[test]
    fn one_that_is_ill_is_tried_when_its_pause_is_over() {
        let tries = |seconds_ago| refused(Cause::Configuration, 1, seconds_ago);
        let resting = Condition::Resting { until: at(-30) };
        assert_eq!(condition(failed(3, 3), tries(30)), resting);
        assert_eq!(condition(failed(3, 3), tries(60)), Condition::Due);
        // An attempt whose result is not known yet is an attempt.
        let asked_again = Tries {
            last: Some(at(10)),
            ..tries(60)
        };
        let resting = Condition::Resting { until: at(-50) };
        assert_eq!(condition(failed(3, 3), asked_again), resting);
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
            last: Some(at(seconds_ago)),
            ..refused(Cause::Lost, 1, 90)
        };
        let resting = Condition::Resting { until: at(-20) };
        assert_eq!(condition(asked, tried(40)), resting);
        assert_eq!(condition(asked, tried(60)), Condition::Due);
    }

    #[test]
    fn a_strategy_without_memory_still_leaves_alone_what_was_just_refused() {
        let condition = |ago| {
            let tries = refused(Cause::Throttled, 1, ago);
            failed(9, 9).condition_without_memory(&tries, at(0))
        };
        assert_eq!(condition(9), Condition::Resting { until: at(-1) });
        assert_eq!(condition(10), Condition::Usable(1.0));
    }

    #[test]
    fn nonsense_is_survived() {
        let health = Health {
            attempted: 0,
            failed: u64::MAX,
            quota: u64::MAX,
            short: u64::MAX,
            created: u64::MAX,
            registered: u64::MAX,
            never_registered: u64::MAX,
            overdue: u64::MAX,
            silent: u64::MAX,
            last_failure: Some(at(0)),
            reporters: u64::MAX,
            machines: u64::MAX,
        };
        let tries = Tries {
            plans_without_workers: u64::MAX,
            ..Tries::default()
        };
        assert_eq!(
            condition(health, tries),
            Condition::Resting { until: at(-480) }
        );
    }
}
