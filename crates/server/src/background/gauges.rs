//! Gauges whose series come and go.

use std::collections::{BTreeMap, BTreeSet};

use metrics::gauge;

pub(super) type Labels = Vec<(&'static str, String)>;

/// The values that are shown. A series that has no value any more is shown as 0 once, and then
/// disappears: else it would keep its last value for a while, and with it its alert.
#[derive(Default)]
pub(super) struct Gauges {
    values: BTreeMap<(&'static str, Labels), f64>,
    shown: BTreeSet<(&'static str, Labels)>,
}

impl Gauges {
    pub(super) fn set(&mut self, name: &'static str, labels: Labels, value: f64) {
        self.values.insert((name, labels), value);
    }

    pub(super) fn add(&mut self, name: &'static str, labels: Labels, value: f64) {
        *self.values.entry((name, labels)).or_default() += value;
    }

    /// Forgets the values that were set and not shown.
    pub(super) fn forget(&mut self) {
        self.values.clear();
    }

    pub(super) fn show(&mut self) {
        let values = std::mem::take(&mut self.values);
        for series in &self.shown {
            if !values.contains_key(series) {
                gauge!(series.0, &series.1).set(0.0);
            }
        }
        for ((name, labels), value) in &values {
            gauge!(*name, labels).set(*value);
        }
        self.shown = values.into_keys().collect();
    }
}
