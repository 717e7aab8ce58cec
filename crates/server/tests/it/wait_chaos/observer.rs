//! The observer: it knows what happened in the simulated world, second by second, and computes from
//! that alone for which cause each task waited.

use std::collections::BTreeMap;

/// A decision that takes longer is late.
const LATE_S: i64 = 30;
/// A longer time without a server is a gap.
const LONGEST_UNOBSERVED_S: i64 = 120;
/// The times of servers are noted in this interval at most.
const NOTED_EVERY_S: i64 = 15;

/// The times of a machine, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct MachineLife {
    pub(super) asked: i64,
    pub(super) made: i64,
    pub(super) registered: i64,
    pub(super) first_claim: i64,
}

/// The state of the world when the planner looked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) pending: u64,
    pub(super) idle: u64,
    pub(super) booting: u64,
    /// All machines that exist.
    pub(super) existing: u64,
    pub(super) max: u64,
    pub(super) is_paused: bool,
    /// Whether a budget is spent.
    pub(super) is_spent: bool,
    /// Whether the cloud was asked for machines now, and for how many.
    pub(super) asked: u64,
    /// Why the cloud refused the last time; `None`: it has made machines since.
    pub(super) refusal: Option<&'static str>,
}

#[derive(Default)]
pub(super) struct Observer {
    /// From this second on, the pool has this cause.
    causes: Vec<(i64, &'static str)>,
    gaps: Vec<(i64, i64)>,
    noted: Option<i64>,
    /// The waits that ended: each is judged when all gaps are known.
    waits: Vec<(i64, i64, Option<MachineLife>)>,
    /// Seconds by cause.
    pub(super) sums: BTreeMap<&'static str, i64>,
    /// Seconds of all waits, by the tasks' own times.
    pub(super) total: i64,
}

impl Look {
    /// The maximum that the budget leaves.
    fn allowed(&self) -> u64 {
        match self.is_spent {
            true => (self.max / 2).max(1),
            false => self.max,
        }
    }

    /// Why the pool lacks workers, or else what its first task waits for.
    fn cause(&self) -> &'static str {
        let supply = self.idle + self.booting + self.asked;
        let taken = self.existing + self.asked;
        let is_full = taken >= self.allowed();
        let is_wanted = self.pending > self.booting + self.asked;
        if self.pending > supply && is_full {
            return if taken >= self.max {
                "maximum"
            } else {
                "budget"
            };
        }
        if is_wanted && !is_full {
            if self.is_paused {
                return "paused";
            }
            if self.is_spent {
                return "budget";
            }
            if let Some(cause) = self.refusal {
                return cause;
            }
        }
        match (self.idle, self.booting, self.asked, self.pending) {
            (1.., ..) => "claim",
            (0, 1.., ..) => "booting",
            (0, 0, 1.., _) => "asked",
            (0, 0, 0, 1..) => "busy",
            (0, 0, 0, 0) if self.existing > 0 => "claim",
            (0, 0, 0, 0) => "deciding",
        }
    }
}

impl Observer {
    /// The planner looked at the pool.
    pub(super) fn looked(&mut self, now: i64, look: &Look) -> &'static str {
        let cause = look.cause();
        self.causes.push((now, cause));
        cause
    }

    /// A server noted that it works.
    pub(super) fn noted(&mut self, now: i64) {
        match self.noted {
            Some(last) if now - last < NOTED_EVERY_S => return,
            Some(last) if now - last > LONGEST_UNOBSERVED_S => self.gaps.push((last, now)),
            Some(_) | None => {}
        }
        self.noted = Some(now);
    }

    /// A wait of a run ended.
    pub(super) fn ended(&mut self, since: i64, until: i64, machine: Option<MachineLife>) {
        self.total += until - since;
        self.waits.push((since, until, machine));
    }

    /// Judges all waits.
    pub(super) fn judge(&mut self) {
        for (since, until, machine) in std::mem::take(&mut self.waits) {
            self.judge_one(since, until, machine);
        }
    }

    fn judge_one(&mut self, since: i64, until: i64, machine: Option<MachineLife>) {
        let machine = machine.filter(|machine| machine.registered > since);
        let mut stretch = (usize::MAX, since);
        for second in since..until {
            let cause = match machine {
                // It works on tasks before this one.
                Some(own) if second >= own.first_claim => {
                    if second == own.first_claim {
                        stretch.0 = usize::MAX;
                    }
                    self.by_pool(second, false, &mut stretch)
                }
                Some(own) if second >= own.registered => "claim",
                Some(own) if second >= own.made => "booting",
                Some(own) if second >= own.asked => "asked",
                Some(_) | None => self.by_pool(second, machine.is_some(), &mut stretch),
            };
            *self.sums.entry(cause).or_default() += 1;
        }
    }

    pub(super) fn depended(&mut self, since: i64, until: i64) {
        self.total += until - since;
        *self.sums.entry("dependencies").or_default() += until - since;
    }

    /// The cause in the pool. `stretch`: the number of the decision that holds, and since when the
    /// task waits under it.
    fn by_pool(
        &self,
        second: i64,
        is_launched_for: bool,
        stretch: &mut (usize, i64),
    ) -> &'static str {
        if self
            .gaps
            .iter()
            .any(|(from, to)| (*from..*to).contains(&second))
        {
            stretch.0 = usize::MAX;
            return "planner-late";
        }
        let holds = self.causes.partition_point(|(from, _)| *from <= second);
        let last = self.causes[holds - 1].1;
        // Decisions that change nothing are one.
        let equal = self.causes[..holds].iter().rev();
        let first = holds - equal.take_while(|(_, cause)| *cause == last).count();
        if stretch.0 != first {
            *stretch = (first, second);
        }
        match last {
            "claim" if is_launched_for => self.deciding(second, stretch.1),
            "deciding" => self.deciding(second, stretch.1),
            cause => cause,
        }
    }

    fn deciding(&self, second: i64, since: i64) -> &'static str {
        match second - since >= LATE_S {
            true => "planner-late",
            false => "deciding",
        }
    }
}
