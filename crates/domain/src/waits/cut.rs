//! Cuts the wait of a run into causes, by what was recorded when it happened.

use super::WaitCause;
use crate::time::{SECOND_MS, Timestamp};

/// A decision that takes longer than this is late: three rounds of the planner.
pub const LATE_MS: i64 = 30 * SECOND_MS;

/// A time in which no server planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannerGap {
    pub since: Timestamp,
    pub until: Timestamp,
}

/// From this moment on, tasks of a pool wait for this cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary {
    pub at: Timestamp,
    pub cause: WaitCause,
}

/// The times of the machine whose worker claimed a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineTimes {
    /// When its launch was decided; `None`: it has no launch, since it was declared by hand.
    pub decided: Option<Timestamp>,
    /// When the cloud was known to have it.
    pub made: Timestamp,
    pub registered: Timestamp,
    /// When its worker first asked for work; `None`: that is not known.
    pub first_claim: Option<Timestamp>,
}

/// One interval in which a run was pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunWait {
    pub since: Timestamp,
    /// When it was claimed, or ended without a claim; or now.
    pub until: Timestamp,
    /// The machine that claimed it. `None`: no worker has claimed it, or the machine is not known.
    pub machine: Option<MachineTimes>,
    /// When the pool of the queue was made; `None`: the queue has no pool.
    pub pool_made: Option<Timestamp>,
}

/// A part of a wait. The parts of a wait follow each other without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitPart {
    pub cause: WaitCause,
    pub since: Timestamp,
    pub until: Timestamp,
}

impl WaitPart {
    pub fn millis(&self) -> i64 {
        self.until.millis_since(self.since)
    }
}

/// The parts of a wait, the earliest first. `boundaries` and `gaps` are in the order of time.
///
/// From its launch until it first asks for work, the own machine of the run counts: asked, booting,
/// and waiting for a claim. Before that, and without such a machine, the timeline of the pool
/// counts, except in times without a planner. It also counts after that: then the machine works on
/// tasks that are before this one in line.
pub fn cut(wait: &RunWait, boundaries: &[Boundary], gaps: &[PlannerGap]) -> Vec<WaitPart> {
    let mut parts = Parts {
        parts: Vec::new(),
        at: wait.since,
        end: wait.until,
    };
    let own = wait.machine.filter(|it| it.registered > wait.since);
    let decided = own.map(|machine| machine.decided.unwrap_or(machine.made));
    let planned = decided.map_or(wait.until, |decided| decided.min(wait.until));
    by_timeline(&mut parts, wait, boundaries, gaps, planned, own.is_some());
    if let Some(machine) = own {
        parts.push(WaitCause::Asked, machine.made);
        parts.push(WaitCause::Booting, machine.registered);
        parts.push(WaitCause::Claim, machine.first_claim.unwrap_or(wait.until));
        by_timeline(&mut parts, wait, boundaries, gaps, wait.until, false);
    }
    parts.parts
}

/// The next part of the wait, in which the pool's timeline counts.
fn by_timeline(
    parts: &mut Parts,
    wait: &RunWait,
    boundaries: &[Boundary],
    gaps: &[PlannerGap],
    until: Timestamp,
    is_launched_for: bool,
) {
    let since = parts.at;
    let started = boundaries.partition_point(|boundary| boundary.at <= since);
    let first = started.checked_sub(1).map(|at| boundaries[at].cause);
    let mut cause = first.unwrap_or_else(|| before_all(wait, boundaries));
    let next = boundaries[started..].iter();
    let ends = next.map(|next| (next.at, Some(next.cause)));
    for (end, following) in ends.chain([(until, None)]) {
        let end = end.min(until);
        if cause == WaitCause::Claim && is_launched_for {
            // The pool had enough workers until this task came.
            cause = WaitCause::Deciding;
        }
        with_gaps(parts, cause, end, gaps);
        let Some(following) = following.filter(|_| end < until) else {
            return;
        };
        cause = following;
    }
}

/// The cause before the first boundary.
fn before_all(wait: &RunWait, boundaries: &[Boundary]) -> WaitCause {
    match (wait.pool_made, boundaries.first()) {
        (None, None) => WaitCause::UnknownQueue,
        (Some(made), _) if made > wait.since => WaitCause::UnknownQueue,
        // Nothing is planned for it, as for workers that people declare.
        (Some(_), None) => WaitCause::Claim,
        // The first decision about a new pool.
        (Some(made), Some(first)) if first.at.millis_since(made) <= LATE_MS => WaitCause::Deciding,
        (Some(_) | None, Some(_)) => WaitCause::Unrecorded,
    }
}

/// Adds a part; times without a planner are charged to the planner.
fn with_gaps(parts: &mut Parts, cause: WaitCause, until: Timestamp, gaps: &[PlannerGap]) {
    for gap in gaps {
        if gap.until <= parts.at || gap.since >= until {
            continue;
        }
        decision(parts, cause, gap.since.max(parts.at));
        parts.push(WaitCause::PlannerLate, gap.until.min(until));
    }
    decision(parts, cause, until);
}

/// Adds a part; a decision that takes too long is late.
fn decision(parts: &mut Parts, cause: WaitCause, until: Timestamp) {
    if cause == WaitCause::Deciding {
        let late = parts.at.plus_millis(LATE_MS);
        parts.push(cause, late.min(until));
        parts.push(WaitCause::PlannerLate, until);
    } else {
        parts.push(cause, until);
    }
}

struct Parts {
    parts: Vec<WaitPart>,
    at: Timestamp,
    end: Timestamp,
}

impl Parts {
    /// Charges the time up to this moment, if any is left.
    fn push(&mut self, cause: WaitCause, until: Timestamp) {
        let until = until.min(self.end);
        if until <= self.at {
            return;
        }
        match self.parts.last_mut() {
            Some(last) if last.cause == cause => last.until = until,
            Some(_) | None => self.parts.push(WaitPart {
                cause,
                since: self.at,
                until,
            }),
        }
        self.at = until;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    fn wait(since: i64, until: i64) -> RunWait {
        RunWait {
            since: at(since),
            until: at(until),
            machine: None,
            pool_made: Some(at(0)),
        }
    }

    fn boundaries(list: &[(i64, WaitCause)]) -> Vec<Boundary> {
        let boundary = |(seconds, cause): &(i64, WaitCause)| Boundary {
            at: at(*seconds),
            cause: *cause,
        };
        list.iter().map(boundary).collect()
    }

    /// Each cause with its seconds.
    fn seconds(parts: &[WaitPart]) -> Vec<(&'static str, i64)> {
        let parts = parts.iter();
        parts
            .map(|part| (part.cause.as_str(), part.millis() / 1_000))
            .collect()
    }

    #[test]
    fn a_wait_through_a_restart_a_pause_and_two_refusals_shows_all_of_them() {
        use WaitCause::{Claim, Deciding, Paused, Refused};
        let timeline = boundaries(&[
            (0, Deciding),
            (102, Refused),
            (130, Paused),
            (200, Refused),
            (400, Claim),
        ]);
        let gaps = [PlannerGap {
            since: at(250),
            until: at(310),
        }];
        let machine = MachineTimes {
            decided: Some(at(350)),
            made: at(355),
            registered: at(400),
            first_claim: Some(at(411)),
        };
        let run = RunWait {
            machine: Some(machine),
            ..wait(100, 411)
        };
        assert_eq!(
            seconds(&cut(&run, &timeline, &gaps)),
            [
                ("deciding", 2),
                ("refused", 28),
                ("paused", 70),
                ("refused", 50),
                ("planner-late", 60),
                ("refused", 40),
                ("asked", 5),
                ("booting", 45),
                ("claim", 11),
            ]
        );
    }

    #[test]
    fn a_run_that_an_older_worker_claims_waits_as_its_pool_does() {
        let timeline = boundaries(&[(0, WaitCause::Claim), (50, WaitCause::Busy)]);
        let machine = MachineTimes {
            decided: Some(at(1)),
            made: at(2),
            registered: at(3),
            first_claim: Some(at(4)),
        };
        let run = RunWait {
            machine: Some(machine),
            ..wait(40, 90)
        };
        let parts = cut(&run, &timeline, &[]);
        assert_eq!(seconds(&parts), [("claim", 10), ("busy", 40)]);
    }

    #[test]
    fn a_run_that_the_machine_claims_later_waits_as_its_pool_does_from_the_first_claim_on() {
        use WaitCause::{Asked, Booting, Busy, Deciding, Maximum};
        let timeline = boundaries(&[(0, Deciding), (12, Maximum), (80, Busy)]);
        let machine = MachineTimes {
            decided: Some(at(12)),
            made: at(15),
            registered: at(40),
            first_claim: Some(at(42)),
        };
        let run = RunWait {
            machine: Some(machine),
            ..wait(10, 100)
        };
        let gaps = [PlannerGap {
            since: at(50),
            until: at(60),
        }];
        assert_eq!(
            seconds(&cut(&run, &timeline, &gaps)),
            [
                ("deciding", 2),
                (Asked.as_str(), 3),
                (Booting.as_str(), 25),
                ("claim", 2),
                ("maximum", 8),
                ("planner-late", 10),
                ("maximum", 20),
                ("busy", 20),
            ]
        );
        // Its first run, and a machine whose first claim is not known.
        for first_claim in [Some(at(100)), None] {
            let run = RunWait {
                machine: Some(MachineTimes {
                    first_claim,
                    ..machine
                }),
                ..wait(10, 100)
            };
            let parts = cut(&run, &timeline, &gaps);
            assert_eq!(seconds(&parts)[3..], [("claim", 60)]);
        }
    }

    #[test]
    fn a_decision_that_takes_long_is_late() {
        let timeline = boundaries(&[(0, WaitCause::Deciding)]);
        let parts = cut(&wait(10, 100), &timeline, &[]);
        assert_eq!(seconds(&parts), [("deciding", 30), ("planner-late", 60)]);
    }

    #[test]
    fn a_queue_without_a_pool_is_unknown_until_the_pool_is_made() {
        let without = RunWait {
            pool_made: None,
            ..wait(10, 20)
        };
        assert_eq!(seconds(&cut(&without, &[], &[])), [("unknown-queue", 10)]);
        let later = RunWait {
            pool_made: Some(at(15)),
            ..wait(10, 20)
        };
        let timeline = boundaries(&[(15, WaitCause::Deciding), (16, WaitCause::Price)]);
        assert_eq!(
            seconds(&cut(&later, &timeline, &[])),
            [("unknown-queue", 5), ("deciding", 1), ("price", 4)]
        );
        // People declare its workers.
        assert_eq!(seconds(&cut(&wait(10, 20), &[], &[])), [("claim", 10)]);
    }

    #[test]
    fn a_wait_that_ends_before_it_begins_has_no_parts() {
        assert_eq!(cut(&wait(10, 10), &[], &[]), []);
        assert_eq!(cut(&wait(10, 3), &[], &[]), []);
    }

    fn machines() -> impl Strategy<Value = Option<MachineTimes>> {
        let claims = proptest::option::of(0_i64..100);
        let times = (0_i64..400, 0_i64..100, 0_i64..100, any::<bool>(), claims);
        proptest::option::of(
            times.prop_map(
                |(decided, asked, booted, is_launched, claims)| MachineTimes {
                    decided: is_launched.then(|| at(decided)),
                    made: at(decided + asked),
                    registered: at(decided + asked + booted),
                    first_claim: claims.map(|claims| at(decided + asked + booted + claims)),
                },
            ),
        )
    }

    proptest! {
        #[test]
        fn parts_follow_each_other_and_sum_to_the_wait(
            since in 0_i64..500,
            length in 0_i64..500,
            machine in machines(),
            pool_made in proptest::option::of(0_i64..500),
            list in proptest::collection::vec((0_i64..900, 0..WaitCause::ALL.len()), 0..12),
            gaps in proptest::collection::vec((0_i64..900, 1_i64..80), 0..4),
        ) {
            let run = RunWait {
                machine,
                pool_made: pool_made.map(at),
                ..wait(since, since + length)
            };
            let mut timeline: Vec<Boundary> = list
                .into_iter()
                .map(|(seconds, cause)| Boundary { at: at(seconds), cause: WaitCause::ALL[cause] })
                .collect();
            timeline.sort_by_key(|boundary| boundary.at);
            let mut gaps: Vec<PlannerGap> = gaps
                .into_iter()
                .map(|(since, length)| PlannerGap { since: at(since), until: at(since + length) })
                .collect();
            gaps.sort_by_key(|gap| gap.since);
            let parts = cut(&run, &timeline, &gaps);
            let mut end = run.since;
            for part in &parts {
                prop_assert_eq!(part.since, end);
                prop_assert!(part.until > part.since);
                end = part.until;
            }
            prop_assert_eq!(end, run.until);
        }
    }
}
