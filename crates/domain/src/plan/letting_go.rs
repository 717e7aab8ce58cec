//! Who stays, who goes: advice that workers ask for between two tasks.
//!
//! Nobody is told to go for convenience while it works, while anything is missing, or if that would make
//! something be missed; so no plan launches and lets healthy capacity go, and none takes back what the one
//! before it decided on the same facts.

use super::need::{self, Load, exact};
use super::notes::{Notes, units};
use super::{Candidate, Snapshot};
use crate::id::WorkerKey;
use crate::time::{DAY_MS, Timestamp};
use crate::worker::Advice;

pub const REASON_NEEDED: &str = "needed";
pub const REASON_OVER_CAPACITY: &str = "over capacity";
pub const REASON_ARCHIVED: &str = "launch config archived";
pub const REASON_LEFT: &str = "provider left by the pool";
pub const REASON_QUARANTINED: &str = "quarantined for too long";

/// A quarantined worker is kept so long for somebody to look at.
pub const MAX_QUARANTINE_MS: i64 = DAY_MS;

/// Who counts as supply after this plan, and what follows from that.
pub(super) struct Standing<'a> {
    /// What there is to do, and what there is to do it with.
    pub(super) load: Load,
    pub(super) change: f64,
    pub(super) target: f64,
    fates: Vec<Fate<'a>>,
}

struct Fate<'a> {
    candidate: &'a Candidate,
    /// Why it goes, if it does.
    goes: Option<&'static str>,
    /// It may go for being too many: it is healthy, idle, and has been for long enough.
    leavable: bool,
    /// It does not ask whether to go, so nothing is decided about it: it stays told what it was told.
    undecided: bool,
}

pub(super) fn settle(snapshot: &Snapshot) -> Standing<'_> {
    let capacity = &snapshot.capacity;
    let mut supply = capacity.running;
    let mut claimed = snapshot.demand.claimed;
    let mut fates = Vec::with_capacity(snapshot.workers.len());
    for candidate in &snapshot.workers {
        let fate = Fate::of(candidate, snapshot.now);
        let was_supply = candidate.is_supply();
        let is_supply = fate.goes.is_none() && candidate.is_healthy();
        let units = u64::from(candidate.capacity);
        match (was_supply, is_supply) {
            (true, false) => supply = supply.saturating_sub(units),
            (false, true) => supply = supply.saturating_add(units),
            (true, true) | (false, false) => {}
        }
        if !is_supply {
            claimed = claimed.saturating_sub(candidate.claimed);
        }
        fates.push(fate);
    }
    let target = need::target(snapshot);
    let mut standing = Standing {
        load: Load {
            pending: exact(snapshot.demand.pending),
            claimed: exact(claimed),
            running: exact(supply),
            fresh: exact(capacity.fresh),
            coming: exact(capacity.coming()),
        },
        change: 0.0,
        target,
        fates,
    };
    standing.balance(snapshot);
    standing.change = standing.load.change(&snapshot.settings);
    standing
}

impl<'a> Fate<'a> {
    fn of(candidate: &'a Candidate, now: Timestamp) -> Self {
        let goes = candidate.cause(now);
        let leavable = goes.is_none()
            && candidate.is_healthy()
            && !candidate.is_busy()
            && now.millis_since(candidate.idle_since) >= candidate.idle_hold_ms;
        let undecided = goes.is_none() && candidate.is_mute();
        let told = candidate.is_told_to_go() && (leavable || undecided);
        Self {
            candidate,
            goes: goes.or(told.then_some(REASON_OVER_CAPACITY)),
            leavable,
            undecided,
        }
    }

    fn units(&self) -> f64 {
        f64::from(self.candidate.capacity)
    }
}

impl Candidate {
    fn is_told_to_go(&self) -> bool {
        self.advice.as_ref().is_some_and(|advice| advice.terminate)
    }

    pub fn is_busy(&self) -> bool {
        self.claimed > 0
    }

    /// It would take a task, if there were one.
    fn is_healthy(&self) -> bool {
        self.quarantined_since.is_none() && !self.silent
    }

    /// Silent, and nothing else is wrong with it.
    fn is_mute(&self) -> bool {
        self.silent && self.quarantined_since.is_none()
    }

    /// Is it among the pool's running capacity as the snapshot counts it?
    fn is_supply(&self) -> bool {
        !self.is_told_to_go() && self.is_healthy()
    }

    /// Why it must go even if its capacity is needed.
    fn cause(&self, now: Timestamp) -> Option<&'static str> {
        if self.archived {
            return Some(REASON_ARCHIVED);
        }
        if self.deprovisioned {
            return Some(REASON_LEFT);
        }
        let for_ms = now.millis_since(self.quarantined_since?);
        (!self.is_busy() && for_ms > MAX_QUARANTINE_MS).then_some(REASON_QUARANTINED)
    }
}

impl Standing<'_> {
    /// Takes back those that are needed after all, or lets the longest idle go.
    fn balance(&mut self, snapshot: &Snapshot) {
        let settings = &snapshot.settings;
        let keep = self.load.keep(settings, self.target);
        let mut order: Vec<usize> = (0..self.fates.len())
            .filter(|index| self.fates[*index].leavable)
            .collect();
        order.sort_by_key(|index| {
            let candidate = self.fates[*index].candidate;
            (candidate.idle_since, candidate.created, &candidate.key)
        });
        // Those told last have most likely not left yet.
        for index in order.iter().rev() {
            let missing =
                self.load.change(settings) > 0.0 || (keep.is_finite() && self.load.running < keep);
            if !missing {
                break;
            }
            let fate = &mut self.fates[*index];
            if fate.goes.take().is_some() {
                self.load.running += fate.units();
            }
        }
        if self.load.change(settings) > 0.0 {
            return;
        }
        for index in order {
            let fate = &mut self.fates[index];
            let left = self.load.running - fate.units();
            if fate.goes.is_some() || left < keep.max(0.0) {
                continue;
            }
            let without = Load {
                running: left,
                ..self.load
            };
            if without.change(settings) > 0.0 {
                break;
            }
            fate.goes = Some(REASON_OVER_CAPACITY);
            self.load = without;
        }
    }

    /// What is to be said to whom: only what differs from what was said last. Who was told nothing yet is
    /// needed without being told.
    pub(super) fn advice(&self, now: Timestamp, notes: &mut Notes) -> Vec<(WorkerKey, Advice)> {
        let mut said = Vec::new();
        for fate in self.fates.iter().filter(|fate| !fate.undecided) {
            let (terminate, reason) = match fate.goes {
                Some(reason) => (true, reason),
                None => (false, REASON_NEEDED),
            };
            let unchanged = match &fate.candidate.advice {
                Some(advice) => advice.terminate == terminate && advice.reason == reason,
                None => !terminate,
            };
            if unchanged {
                continue;
            }
            let advice = Advice {
                terminate,
                reason: reason.to_owned(),
                decided_at: now.as_millis(),
            };
            said.push((fate.candidate.key.clone(), advice));
        }
        self.note(&said, notes);
        said
    }

    fn note(&self, said: &[(WorkerKey, Advice)], notes: &mut Notes) {
        let reasons = [
            REASON_ARCHIVED,
            REASON_LEFT,
            REASON_QUARANTINED,
            REASON_OVER_CAPACITY,
        ];
        let count = |reason| {
            said.iter()
                .filter(|(_, said)| said.reason == reason)
                .count()
        };
        for reason in reasons {
            let n_told = count(reason);
            if n_told == 0 {
                continue;
            }
            let mut line = format!("told {n_told} to go: {reason}");
            if reason == REASON_OVER_CAPACITY {
                let (running, target) = (self.load.running, units(self.target));
                line.push_str(&format!(
                    ", longest idle first; {running} stay running, {target} wanted"
                ));
            }
            notes.add(line);
        }
        let n_needed = count(REASON_NEEDED);
        if n_needed > 0 {
            notes.add(format!("told {n_needed} to stay: needed after all"));
        }
    }
}
