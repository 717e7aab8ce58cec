//! How often a region of a provider may be called, and how much of that is used.

use crate::region::Region;

/// The budget of one kind of call in one region.
#[derive(Clone, Debug, PartialEq)]
pub struct CallBudget {
    pub region: Region,
    /// `read`, `launch` or `end`.
    pub call: &'static str,
    /// Calls a second now, and while the cloud throttles none.
    pub per_second: f64,
    pub full_per_second: f64,
    /// The part of the calls that may be made at once which is used up: from 0 to 1.
    pub used: f64,
    /// The cloud throttled calls: none is made for so long.
    pub throttled_ms: Option<i64>,
}
