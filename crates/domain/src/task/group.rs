//! Task groups: each has one scheduler.

use crate::Version;
use crate::id::{SchedulerId, TaskGroupId};
use crate::time::{DAY_MS, Timestamp};

/// A group outlives its tasks by up to this long, so that its expiry need not move with every task.
const EXPIRES_AFTER_TASKS_MS: i64 = DAY_MS;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskGroup {
    pub id: TaskGroupId,
    pub scheduler_id: SchedulerId,
    pub expires: Timestamp,
    /// When the group was sealed; it accepts no further tasks since.
    pub sealed: Option<Timestamp>,
    pub version: Version,
}

impl TaskGroup {
    pub fn new(id: TaskGroupId, scheduler_id: SchedulerId, task_expires: Timestamp) -> Self {
        Self {
            id,
            scheduler_id,
            expires: task_expires.plus_millis(EXPIRES_AFTER_TASKS_MS),
            sealed: None,
            version: Version::FIRST,
        }
    }

    /// Extends the group's life to that of a task that joins it. Returns whether anything changed.
    pub fn outlive(&mut self, task_expires: Timestamp) -> bool {
        let too_short = self.expires < task_expires;
        if too_short {
            self.expires = task_expires.plus_millis(EXPIRES_AFTER_TASKS_MS);
        }
        too_short
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_outlives_its_tasks_and_rarely_moves_its_end() {
        let at = Timestamp::from_millis;
        let id = "AAAAAAAAQACAAAAAAAAAAA".parse().unwrap();
        let mut group = TaskGroup::new(id, "-".parse().unwrap(), at(1_000));
        assert_eq!(group.expires, at(1_000 + DAY_MS));
        assert!(!group.outlive(at(2_000)));
        assert!(group.outlive(at(1_001 + DAY_MS)));
        assert_eq!(group.expires, at(1_001 + 2 * DAY_MS));
    }
}
