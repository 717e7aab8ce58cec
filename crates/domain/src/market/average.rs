//! Running means, in which older values count less and less.

use serde::{Deserialize, Serialize};

/// A mean and the mean deviation from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Average {
    pub mean: f64,
    pub deviation: f64,
    /// How many values it has seen.
    pub count: u64,
}

impl Average {
    /// Adds a value. The newest value always counts for at least `least_step`, so that a mean over
    /// many values still follows a change.
    pub fn add(&mut self, value: f64, least_step: f64) {
        self.count = self.count.saturating_add(1);
        if self.count == 1 {
            self.mean = value;
            // Nothing is known about the spread yet.
            self.deviation = value / 3.0;
            return;
        }
        let step = least_step.max(1.0 / self.count as f64);
        self.deviation += step * ((value - self.mean).abs() - self.deviation);
        self.mean += step * (value - self.mean);
    }
}

/// The share of a weight that is left after this time, if half is forgotten in `half_life_ms`.
pub(super) fn decay(passed_ms: i64, half_life_ms: i64) -> f64 {
    0.5_f64.powf(passed_ms.max(0) as f64 / half_life_ms as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_follows_its_values_and_the_newest_never_counts_for_nothing() {
        let mut boot = Average::default();
        boot.add(90.0, 0.05);
        assert_eq!((boot.mean, boot.deviation, boot.count), (90.0, 30.0, 1));
        boot.add(110.0, 0.05);
        assert_eq!((boot.mean, boot.deviation), (100.0, 25.0));
        for _ in 0..200 {
            boot.add(300.0, 0.05);
        }
        assert!((boot.mean - 300.0).abs() < 1.0, "{boot:?}");
        assert!(boot.deviation < 1.0, "{boot:?}");
    }

    #[test]
    fn half_is_forgotten_in_a_half_life_and_nothing_when_a_clock_steps_back() {
        assert_eq!(decay(0, 1_000), 1.0);
        assert_eq!(decay(1_000, 1_000), 0.5);
        assert_eq!(decay(2_000, 1_000), 0.25);
        assert_eq!(decay(-5_000, 1_000), 1.0);
    }
}
