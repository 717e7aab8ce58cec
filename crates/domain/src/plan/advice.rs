//! Advice: which workers stay and which stop. Workers ask for it between two tasks.
//!
//! No worker is asked to stop as surplus while it works, while capacity is missing, or if capacity
//! would be missing without it. So no plan launches machines and stops healthy workers, and no plan
//! reverses the previous plan for the same facts.

use std::collections::{BTreeMap, BTreeSet};

use super::need::{Load, exact, rounded};
use super::notes::{Notes, units};
use super::{Candidate, ProposedStop, Snapshot};
use crate::id::WorkerKey;
use crate::time::{DAY_MS, Timestamp};
use crate::worker::Advice;

pub const REASON_NEEDED: &str = "needed";
pub const REASON_OVER_CAPACITY: &str = "over capacity";
/// Another pool has less than its fair share of a quota.
pub const REASON_OVER_SHARE: &str = "over the fair share";
/// The pool's strategy service lets it go.
pub const REASON_EXTERNAL: &str = "let go by the strategy service";
pub const REASON_ARCHIVED: &str = "launch config archived";
pub const REASON_LEFT: &str = "provider left by the pool";
pub const REASON_QUARANTINED: &str = "quarantined for too long";

/// A quarantined worker is kept this long for somebody to examine.
pub const MAX_QUARANTINE_MS: i64 = DAY_MS;

/// One plan changes the advice of at most this many workers; the next plan changes more.
pub const MAX_ADVICE: usize = 500;

/// The input of a strategy: the snapshot, the load on the supply, and the decision about each
/// worker.
pub(super) struct View<'a> {
    pub(super) snapshot: &'a Snapshot,
    /// Without workers that must stop with any strategy.
    pub(super) load: Load,
    /// The capacity that all tasks together need, within the pool's limits.
    pub(super) target: f64,
    decisions: Vec<WorkerDecision<'a>>,
    /// Further reasons, for people.
    remarks: Vec<String>,
}

struct WorkerDecision<'a> {
    candidate: &'a Candidate,
    /// Why it stops, if it does.
    stop_reason: Option<&'static str>,
    /// It may stop as surplus: it is healthy, and has been idle for long enough.
    can_stop: bool,
    /// It does not ask whether to stop, or a person has decided: its advice stays.
    undecided: bool,
}

impl<'a> View<'a> {
    pub(super) fn of(snapshot: &'a Snapshot) -> Self {
        let capacity = &snapshot.capacity;
        let mut supply = capacity.running;
        let mut claimed = snapshot.demand.claimed;
        let mut decisions = Vec::with_capacity(snapshot.workers.len());
        for candidate in &snapshot.workers {
            let decision = WorkerDecision::of(candidate, snapshot.now);
            let was_supply = candidate.is_supply();
            let is_supply = decision.stop_reason.is_none() && candidate.is_healthy();
            let units = u64::from(candidate.capacity);
            match (was_supply, is_supply) {
                (true, false) => supply = supply.saturating_sub(units),
                (false, true) => supply = supply.saturating_add(units),
                (true, true) | (false, false) => {}
            }
            if !is_supply {
                claimed = claimed.saturating_sub(candidate.claimed);
            }
            decisions.push(decision);
        }
        Self {
            load: Load {
                claimed: exact(claimed),
                running: exact(supply),
                ..Load::of(snapshot)
            },
            target: target(snapshot),
            snapshot,
            decisions,
            remarks: Vec::new(),
        }
    }
}

fn target(snapshot: &Snapshot) -> f64 {
    let settings = &snapshot.settings;
    let target = settings.own_strategy().target(settings, &snapshot.demand);
    let within = target
        .min(exact(settings.max_capacity))
        .max(exact(settings.least()));
    rounded(within)
}

impl Snapshot {
    /// Whether nothing is missing and no situation needs a person. Reads no offers.
    pub fn wants_nothing(&self) -> bool {
        let view = View::of(self);
        !self.has_demand_to_come(&view.load)
            && view.load.change(&self.settings) <= 0.0
            && !self.capacity.is_alarming(self.settings.max_capacity)
    }

    /// The same, if all machines that are coming are in time.
    pub fn wants_nothing_if_all_come(&self) -> bool {
        let view = View::of(self);
        !self.has_demand_to_come(&view.load)
            && view.load.change_if_all_come(&self.settings) <= 0.0
            && !self.capacity.is_alarming(self.settings.max_capacity)
    }

    /// Whether the advice of some worker could change. Reads no workers.
    pub fn may_change_advice(&self) -> bool {
        let capacity = &self.capacity;
        capacity.draining > 0
            || capacity.quarantined > 0
            || !self.rivals.is_empty()
            || exact(capacity.running) > target(self)
    }
}

impl<'a> WorkerDecision<'a> {
    fn of(candidate: &'a Candidate, now: Timestamp) -> Self {
        let stop_reason = candidate.cause(now);
        let can_stop = stop_reason.is_none()
            && candidate.is_healthy()
            && !candidate.is_busy()
            && now.millis_since(candidate.idle_since) >= candidate.idle_hold_ms;
        let is_final = candidate.advice.as_ref().is_some_and(Advice::is_final);
        let can_stop = can_stop && !is_final;
        let undecided = is_final || stop_reason.is_none() && candidate.is_only_silent();
        let told = candidate.is_asked_to_stop() && (can_stop || undecided);
        Self {
            candidate,
            stop_reason: stop_reason.or(told.then_some(REASON_OVER_CAPACITY)),
            can_stop,
            undecided,
        }
    }

    fn units(&self) -> f64 {
        f64::from(self.candidate.capacity)
    }

    /// Its new advice, if that differs from the last advice: whether to stop, and why.
    fn change(&self) -> Option<(&'a Candidate, bool, &'static str)> {
        if self.undecided {
            return None;
        }
        let terminate = self.stop_reason.is_some();
        let reason = self.stop_reason.unwrap_or(REASON_NEEDED);
        let is_same = match &self.candidate.advice {
            Some(advice) => advice.terminate == terminate && advice.reason == reason,
            None => !terminate,
        };
        (!is_same).then_some((self.candidate, terminate, reason))
    }
}

impl Candidate {
    fn is_asked_to_stop(&self) -> bool {
        self.advice.as_ref().is_some_and(|advice| advice.terminate)
    }

    pub fn is_busy(&self) -> bool {
        self.claimed > 0
    }

    /// Whether it would claim a task, if one waited.
    fn is_healthy(&self) -> bool {
        self.quarantined_since.is_none() && !self.silent
    }

    /// Whether it is silent, and nothing else is wrong with it.
    fn is_only_silent(&self) -> bool {
        self.silent && self.quarantined_since.is_none()
    }

    /// Whether the snapshot counts it as running capacity of the pool.
    fn is_supply(&self) -> bool {
        !self.is_asked_to_stop() && self.is_healthy()
    }

    /// Why it must stop even if its capacity is needed.
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
    /// Asks workers that are needed after all to stay, or asks those to stop that have been idle
    /// longest, as long as nothing is missing without them and `keep` is left.
    pub(super) fn balance(&mut self, keep: f64, need: impl Fn(&Load) -> f64) {
        let mut order: Vec<usize> = (0..self.decisions.len())
            .filter(|index| self.decisions[*index].can_stop)
            .collect();
        order.sort_unstable_by_key(|index| {
            let candidate = self.decisions[*index].candidate;
            (candidate.idle_since, candidate.created, &candidate.key)
        });
        // Workers that were asked last have most likely not stopped yet.
        for index in order.iter().rev() {
            let missing = need(&self.load) > 0.0 || (keep.is_finite() && self.load.running < keep);
            if !missing {
                break;
            }
            let decision = &mut self.decisions[*index];
            if decision.stop_reason.take().is_some() {
                self.load.running += decision.units();
            }
        }
        if need(&self.load) > 0.0 {
            return;
        }
        for index in order {
            let decision = &mut self.decisions[index];
            let left = self.load.running - decision.units();
            if decision.stop_reason.is_some() || left < keep.max(0.0) {
                continue;
            }
            let without = Load {
                running: left,
                ..self.load
            };
            if need(&without) > 0.0 {
                break;
            }
            decision.stop_reason = Some(REASON_OVER_CAPACITY);
            self.load = without;
        }
    }

    /// Asks idle workers of this kind to stop, as long as `keep` units of all kinds are left: the
    /// dearest first, then the oldest. Those that were asked before come first, and stay only if
    /// they are within `keep` again.
    pub(super) fn release(&mut self, keep: f64, is_kind: impl Fn(&Candidate) -> bool) {
        let mut order: Vec<(bool, usize)> = Vec::new();
        for (index, decision) in self.decisions.iter_mut().enumerate() {
            if decision.can_stop && is_kind(decision.candidate) {
                let was_asked = decision.stop_reason.take().is_some();
                if was_asked {
                    self.load.running += decision.units();
                }
                order.push((was_asked, index));
            }
        }
        order.sort_unstable_by(|(asked, a), (other_asked, b)| {
            let (a, b) = (self.decisions[*a].candidate, self.decisions[*b].candidate);
            let price = |candidate: &Candidate| candidate.price.unwrap_or(0.0);
            let dearest = price(b).total_cmp(&price(a));
            let oldest = (a.created, &a.key).cmp(&(b.created, &b.key));
            other_asked.cmp(asked).then(dearest).then(oldest)
        });
        for (_, index) in order {
            let decision = &mut self.decisions[index];
            let left = self.load.running - decision.units();
            if left < keep {
                break;
            }
            decision.stop_reason = Some(REASON_OVER_CAPACITY);
            self.load.running = left;
        }
    }

    /// Asks the listed workers to stop that are idle, as long as `keep` units are left. All others
    /// stay, also those that were asked before.
    pub(super) fn stop_listed(&mut self, listed: &[ProposedStop], keep: f64) {
        let mut by_name = BTreeMap::new();
        for (index, decision) in self.decisions.iter_mut().enumerate() {
            let key = &decision.candidate.key;
            by_name.insert((&key.group, &key.id), index);
            if decision.can_stop && decision.stop_reason.take().is_some() {
                self.load.running += decision.units();
            }
        }
        let mut seen = BTreeSet::new();
        for stop in listed {
            let name = (&stop.worker_group, &stop.worker_id);
            if !seen.insert(name) {
                continue;
            }
            let refusal = match by_name.get(&name) {
                None => Some("it is no running worker that can be asked".to_owned()),
                Some(index) => self.stop_one(*index, keep),
            };
            if let Some(why) = refusal {
                let (group, id) = name;
                let remark = format!("the service lets {group}/{id} go: not asked to stop, {why}");
                self.remarks.push(remark);
            }
        }
    }

    /// Why this worker is not asked to stop; `None`: it is.
    fn stop_one(&mut self, index: usize, keep: f64) -> Option<String> {
        let decision = &mut self.decisions[index];
        if decision.stop_reason.is_some() {
            return None;
        }
        if !decision.can_stop {
            let why = match decision.candidate {
                candidate if candidate.is_busy() => "it has a task",
                candidate if !candidate.is_healthy() => "it is silent or quarantined",
                _ => "it has not been idle for long enough",
            };
            return Some(why.to_owned());
        }
        let left = self.load.running - decision.units();
        if left < keep {
            return Some(format!("the minimum of {keep} units would not be left"));
        }
        decision.stop_reason = Some(REASON_EXTERNAL);
        self.load.running = left;
        None
    }

    /// The units of this kind that are no supply any more, since their workers are asked to stop.
    pub(super) fn released_units(&self, is_kind: impl Fn(&Candidate) -> bool) -> f64 {
        let stopping = self.decisions.iter().filter(|decision| {
            decision.stop_reason.is_some()
                && decision.candidate.is_supply()
                && is_kind(decision.candidate)
        });
        stopping.map(WorkerDecision::units).sum()
    }

    /// Asks busy workers of this kind to stop after their task, the oldest first, until the next
    /// one has more units than are left.
    pub(super) fn drain(&mut self, mut units: f64, is_kind: impl Fn(&Candidate) -> bool) {
        let is_asked = |decision: &WorkerDecision<'_>| {
            decision.stop_reason.is_none()
                && decision.candidate.is_busy()
                && decision.candidate.is_healthy()
                && is_kind(decision.candidate)
        };
        let busy = (0..self.decisions.len()).filter(|index| is_asked(&self.decisions[*index]));
        let mut order: Vec<usize> = busy.collect();
        order.sort_unstable_by_key(|index| {
            let candidate = self.decisions[*index].candidate;
            (candidate.created, &candidate.key)
        });
        for index in order {
            let decision = &mut self.decisions[index];
            if units < decision.units() {
                return;
            }
            units -= decision.units();
            decision.stop_reason = Some(REASON_OVER_SHARE);
            self.load.running -= decision.units();
        }
    }

    /// The changes of advice, for at most [`MAX_ADVICE`] workers. A worker without advice stays,
    /// and gets no advice to stay.
    pub(super) fn advice(&self, notes: &mut Notes) -> Vec<(WorkerKey, Advice)> {
        let changes = self.decisions.iter().filter_map(WorkerDecision::change);
        let mut changes: Vec<_> = changes.collect();
        let n_later = changes.len().saturating_sub(MAX_ADVICE);
        changes.truncate(MAX_ADVICE);
        for remark in &self.remarks {
            notes.add(remark.clone());
        }
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
            REASON_OVER_SHARE,
            REASON_EXTERNAL,
        ];
        let count = |reason: &str| changes.iter().filter(|(_, _, why)| *why == reason).count();
        for reason in reasons {
            let n_advised = count(reason);
            if n_advised == 0 {
                continue;
            }
            let mut line = format!("asked {n_advised} to stop: {reason}");
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
            notes.add(format!("asked {n_needed} to stay: needed after all"));
        }
        if n_later > 0 {
            notes.add(format!(
                "the next plan changes the advice of {n_later} more"
            ));
        }
    }
}
