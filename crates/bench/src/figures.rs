//! Statistics of samples: rates, percentiles, medians.

use std::time::Duration;

/// The latencies of a round.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// Sorted.
    latencies: Vec<Duration>,
    elapsed: Duration,
}

impl Sample {
    pub(crate) fn new(mut latencies: Vec<Duration>, elapsed: Duration) -> Self {
        latencies.sort_unstable();
        Self { latencies, elapsed }
    }

    /// Their number.
    pub(crate) fn requests(&self) -> f64 {
        count(self.latencies.len())
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.requests() / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// The latency that this percentage of the requests did not exceed.
    pub(crate) fn percentile_ms(&self, percent: usize) -> f64 {
        let rank = (self.latencies.len() * percent).div_ceil(100).max(1);
        self.latencies
            .get(rank - 1)
            .map_or(0.0, |latency| latency.as_secs_f64() * 1_000.0)
    }
}

/// The middle value, or the mean of both middle values; 0 without values.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.get(middle), values.len() % 2) {
        (None, _) => 0.0,
        (Some(value), 1) => *value,
        (Some(value), _) => f64::midpoint(*value, values[middle - 1]),
    }
}

pub(crate) fn count(items: usize) -> f64 {
    // The longest run sends fewer requests than this.
    f64::from(u32::try_from(items).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(milliseconds: impl IntoIterator<Item = u64>) -> Sample {
        let latencies = milliseconds
            .into_iter()
            .map(Duration::from_millis)
            .collect();
        Sample::new(latencies, Duration::from_secs(2))
    }

    #[test]
    fn percentiles_are_the_nearest_rank() {
        let sample = sample((1..=100).rev());
        assert!((sample.percentile_ms(50) - 50.0).abs() < 1e-9);
        assert!((sample.percentile_ms(99) - 99.0).abs() < 1e-9);
        // Time: computed from given latencies.
        assert!((sample.per_second() - 50.0).abs() < 1e-9);
    }

    #[test]
    fn a_sample_of_one_or_none_has_percentiles() {
        assert!((sample([7]).percentile_ms(99) - 7.0).abs() < 1e-9);
        assert!(sample([]).percentile_ms(99).abs() < 1e-9);
    }

    #[test]
    fn the_median_is_in_the_middle() {
        for (values, expected) in [
            (vec![3.0, 1.0, 2.0], 2.0),
            (vec![4.0, 1.0], 2.5),
            (vec![], 0.0),
        ] {
            assert!((median(values) - expected).abs() < 1e-9);
        }
    }
}
