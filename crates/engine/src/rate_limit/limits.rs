//! The configured rates of calls to the cloud of a provider, for each region.

use serde::Deserialize;

const MIN_RATE: f64 = 0.01;
const MAX_RATE: f64 = 10_000.0;

/// Calls per second and region. At most the calls of five seconds are made at once.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RateLimits {
    /// Calls that list or describe machines.
    pub reads_per_second: f64,
    /// Calls that launch machines.
    pub launches_per_second: f64,
    /// Calls that end machines.
    pub ends_per_second: f64,
}

/// The default limits of EC2.
impl Default for RateLimits {
    fn default() -> Self {
        Self {
            reads_per_second: 20.0,
            launches_per_second: 2.0,
            ends_per_second: 5.0,
        }
    }
}

impl RateLimits {
    pub fn are_valid(&self) -> bool {
        let rates = [
            self.reads_per_second,
            self.launches_per_second,
            self.ends_per_second,
        ];
        rates
            .iter()
            .all(|rate| (MIN_RATE..=MAX_RATE).contains(rate))
    }
}
