//! How much: the change of capacity that a strategy wants.
//!
//! What is coming up is subtracted once. Workers that are quarantined, silent or told to go are no supply, so neither
//! their capacity nor their tasks are in a [`Load`]; they still take room, which is for `choose` to respect.

use super::notes::{Notes, units};
use super::{Settings, Snapshot};

/// What there is to do, and with what, in capacity units (a task takes one).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Nobody has claimed them yet.
    pub pending: f64,
    /// Claimed by those that run.
    pub claimed: f64,
    pub running: f64,
    /// Of those that run: registered a moment ago, and about to take their first task.
    pub fresh: f64,
    /// Asked for or made, not registered yet.
    pub coming: f64,
}

impl Load {
    /// How many units more a pool with these settings should have; negative: it has too many.
    pub fn change(&self, settings: &Settings) -> f64 {
        rounded(settings.strategy.strategy().need(settings, self))
    }

    /// The running capacity without a task.
    pub(super) fn idle(&self) -> f64 {
        (self.running - self.claimed).max(0.0)
    }
}

/// Says what was counted and what came of it.
pub(super) fn note(snapshot: &Snapshot, load: &Load, change: f64, notes: &mut Notes) {
    let settings = &snapshot.settings;
    let (min, max) = (settings.min_capacity, settings.max_capacity);
    if min > max {
        notes.add(format!(
            "minCapacity {min} is above maxCapacity {max}: the maximum counts"
        ));
    }
    let at_least = if snapshot.demand.pending == settings.most_pending() {
        "at least "
    } else {
        ""
    };
    let mut line = format!(
        "needed {}: {at_least}{} pending",
        units(change.max(0.0)),
        load.pending
    );
    let capacity = &snapshot.capacity;
    // Whoever is told to go or to stay by this plan counts as told.
    let healthy = exact(capacity.running.saturating_add(capacity.draining));
    let draining = (healthy - load.running).max(0.0);
    let counted = [
        (load.claimed, "claimed"),
        (load.running, "running"),
        (load.coming, "coming"),
        (draining, "draining"),
        (exact(capacity.quarantined), "quarantined"),
        (exact(capacity.silent), "silent"),
        (exact(capacity.overdue), "overdue"),
        (exact(capacity.stopping), "stopping"),
    ];
    for (amount, what) in counted {
        if amount > 0.0 {
            line.push_str(&format!(", {amount} {what}"));
        }
    }
    if min > 0 {
        line.push_str(&format!(", minimum {min}"));
    }
    line.push_str(&format!(
        ", maximum {max}, ratio {}",
        settings.scaling_ratio
    ));
    notes.add(line);
}

/// Capacity as a number to calculate with: exact up to 2^53, and nobody has that much.
pub(super) fn exact(units: u64) -> f64 {
    units as f64
}

/// Without errors of rounding, which are not worth a machine, and would not survive being stored.
pub(super) fn rounded(units: f64) -> f64 {
    (units * 1e6).round() / 1e6
}
