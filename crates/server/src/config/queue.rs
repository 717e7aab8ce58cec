//! The section `[queue]`: the duration of claims, and limits of tasks.

use domain::task::TaskLimits;
use serde::Deserialize;

use super::OutsideQueue;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Queue {
    /// A worker must reclaim a run within this time, or it loses the run.
    pub claim_seconds: u32,
    /// Maximum time until a task's deadline.
    pub max_deadline_days: u32,
    /// Maximum time until a task and its files are deleted.
    pub max_expires_days: u32,
    /// Maximum number of dependencies of a task.
    pub max_dependencies: usize,
    /// Maximum size of a task's definition.
    pub max_task_bytes: usize,
    /// Maximum size of a task's tags, which are part of every event of the task.
    pub max_tags_bytes: usize,
    /// Uses this deployment's queue instead of our own.
    pub taskcluster: Option<OutsideQueue>,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            claim_seconds: 1_200,
            max_deadline_days: 5,
            max_expires_days: 3_660,
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
            expires_days: self.max_expires_days,
            dependencies: self.max_dependencies,
            task_bytes: self.max_task_bytes,
            tags_bytes: self.max_tags_bytes,
        }
    }

    /// The key and the problem of the first invalid value.
    pub fn problem(&self) -> Option<(&'static str, &'static str)> {
        if !(30..=86_400).contains(&self.claim_seconds) {
            return Some(("queue.claim_seconds", "must be from 30 to 86400"));
        }
        if !(1..=365).contains(&self.max_deadline_days) {
            return Some(("queue.max_deadline_days", "must be from 1 to 365"));
        }
        // A task without `expires` expires a year after its deadline.
        if !(self.max_deadline_days + 366..=36_500).contains(&self.max_expires_days) {
            let text = "must be from 366 more than queue.max_deadline_days to 36500";
            return Some(("queue.max_expires_days", text));
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
    fn invalid_values_are_named() {
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
        for days in [0, 370, 36_501] {
            let queue = Queue {
                max_expires_days: days,
                ..Queue::default()
            };
            let key = queue.problem().map(|(key, _)| key);
            assert_eq!(key, Some("queue.max_expires_days"), "{days}");
        }
        assert_eq!(wrong(|queue| queue.max_expires_days = 371), None);
        assert_eq!(wrong(|queue| queue.max_expires_days = 36_500), None);
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
