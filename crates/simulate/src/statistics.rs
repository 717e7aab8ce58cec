//! Means, quantiles and confidence intervals.

use serde::Serialize;

/// The value below which this share of the sorted values lies.
pub(crate) fn quantile(sorted: &[i64], share: f64) -> i64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a length is neither negative nor larger than the length"
    )]
    let place = (share * sorted.len() as f64) as usize;
    let place = place.min(sorted.len().saturating_sub(1));
    sorted.get(place).copied().unwrap_or_default()
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// A mean, and the interval that contains the true mean with a probability of 95 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Estimate {
    pub mean: f64,
    /// Half the width of the interval. `None`: one value says nothing about it.
    pub margin: Option<f64>,
}

impl Estimate {
    /// `None`: there are no values.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let n = values.len();
        if n == 0 {
            return None;
        }
        let mean = mean(values);
        let squares = values.iter().map(|value| (value - mean).powi(2));
        let squares: f64 = squares.sum();
        let margin = (n > 1).then(|| {
            let variance = squares / (n - 1) as f64;
            student_t(n - 1) * (variance / n as f64).sqrt()
        });
        Some(Self { mean, margin })
    }

    /// Whether the interval does not contain 0.
    pub fn is_certain(&self) -> bool {
        self.margin.is_some_and(|margin| self.mean.abs() > margin)
    }
}

/// Student's t for 95 %, both sides, by degrees of freedom from 1.
const STUDENT_T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// Between the listed degrees of freedom and infinity, by the first terms of the usual expansion
/// around the normal distribution.
fn student_t(degrees: usize) -> f64 {
    const NORMAL: f64 = 1.959_964;
    match STUDENT_T.get(degrees.saturating_sub(1)) {
        Some(t) => *t,
        None => NORMAL + (NORMAL.powi(3) + NORMAL) / (4.0 * degrees as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let values: Vec<i64> = (1..=100).collect();
        let of = |share| quantile(&values, share);
        assert_eq!((of(0.0), of(0.5), of(0.95), of(1.0)), (1, 51, 96, 100));
        assert_eq!((quantile(&[7], 0.99), quantile(&[], 0.5)), (7, 0));
    }

    #[test]
    fn the_interval_is_students() {
        // Mean 3, deviation of the sample sqrt(2.5), five values: 2.776 * sqrt(2.5 / 5).
        let estimate = Estimate::of(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert_eq!(estimate.mean, 3.0);
        assert!((estimate.margin.unwrap() - 1.962_929).abs() < 1e-5);
        assert!(estimate.is_certain());
        let around_zero = Estimate::of(&[-1.0, 1.0, 2.0]).unwrap();
        assert!(!around_zero.is_certain());
    }

    #[test]
    fn one_value_has_no_interval_and_none_has_no_mean() {
        let one = Estimate::of(&[4.0]).unwrap();
        assert_eq!((one.mean, one.margin), (4.0, None));
        assert!(!one.is_certain());
        assert_eq!(Estimate::of(&[]), None);
    }

    #[test]
    fn many_degrees_of_freedom_approach_the_normal_distribution() {
        let near = |degrees, expected: f64| (student_t(degrees) - expected).abs() < 2e-3;
        assert!(near(9, 2.262) && near(30, 2.042) && near(40, 2.021));
        assert!(near(120, 1.980) && near(1_000_000, 1.960));
    }
}
