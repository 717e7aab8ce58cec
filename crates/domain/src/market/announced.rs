//! Tasks that are announced: they wait for tasks that run now.
//!
//! How long a run will still take is estimated with a log-normal distribution, from the mean
//! duration of tasks of its queue, the mean deviation from it, and the time that it has taken.

use serde::{Deserialize, Serialize};

use crate::time::{SECOND_MS, Timestamp};

/// The mean deviation of a normal distribution is this part of its standard deviation.
const DEVIATION_PART: f64 = 0.798;
/// Durations vary at least by this part of the mean, and at most by the second number.
const SPREADS: (f64, f64) = (0.1, 2.0);

/// Tasks of a pool that will wait for workers when runs that were claimed at this time have ended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Announced {
    pub count: u64,
    pub since: Timestamp,
    /// The mean duration of such runs in milliseconds.
    pub run_ms: f64,
    /// The mean deviation from it.
    pub deviation_ms: f64,
}

impl Announced {
    /// How many of the tasks will wait for workers within this time from now, on average.
    pub fn within(&self, ms: f64, now: Timestamp) -> f64 {
        let run = LogNormal::of(self.run_ms, self.deviation_ms);
        let passed_ms = (now.millis_since(self.since) as f64).max(0.0);
        let (left, then) = (run.share_above(passed_ms), run.share_above(passed_ms + ms));
        // A run that has taken longer than any may end at any time.
        let share = if left > 1e-9 { 1.0 - then / left } else { 0.5 };
        self.count as f64 * share.clamp(0.0, 1.0)
    }
}

/// A log-normal distribution.
struct LogNormal {
    /// Of the logarithm.
    middle: f64,
    sigma: f64,
}

impl LogNormal {
    fn of(mean: f64, deviation: f64) -> Self {
        let mean = mean.max(SECOND_MS as f64);
        let spread = (deviation / DEVIATION_PART / mean).clamp(SPREADS.0, SPREADS.1);
        let sigma = (1.0 + spread * spread).ln().sqrt();
        Self {
            middle: mean.ln() - sigma * sigma / 2.0,
            sigma,
        }
    }

    /// The share of values above this one.
    fn share_above(&self, value: f64) -> f64 {
        if value <= 0.0 {
            return 1.0;
        }
        normal_below((self.middle - value.ln()) / self.sigma)
    }
}

/// The share of a normal distribution below this value (Abramowitz and Stegun, 26.2.17).
fn normal_below(value: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * value.abs());
    let sum = [
        0.319_381_530,
        -0.356_563_782,
        1.781_477_937,
        -1.821_255_978,
        1.330_274_429,
    ];
    let sum = sum.iter().rev().fold(0.0, |sum, factor| (sum + factor) * t);
    let above = sum * (-value * value / 2.0).exp() / std::f64::consts::TAU.sqrt();
    if value >= 0.0 { 1.0 - above } else { above }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(1_790_000_000_000 + seconds * SECOND_MS)
    }

    /// How many of 100 tasks come in the next 180 s, if the run of 600 s on average with this
    /// deviation has taken so many seconds.
    fn within(deviation_ms: f64, seconds: i64) -> f64 {
        let announced = Announced {
            count: 100,
            since: at(0),
            run_ms: 600_000.0,
            deviation_ms,
        };
        announced.within(180_000.0, at(seconds))
    }

    #[test]
    fn the_normal_distribution_is_known() {
        for (value, share) in [
            (0.0, 0.5),
            (1.0, 0.841_345),
            (-1.0, 0.158_655),
            (3.0, 0.998_650),
        ] {
            assert!((normal_below(value) - share).abs() < 1e-6, "{value}");
        }
    }

    #[test]
    fn tasks_are_expected_when_runs_that_hardly_vary_should_end() {
        assert!(within(0.0, 0) < 0.1);
        assert!(within(0.0, 200) < 0.1);
        assert!(
            (45.0..60.0).contains(&within(0.0, 417)),
            "{}",
            within(0.0, 417)
        );
        assert!(within(0.0, 560) > 95.0);
    }

    #[test]
    fn some_tasks_of_runs_that_vary_much_are_always_expected() {
        let counts = [60, 300, 600, 1_200].map(|seconds| within(400_000.0, seconds));
        assert!(
            counts.iter().all(|count| (5.0..60.0).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn odd_values_give_an_estimate_too() {
        for (deviation, seconds) in [(0.0, 100_000), (-5.0, 0), (1e300, 5), (0.0, -50)] {
            let count = within(deviation, seconds);
            assert!(
                (0.0..=100.0).contains(&count),
                "{deviation} {seconds}: {count}"
            );
        }
    }
}
