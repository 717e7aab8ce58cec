//! Which workers stay and which go: advice that workers ask for between two tasks.
//!
//! No worker is advised to go for convenience while it works, while capacity is missing, or if capacity would
//! be missing without it. So no plan launches machines and lets healthy ones go, and none takes back
//! what the plan before it decided on the same facts.

use super::need::{Load, exact, rounded};
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

/// One plan changes the advice of at most this many workers; the next plan goes on.
pub const MAX_ADVICE: usize = 1_000;

/// What a strategy decides from: the snapshot, the load on what counts as supply, and what becomes
/// of each worker.
pub(super) struct View<'a> {
    pub(super) snapshot: &'a Snapshot,
    /// Without workers that must go whatever the strategy is.
    pub(super) load: Load,
    /// The capacity that all tasks together deserve, within the pool's limits.
    pub(super) target: f64,
    fates: Vec<Fate<'a>>,
}

struct Fate<'a> {
    candidate: &'a Candidate,
    /// Why it goes, if it does.
    goes: Option<&'static str>,
    /// It may go for being too many: it is healthy, idle, and has been for long enough.
    leavable: bool,
    /// It does not ask whether to go, so nothing is decided about it, and its advice stays.
    undecided: bool,
}

impl<'a> View<'a> {
    pub(super) fn of(snapshot: &'a Snapshot) -> Self {
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
        Self {
            load: Load {
                pending: exact(snapshot.demand.pending),
                claimed: exact(claimed),
                running: exact(supply),
                fresh: exact(capacity.fresh),
                coming: exact(capacity.coming()),
            },
            target: target(snapshot),
            snapshot,
            fates,
        }
    }
}

fn target(snapshot: &Snapshot) -> f64 {
    let settings = &snapshot.settings;
    let target = settings
        .strategy
        .strategy()
        .target(settings, &snapshot.demand);
    let within = target
        .min(exact(settings.max_capacity))
        .max(exact(settings.least()));
    rounded(within)
}

impl Snapshot {
    /// Whether nothing is missing and no person should hear of anything. Looks at no offers.
    pub fn wants_nothing(&self) -> bool {
        let view = View::of(self);
        view.load.change(&self.settings) <= 0.0
            && !self.capacity.is_alarming(self.settings.max_capacity)
    }

    /// Whether some worker could be advised to go, or no longer to go. Looks at no workers.
    pub fn may_change_advice(&self) -> bool {
        let capacity = &self.capacity;
        capacity.draining > 0 || capacity.quarantined > 0 || exact(capacity.running) > target(self)
    }
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

    /// Its new advice, if that differs from the last: whether to go, and why.
    fn change(&self) -> Option<(&'a Candidate, bool, &'static str)> {
        if self.undecided {
            return None;
        }
        let terminate = self.goes.is_some();
        let reason = self.goes.unwrap_or(REASON_NEEDED);
        let is_same = match &self.candidate.advice {
            Some(advice) => advice.terminate == terminate && advice.reason == reason,
            None => !terminate,
        };
        (!is_same).then_some((self.candidate, terminate, reason))
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

impl View<'_> {
    /// Takes back advice to go from workers that are needed after all, or lets those go that have
    /// been idle longest, as long as nothing is missing without them and `keep` is left.
    pub(super) fn balance(&mut self, keep: f64, need: impl Fn(&Load) -> f64) {
        let mut order: Vec<usize> = (0..self.fates.len())
            .filter(|index| self.fates[*index].leavable)
            .collect();
        order.sort_unstable_by_key(|index| {
            let candidate = self.fates[*index].candidate;
            (candidate.idle_since, candidate.created, &candidate.key)
        });
        // Those that were advised last have most likely not left yet.
        for index in order.iter().rev() {
            let missing = need(&self.load) > 0.0 || (keep.is_finite() && self.load.running < keep);
            if !missing {
                break;
            }
            let fate = &mut self.fates[*index];
            if fate.goes.take().is_some() {
                self.load.running += fate.units();
            }
        }
        if need(&self.load) > 0.0 {
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
            if need(&without) > 0.0 {
                break;
            }
            fate.goes = Some(REASON_OVER_CAPACITY);
            self.load = without;
        }
    }

    /// The advice that changes, for at most [`MAX_ADVICE`] workers. A worker without advice is needed
    /// without being advised so.
    pub(super) fn advice(&self, notes: &mut Notes) -> Vec<(WorkerKey, Advice)> {
        let changes = self.fates.iter().filter_map(Fate::change);
        let mut changes: Vec<_> = changes.collect();
        let n_later = changes.len().saturating_sub(MAX_ADVICE);
        changes.truncate(MAX_ADVICE);
        self.note(&changes, n_later, notes);
        let advice = changes.into_iter().map(|(candidate, terminate, reason)| {
            let advice = Advice {
                terminate,
                reason: reason.to_owned(),
                decided_at: self.snapshot.now.as_millis(),
            };
            (candidate.key.clone(), advice)
        });
        advice.collect()
    }

    fn note(&self, changes: &[(&Candidate, bool, &str)], n_later: usize, notes: &mut Notes) {
        let reasons = [
            REASON_ARCHIVED,
            REASON_LEFT,
            REASON_QUARANTINED,
            REASON_OVER_CAPACITY,
        ];
        let count = |reason: &str| changes.iter().filter(|(_, _, why)| *why == reason).count();
        for reason in reasons {
            let n_advised = count(reason);
            if n_advised == 0 {
                continue;
            }
            let mut line = format!("advised {n_advised} to go: {reason}");
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
            notes.add(format!("advised {n_needed} to stay: needed after all"));
        }
        if n_later > 0 {
            notes.add(format!("the next plan advises {n_later} more"));
        }
    }
}
