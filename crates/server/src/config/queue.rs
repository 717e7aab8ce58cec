//! The section `[queue]`: how long claims last, and what tasks may ask for.

use serde::Deserialize;

use super::OutsideQueue;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Queue {
    /// A worker must claim a run again before this has passed, or loses it.
    pub claim_seconds: u32,
    /// A task's deadline may be so far ahead.
    pub max_deadline_days: u32,
    /// A task may wait for so many others.
    pub max_dependencies: usize,
    /// Ask this deployment's queue instead of having one here.
    pub taskcluster: Option<OutsideQueue>,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            claim_seconds: 1_200,
            max_deadline_days: 5,
            max_dependencies: 10_000,
            taskcluster: None,
        }
    }
}
