//! The axis of values: its ends and its round ticks.

use super::unit::{Unit, drawable};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct ValueAxis {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) unit: Unit,
    pub(super) ticks: Vec<f64>,
}

impl ValueAxis {
    /// From 0 to a little more than the highest value, with about this many ticks.
    pub(super) fn from_zero(values: impl Iterator<Item = f64>, unit: Unit, n_ticks: f64) -> Self {
        let highest = values.filter_map(drawable).fold(0.0, f64::max);
        let high = if highest > 0.0 { highest * 1.04 } else { 1.0 };
        Self::between(0.0, high, unit, n_ticks)
    }

    /// Between two values. An empty span is widened.
    pub(super) fn between(low: f64, high: f64, unit: Unit, n_ticks: f64) -> Self {
        let low = drawable(low).unwrap_or_default();
        let mut high = drawable(high).unwrap_or_default();
        // Smaller spans than this cannot be divided.
        let smallest = (low.abs() * 1e-9).max(1e-9);
        if high - low < smallest {
            high = low + smallest.max(1.0);
        }
        let step = unit.round_step((high - low) / n_ticks);
        let mut ticks = Vec::new();
        let mut number = (low / step).ceil();
        while number * step <= high * (1.0 + 1e-9) {
            ticks.push(number * step);
            number += 1.0;
        }
        Self {
            low,
            high,
            unit,
            ticks,
        }
    }

    /// The place of a value between 0 (low) and 1 (high). Values outside are at the ends.
    pub(super) fn place(&self, value: f64) -> f64 {
        let value = drawable(value).unwrap_or(self.low);
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }
}
