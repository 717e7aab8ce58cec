//! The section `[queue]`: how long claims last, and what tasks may ask for.

use domain::task::TaskLimits;
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
    /// The definition of a task takes no more room than this.
    pub max_task_bytes: usize,
    /// Nor do its tags, which are part of every event of the task.
    pub max_tags_bytes: usize,
    /// Ask this deployment's queue instead of having one here.
    pub taskcluster: Option<OutsideQueue>,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            claim_seconds: 1_200,
            max_deadline_days: 5,
            max_dependencies: 10_000,
            max_task_bytes: 1024 * 1024,
            max_tags_bytes: 64 * 1024,
            taskcluster: None,
        }
    }
}

impl Queue {
    pub fn task_limits(&self) -> TaskLimits {
        TaskLimits {
            deadline_days: self.max_deadline_days,
            dependencies: self.max_dependencies,
            task_bytes: self.max_task_bytes,
            tags_bytes: self.max_tags_bytes,
        }
    }

    /// The key that cannot be used as it is, and why.
    pub fn problem(&self) -> Option<(&'static str, &'static str)> {
        if !(30..=86_400).contains(&self.claim_seconds) {
            return Some(("queue.claim_seconds", "must be from 30 to 86400"));
        }
        if !(1..=365).contains(&self.max_deadline_days) {
            return Some(("queue.max_deadline_days", "must be from 1 to 365"));
        }
        if self.max_dependencies > 10_000 {
            return Some(("queue.max_dependencies", "must be at most 10000"));
        }
        if !(16 * 1024..=10 * 1024 * 1024).contains(&self.max_task_bytes) {
            return Some(("queue.max_task_bytes", "must be from 16384 to 10485760"));
        }
        if !(1024..=1024 * 1024).contains(&self.max_tags_bytes) {
            return Some(("queue.max_tags_bytes", "must be from 1024 to 1048576"));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_named() {
        let wrong = |change: fn(&mut Queue)| {
            let mut queue = Queue::default();
            change(&mut queue);
            queue.problem().map(|(key, _)| key)
        };
        assert_eq!(wrong(|_| {}), None);
        assert_eq!(
            wrong(|queue| queue.claim_seconds = 29),
            Some("queue.claim_seconds")
        );
        assert_eq!(
            wrong(|queue| queue.max_deadline_days = 0),
            Some("queue.max_deadline_days")
        );
        assert_eq!(
            wrong(|queue| queue.max_dependencies = 10_001),
            Some("queue.max_dependencies")
        );
        assert_eq!(
            wrong(|queue| queue.max_task_bytes = 16_383),
            Some("queue.max_task_bytes")
        );
        assert_eq!(
            wrong(|queue| queue.max_tags_bytes = 1_048_577),
            Some("queue.max_tags_bytes")
        );
    }
}
