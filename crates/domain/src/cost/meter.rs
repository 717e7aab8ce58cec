//! The meter of a machine: splits its time by use and by hour.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::{Amount, CostKind, Uses};
use crate::id::WorkerKey;
use crate::task::EndReason;
use crate::time::{HOUR_MS, MINUTE_MS, Timestamp};

/// How often a machine that runs is charged.
pub const CHARGED_EVERY_MS: i64 = 5 * MINUTE_MS;

/// The cost of one machine that is not settled yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meter {
    /// In millionths per hour, as agreed at the launch; `None`: not known.
    pub price: Option<i64>,
    pub started: Timestamp,
    /// Up to here its cost is in the accounts.
    pub charged: Timestamp,
    pub ended: Option<Timestamp>,
}

/// A run that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeteredRun {
    pub started: Timestamp,
    pub resolved: Timestamp,
    pub reason: EndReason,
}

/// The facts about a machine that decide about its use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// When its worker first asked for work.
    pub first_claim: Option<Timestamp>,
    /// When it was asked to stop, or began to stop.
    pub leaving: Option<Timestamp>,
    pub runs: Vec<MeteredRun>,
    /// Runs that cover a moment before this one are not all in `runs`.
    pub runs_since: Option<Timestamp>,
    /// Runs that cover this moment or a later one are not all in `runs`.
    pub runs_until: Option<Timestamp>,
    /// When the oldest of the runs that go on began.
    pub running_since: Option<Timestamp>,
    /// A run has ended that `runs` does not contain yet.
    pub lacks_runs: bool,
}

/// An addition to the accounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    /// By the hour in which the time was.
    pub hours: BTreeMap<Timestamp, Uses>,
    /// The meter afterwards.
    pub charged: Timestamp,
    /// The machine has ended, and all its time is charged.
    pub is_settled: bool,
    /// `runs` had not all runs, so more can be charged at once.
    pub has_more: bool,
    /// The use of the time that is not charged yet, as far as is known.
    pub kind: CostKind,
}

/// When a machine that runs is charged next. Each machine has a phase of its own, so that machines
/// that were made together are not charged together.
pub fn next_charge(key: &WorkerKey, now: Timestamp) -> Timestamp {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    let phase = i64::try_from(hasher.finish() % CHARGED_EVERY_MS.unsigned_abs()).unwrap_or(0);
    let since = (now.as_millis() - phase).rem_euclid(CHARGED_EVERY_MS);
    now.plus_millis(CHARGED_EVERY_MS - since)
}

/// The cost of a machine from one moment to another, in millionths.
///
/// The cost since its start is rounded down at both moments. So costs of adjacent times add up to
/// the cost of all of it, to the unit.
pub fn cost_between(meter: &Meter, since: Timestamp, until: Timestamp) -> i64 {
    let price = i128::from(meter.price.unwrap_or(0));
    let up_to = |at: Timestamp| {
        let ms = i128::from(at.millis_since(meter.started).max(0));
        (price * ms).div_euclid(i128::from(HOUR_MS))
    };
    i64::try_from(up_to(until) - up_to(since)).unwrap_or(i64::MAX)
}

impl MeteredRun {
    /// The use of the time of the run.
    fn kind(&self) -> CostKind {
        match self.reason {
            EndReason::Completed | EndReason::Failed => CostKind::Useful,
            EndReason::ClaimExpired | EndReason::WorkerShutdown => CostKind::Lost,
            EndReason::DeadlineExceeded
            | EndReason::Canceled
            | EndReason::MalformedPayload
            | EndReason::ResourceUnavailable
            | EndReason::InternalError
            | EndReason::IntermittentTask
            | EndReason::Superseded => CostKind::Failed,
        }
    }

    fn covers(&self, at: Timestamp) -> bool {
        self.started <= at && at < self.resolved
    }
}

impl Life {
    /// The use of the machine at a moment of its life that is certain.
    fn kind_at(&self, at: Timestamp) -> CostKind {
        let running = self.runs.iter().filter(|run| run.covers(at));
        if let Some(kind) = running.map(MeteredRun::kind).min_by_key(|kind| rank(*kind)) {
            return kind;
        }
        match (self.first_claim, self.leaving) {
            (None, _) => CostKind::Failed,
            (Some(first), _) if at < first => CostKind::Booting,
            (Some(_), Some(leaving)) if leaving <= at => CostKind::Leaving,
            (Some(_), _) => CostKind::Idle,
        }
    }

    /// The use of the time that is not charged yet, while the machine runs.
    fn kind_now(&self) -> CostKind {
        match (self.first_claim, self.running_since, self.leaving) {
            (_, Some(_), _) => CostKind::Useful,
            (None, None, _) => CostKind::Booting,
            (Some(_), None, Some(_)) => CostKind::Leaving,
            (Some(_), None, None) => CostKind::Idle,
        }
    }

    /// The moments at which the use may change.
    fn turns(&self) -> impl Iterator<Item = Timestamp> {
        let runs = self.runs.iter().flat_map(|run| [run.started, run.resolved]);
        runs.chain(self.first_claim).chain(self.leaving)
    }
}

/// Of several runs at a moment, the most useful one decides.
fn rank(kind: CostKind) -> u8 {
    match kind {
        CostKind::Useful => 0,
        CostKind::Lost => 1,
        CostKind::Failed
        | CostKind::Booting
        | CostKind::Idle
        | CostKind::Leaving
        | CostKind::Unknown => 2,
    }
}

impl Meter {
    /// Charges the time whose use is certain. All that happened by `known` is in `life`.
    pub fn charge(&self, life: &Life, known: Timestamp) -> Charge {
        if let Some(ended) = self.ended.filter(|ended| *ended < self.charged.min(known))
            && !life.lacks_runs
        {
            return self.take_back(life, ended);
        }
        let certain = self.certain_until(life, known);
        let until = life.runs_until.map_or(certain, |until| until.min(certain));
        let until = until.max(self.charged);
        Charge {
            hours: self.split(life, until),
            charged: until,
            is_settled: self.ended.is_some_and(|ended| ended <= until) && !life.lacks_runs,
            has_more: self.charged < until && until < certain,
            kind: match self.ended {
                Some(_) => CostKind::Unknown,
                None => life.kind_now(),
            },
        }
    }

    /// The machine had ended before the moment up to which it was charged.
    fn take_back(&self, life: &Life, ended: Timestamp) -> Charge {
        let since = life.runs_since.map_or(ended, |since| since.max(ended));
        let since = since.min(self.charged);
        let after_end = Self {
            charged: since,
            ..*self
        };
        let mut hours: BTreeMap<Timestamp, Uses> = BTreeMap::new();
        for (hour, uses) in after_end.split(life, self.charged) {
            let negative = hours.entry(hour).or_default();
            for (kind, amount) in uses.iter() {
                negative.add(
                    kind,
                    Amount {
                        ms: -amount.ms,
                        micros: -amount.micros,
                    },
                );
            }
        }
        Charge {
            hours,
            charged: since,
            is_settled: since == ended,
            has_more: ended < since && since < self.charged,
            kind: CostKind::Unknown,
        }
    }

    fn certain_until(&self, life: &Life, known: Timestamp) -> Timestamp {
        if life.lacks_runs {
            return self.charged;
        }
        let ended = self.ended.filter(|ended| *ended <= known);
        let until = match (ended, life.first_claim) {
            (Some(ended), _) => ended,
            (None, Some(_)) => known,
            // It may never ask for work.
            (None, None) => self.charged,
        };
        life.running_since.map_or(until, |since| until.min(since))
    }

    fn split(&self, life: &Life, until: Timestamp) -> BTreeMap<Timestamp, Uses> {
        let mut hours: BTreeMap<Timestamp, Uses> = BTreeMap::new();
        let inner = life.turns().filter(|at| self.charged < *at && *at < until);
        let turns: BTreeSet<Timestamp> = inner.chain([until]).collect();
        let mut since = self.charged;
        for turn in turns {
            let kind = life.kind_at(since);
            while since < turn {
                let hour = since.start_of(HOUR_MS);
                let end = turn.min(hour.plus_millis(HOUR_MS));
                let amount = Amount {
                    ms: end.millis_since(since),
                    micros: cost_between(self, since, end),
                };
                hours.entry(hour).or_default().add(kind, amount);
                since = end;
            }
        }
        hours
    }
}

#[cfg(test)]
mod tests;
