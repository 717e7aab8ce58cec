//! The queue's record of a worker: its claims, its recent tasks, its quarantine.

use serde::{Deserialize, Serialize};

use crate::id::WorkerKey;
use crate::time::{DAY_MS, Timestamp};

/// One run of one task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskRun {
    pub task_id: String,
    pub run_id: u32,
}

/// One quarantine of a worker: its author, its end and its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QuarantineEntry {
    pub updated_at: String,
    pub client_id: String,
    pub quarantine_until: String,
    pub quarantine_info: String,
}

/// A worker in the queue; the pool's id is the task queue's id (RFC 145).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueWorker {
    pub key: WorkerKey,
    pub first_claim: Timestamp,
    pub last_date_active: Option<Timestamp>,
    /// When its last run ended: it has been idle since, unless it has another run.
    pub last_task_ended: Option<Timestamp>,
    pub expires: Timestamp,
    /// Newest last, at most [`Self::MAX_RECENT_TASKS`].
    pub recent_tasks: Vec<TaskRun>,
    pub quarantine_until: Option<Timestamp>,
    pub quarantine_details: Vec<QuarantineEntry>,
}

impl QueueWorker {
    pub const MAX_RECENT_TASKS: usize = 20;
    /// Older quarantines are dropped.
    pub const MAX_QUARANTINE_DETAILS: usize = 200;

    /// A worker that the queue has not seen before.
    pub fn new(key: WorkerKey, now: Timestamp, expires: Timestamp) -> Self {
        Self {
            key,
            first_claim: now,
            last_date_active: None,
            last_task_ended: None,
            expires,
            recent_tasks: Vec::new(),
            quarantine_until: None,
            quarantine_details: Vec::new(),
        }
    }

    /// Remembers the last runs that the worker claimed.
    pub fn note_claims(&mut self, claimed: impl IntoIterator<Item = TaskRun>) {
        self.recent_tasks.extend(claimed);
        let n_recent = self.recent_tasks.len();
        let n_too_many = n_recent.saturating_sub(Self::MAX_RECENT_TASKS);
        self.recent_tasks.drain(..n_too_many);
    }

    /// Keeps the worker from claiming work until this time; a time in the past ends the quarantine.
    pub fn quarantine(
        &mut self,
        until: Timestamp,
        client_id: &str,
        reason: Option<String>,
        now: Timestamp,
    ) {
        self.quarantine_until = Some(until);
        self.expires = self.expires.max(now.plus_millis(DAY_MS));
        self.quarantine_details.push(QuarantineEntry {
            updated_at: now.to_string(),
            client_id: client_id.to_owned(),
            quarantine_until: until.to_string(),
            quarantine_info: reason.unwrap_or_else(|| "[unspecified]".to_owned()),
        });
        let n_details = self.quarantine_details.len();
        let n_too_many = n_details.saturating_sub(Self::MAX_QUARANTINE_DETAILS);
        self.quarantine_details.drain(..n_too_many);
    }

    pub fn is_quarantined(&self, now: Timestamp) -> bool {
        self.quarantine_until.is_some_and(|until| until >= now)
    }

    /// A quarantined worker is remembered until its quarantine ends.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expires < now && !self.is_quarantined(now)
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn worker() -> QueueWorker {
        let key = WorkerKey {
            pool_id: "a/b".parse().unwrap(),
            group: "g".parse().unwrap(),
            id: "w".parse().unwrap(),
        };
        QueueWorker::new(key, at(0), at(10))
    }

    #[test]
    fn a_quarantine_lasts_until_its_moment_and_is_remembered_so_long() {
        let mut worker = worker();
        worker.quarantine(at(900), "me", None, at(5));
        assert!(worker.is_quarantined(at(900)) && !worker.is_quarantined(at(901)));
        assert_eq!(worker.expires, at(5 + DAY_MS));
        assert_eq!(
            worker.quarantine_details[0].quarantine_info,
            "[unspecified]"
        );
        worker.quarantine(at(0), "me", Some("well again".to_owned()), at(6));
        assert!(!worker.is_quarantined(at(6)));
    }

    #[test]
    fn the_last_quarantines_are_remembered() {
        let limit = QueueWorker::MAX_QUARANTINE_DETAILS;
        for count in sizes_around("domain::queue_worker::MAX_QUARANTINE_DETAILS", limit) {
            let mut worker = worker();
            for number in 0..count {
                worker.quarantine(at(9), "me", Some(number.to_string()), at(6));
            }
            let kept = worker.quarantine_details.iter();
            let kept: Vec<_> = kept.map(|entry| entry.quarantine_info.clone()).collect();
            let last = count.saturating_sub(limit)..count;
            assert_eq!(
                kept,
                last.map(|number| number.to_string()).collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn the_last_claims_are_remembered_whether_they_come_together_or_one_by_one() {
        let limit = QueueWorker::MAX_RECENT_TASKS;
        for count in sizes_around("domain::queue_worker::MAX_RECENT_TASKS", limit) {
            let claim = |number: usize| TaskRun {
                task_id: number.to_string(),
                run_id: 0,
            };
            let (mut together, mut one_by_one) = (worker(), worker());
            together.note_claims((0..count).map(claim));
            (0..count).for_each(|number| one_by_one.note_claims([claim(number)]));
            let last = count.saturating_sub(limit)..count;
            assert_eq!(together.recent_tasks, last.map(claim).collect::<Vec<_>>());
            assert_eq!(together.recent_tasks, one_by_one.recent_tasks);
        }
    }
}
