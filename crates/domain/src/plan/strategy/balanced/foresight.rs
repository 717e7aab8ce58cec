//! Demand to come: tasks that are announced by tasks that run, and those of earlier days.

use super::super::super::Snapshot;
use super::super::super::need::{Load, exact};
use super::super::super::notes::{Notes, units};
use super::outlook::Outlook;
use crate::time::SECOND_MS;

/// This share of the workers that the hour needed on earlier days is there from its start. A larger
/// one costs more than the waits that it saves (docs/decisions/0014).
const FLOOR: f64 = 0.1;

/// The demand to come, in units.
#[derive(Default)]
pub(super) struct Foresight {
    /// Announced tasks that will wait before a machine that is started now is there.
    pub(super) due: f64,
    /// Announced tasks that will wait while keeping an idle worker costs less than missing it.
    pub(super) soon: f64,
    /// Workers that the hour needed on earlier days.
    pub(super) floor: f64,
}

impl Foresight {
    /// Nothing if the pool does not look ahead, or nothing is known.
    pub(super) fn of(snapshot: &Snapshot, outlook: &Outlook) -> Self {
        let settings = &snapshot.settings;
        if !settings.foresight {
            return Self::default();
        }
        let mut foresight = Self {
            floor: floor(snapshot).min(exact(settings.max_capacity)),
            ..Self::default()
        };
        let missing_ms = snapshot.missing_ms_with(outlook);
        for announced in &snapshot.announced {
            foresight.due += announced.within(outlook.boot_ms, snapshot.now);
            foresight.soon += announced.within(missing_ms, snapshot.now);
        }
        foresight
    }

    pub(super) fn note(&self, snapshot: &Snapshot, notes: &mut Notes) {
        // Less than this part of a unit changes no plan.
        const LEAST: f64 = 0.005;
        if self.due >= LEAST {
            notes.add(format!(
                "of {} announced tasks, {} will wait before a machine that starts now is ready",
                snapshot.announced_tasks(),
                units(self.due)
            ));
        }
        if self.floor > 0.0 {
            notes.add(format!(
                "{} units for the tasks that earlier days let expect at this hour",
                units(self.floor)
            ));
        }
    }
}

impl Snapshot {
    /// Whether tasks to come may need machines. Reads no offers.
    pub(in crate::plan) fn has_demand_to_come(&self, load: &Load) -> bool {
        self.settings.foresight
            && (!self.announced.is_empty() || floor(self) > load.running + load.coming)
    }
}

fn floor(snapshot: &Snapshot) -> f64 {
    let learned = snapshot.learned.as_ref();
    let busy = learned.and_then(|learned| {
        let task_seconds = learned.task_ms? / SECOND_MS as f64;
        Some(learned.expected? * task_seconds)
    });
    (FLOOR * busy.unwrap_or(0.0)).floor()
}
