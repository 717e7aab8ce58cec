//! The change of capacity that a strategy wants.
//!
//! Coming capacity is subtracted once. Workers that are quarantined, silent or asked to stop are no
//! supply, so a [`Load`] contains neither their capacity nor their tasks. They still count against
//! the maximum, which `choose` observes.

use super::notes::{Notes, units};
use super::{Settings, Snapshot};

/// The tasks and the capacity of a pool, in capacity units (a task takes one).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Not claimed yet.
    pub pending: f64,
    /// Claimed by running workers.
    pub claimed: f64,
    pub running: f64,
    /// Of the running units: registered recently, and about to claim their first task.
    pub fresh: f64,
    /// Requested or made, not registered yet.
    pub coming: f64,
}

impl Load {
    /// How many further units a pool with these settings should have; negative if it has too many.
    pub fn change(&self, settings: &Settings) -> f64 {
        rounded(settings.own_strategy().need(settings, self))
    }

    /// The same, if all machines that are coming are in time.
    pub fn change_if_all_come(&self, settings: &Settings) -> f64 {
        rounded(settings.own_strategy().need_if_all_come(settings, self))
    }

    /// Before any advice.
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let (demand, capacity) = (&snapshot.demand, &snapshot.capacity);
        Self {
            pending: exact(demand.pending),
            claimed: exact(demand.claimed),
            running: exact(capacity.running),
            fresh: exact(capacity.fresh),
            coming: exact(capacity.coming()),
        }
    }

    /// The same with all that the snapshot contains.
    pub(super) fn change_in(&self, snapshot: &Snapshot) -> f64 {
        rounded(snapshot.strategy().need_in(snapshot, self))
    }

    /// The running capacity without tasks.
    pub(super) fn idle(&self) -> f64 {
        (self.running - self.claimed).max(0.0)
    }
}

/// Adds the counts and their result to the reasons.
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
    // The advice of this plan already counts.
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

/// Capacity as a float: exact up to 2^53, which no pool reaches.
pub(super) fn exact(units: u64) -> f64 {
    units as f64
}

/// Rounds, as rounding errors are not worth a machine and would change when stored.
pub(super) fn rounded(units: f64) -> f64 {
    (units * 1e6).round() / 1e6
}
