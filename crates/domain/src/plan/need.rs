//! How much: the change of capacity that a strategy wants.
//!
//! What is coming up is subtracted once. Workers that are quarantined, silent or told to go are no supply, so neither
//! their capacity nor their tasks are in a [`Load`]; they still take room, which is for `choose` to respect.

use super::notes::{Notes, units};
use super::{Settings, Snapshot, StrategyName};

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
    /// How many units more there should be; negative: there are too many.
    pub fn change(&self, settings: &Settings) -> f64 {
        let change = match settings.strategy {
            StrategyName::Weighted => self.weighted(settings),
            StrategyName::AwsProvisioner => self.aws_provisioner(settings),
        };
        // Rounding errors are not worth a machine, and what is stored must come back exactly.
        (change * 1e6).round() / 1e6
    }

    /// Idle workers will take waiting tasks, and what comes up is on its way for others of them. The ratio applies
    /// before what is coming is subtracted: otherwise every look at the same backlog would start some more.
    fn weighted(&self, settings: &Settings) -> f64 {
        let backlog = (self.pending - self.idle()).max(0.0);
        let by_demand = backlog * settings.scaling_ratio - self.coming;
        let existing = self.running + self.coming;
        by_demand
            .max(exact(settings.least()) - existing)
            .min(exact(settings.max_capacity) - existing)
    }

    /// RFC 124's formula to the letter. It knows nothing of claimed tasks, so it would launch once more for each
    /// worker that has registered and not claimed yet, and a pool that keeps spare capacity would take its own idle
    /// workers for busy ones, and grow until its maximum. Unless it is to be literal, such workers are counted.
    fn aws_provisioner(&self, settings: &Settings) -> f64 {
        let (ratio, max) = (settings.scaling_ratio, exact(settings.max_capacity));
        let wanted_pending = (ratio * self.running + 0.5).floor();
        let spare = match settings.literal {
            true => 0.0,
            false if ratio < 0.0 => self.idle(),
            false => self.fresh.min(self.idle()),
        };
        let change = self.pending - self.coming - wanted_pending - spare;
        let existing = self.running + self.coming;
        if change + existing >= max {
            max - existing
        } else {
            change.max(exact(settings.min_capacity) - existing)
        }
    }

    /// Below this nobody is let go, whatever the ratio says: an idle worker that a waiting task will take is not
    /// too many. The formula of `aws-provisioner` cannot tell idle workers from busy ones while tasks wait, so
    /// then everybody stays.
    pub(super) fn keep(&self, settings: &Settings, target: f64) -> f64 {
        let max = exact(settings.max_capacity);
        match settings.strategy {
            StrategyName::Weighted => target.max((self.pending + self.claimed).min(max)),
            StrategyName::AwsProvisioner if self.pending > 0.0 => f64::INFINITY,
            StrategyName::AwsProvisioner => {
                let busy = self.claimed.min(max);
                busy.max(exact(settings.least()))
            }
        }
    }

    fn idle(&self) -> f64 {
        (self.running - self.claimed).max(0.0)
    }
}

/// What it would take to have all wanted: what runs and what waits, within the limits.
pub(super) fn target(snapshot: &Snapshot) -> f64 {
    let settings = &snapshot.settings;
    let wanted = exact(snapshot.demand.pending) + exact(snapshot.demand.claimed);
    let share = match settings.strategy {
        StrategyName::Weighted => settings.scaling_ratio,
        StrategyName::AwsProvisioner => 1.0,
    };
    let target = (wanted * share)
        .min(exact(settings.max_capacity))
        .max(exact(settings.least()));
    (target * 1e6).round() / 1e6
}

/// Says what was counted and what came of it.
pub(super) fn note(snapshot: &Snapshot, load: &Load, notes: &mut Notes) {
    let settings = &snapshot.settings;
    let (min, max) = (settings.min_capacity, settings.max_capacity);
    if min > max {
        notes.add(format!(
            "minCapacity {min} is above maxCapacity {max}: the maximum counts"
        ));
    }
    let change = load.change(settings);
    let at_least = match snapshot.demand.pending == settings.most_pending() {
        true => "at least ",
        false => "",
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
