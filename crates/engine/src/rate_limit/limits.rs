//! How often the cloud of a provider may be called, in each region.

use serde::Deserialize;

const MIN_RATE: f64 = 0.01;
const MAX_RATE: f64 = 10_000.0;

/// Calls a second and region. At most five seconds' worth is made at once.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RateLimits {
    /// Calls that list machines or look at them.
    pub reads_per_second: f64,
    /// Calls that launch machines.
    pub launches_per_second: f64,
    /// Calls that end machines.
    pub ends_per_second: f64,
}

/// What EC2 grants an account, by default.
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
    pub fn are_sound(&self) -> bool {
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
