//! The change of capacity that a strategy wants.
//!
//! Coming capacity is subtracted once. Workers that are quarantined, silent or asked to stop are no
//! supply, so a [`Load`] contains neither their capacity nor their tasks. They still count against
//! the maximum, which `choose` observes.

use super::notes::{Notes, units};
use super::{Settings, Snapshot};

/// Part of the reason that says how many units a pool needs.
pub(super) const UNITS_NEEDED: &str = " needed: ";
/// Why a pool leaves a quota to others.
pub(crate) const OVER_SHARE: &str = "its quota is used up, and the pool has ";

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

impl Snapshot {
    /// Whole units that are missing, within the maximum of the pool.
    pub fn missing_units(&self) -> u64 {
        let missing = Load::of(self).change_in(self);
        let room = self
            .settings
            .max_capacity
            .saturating_sub(self.capacity.all());
        whole(missing).min(room)
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
    let needed = match units(change.max(0.0)).as_str() {
        "0" => "no more units are".to_owned(),
        "1" => "1 more unit is".to_owned(),
        amount => format!("{amount} more units are"),
    };
    let pending = load.pending;
    let wait = if pending == 1.0 {
        "task waits"
    } else {
        "tasks wait"
    };
    let mut line = format!("{needed}{UNITS_NEEDED}{at_least}{pending} {wait}");
    if load.claimed > 0.0 {
        let run = if load.claimed == 1.0 { "runs" } else { "run" };
        line.push_str(&format!(", {} {run}", load.claimed));
    }
    let capacity = &snapshot.capacity;
    // The advice of this plan already counts.
    let healthy = exact(capacity.running.saturating_add(capacity.draining));
    let draining = (healthy - load.running).max(0.0);
    let counted = [
        (load.running, "runs", "run"),
        (load.coming, "starts", "start"),
        (draining, "was asked to stop", "were asked to stop"),
        (
            exact(capacity.quarantined),
            "is in quarantine",
            "are in quarantine",
        ),
        (
            exact(capacity.silent),
            "asks for no work",
            "ask for no work",
        ),
        (
            exact(capacity.overdue),
            "is not expected any more",
            "are not expected any more",
        ),
        (exact(capacity.stopping), "stops", "stop"),
    ];
    let present = counted.into_iter().filter(|(amount, ..)| *amount > 0.0);
    for (place, (amount, one, several)) in present.enumerate() {
        let separator = if place == 0 { ";" } else { "," };
        let noun = match (place, amount == 1.0) {
            (0, true) => " unit",
            (0, false) => " units",
            (_, _) => "",
        };
        let does = if amount == 1.0 { one } else { several };
        line.push_str(&format!("{separator} {amount}{noun} {does}"));
    }
    line.push_str(&bounds((min, max), settings.scaling_ratio));
    notes.add(line);
}

fn bounds((min, max): (u64, u64), scaling_ratio: f64) -> String {
    let minimum = match min {
        0 => String::new(),
        min => format!("minimum {min}, "),
    };
    // With 1, each waiting task counts fully, as readers expect.
    let ratio = match (scaling_ratio - 1.0).abs() > f64::EPSILON {
        true => format!(", scaling ratio {scaling_ratio}"),
        false => String::new(),
    };
    format!("; {minimum}maximum {max}{ratio}")
}

/// The units of machines that are needed.
pub(super) fn whole(wanted: f64) -> u64 {
    // Far more than any pool has, and exact.
    const MOST: f64 = 1e15;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it has no fraction and is within bounds"
    )]
    let units = wanted.ceil().clamp(0.0, MOST) as u64;
    units
}

/// Capacity as a float: exact up to 2^53, which no pool reaches.
pub(super) fn exact(units: u64) -> f64 {
    units as f64
}

/// Rounds, as rounding errors are not worth a machine and would change when stored.
pub(super) fn rounded(units: f64) -> f64 {
    (units * 1e6).round() / 1e6
}
