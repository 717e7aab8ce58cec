//! A quantity that is compared between the canary and the control group.

use serde::{Deserialize, Serialize};

/// A quantity that is compared between the canary and the control group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CanaryMetric {
    /// Machines that register and claim a task.
    Starts,
    /// Runs that succeed.
    Tasks,
    /// The time until a machine registers.
    ReadyTime,
    /// The durations of good runs.
    TaskTime,
}

impl CanaryMetric {
    pub const ALL: [Self; 4] = [Self::Starts, Self::Tasks, Self::ReadyTime, Self::TaskTime];
}
