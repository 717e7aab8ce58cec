//! What the queue knows of a worker: when it claimed, what it ran, whether it is quarantined.

use serde::{Deserialize, Serialize};

use crate::id::WorkerKey;
use crate::time::Timestamp;

/// One run of one task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskRun {
    pub task_id: String,
    pub run_id: u32,
}

/// Who quarantined a worker, until when, and why. Kept for ever.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QuarantineEntry {
    pub updated_at: String,
    pub client_id: String,
    pub quarantine_until: String,
    pub quarantine_info: String,
}

/// A worker as the queue sees it; the pool's id is the task queue's id (RFC 145).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueWorker {
    pub key: WorkerKey,
    pub first_claim: Timestamp,
    pub last_date_active: Option<Timestamp>,
    pub expires: Timestamp,
    /// Newest last, at most 20.
    pub recent_tasks: Vec<TaskRun>,
    pub quarantine_until: Option<Timestamp>,
    pub quarantine_details: Vec<QuarantineEntry>,
}

impl QueueWorker {
    pub const MAX_RECENT_TASKS: usize = 20;

    pub fn is_quarantined(&self, now: Timestamp) -> bool {
        self.quarantine_until.is_some_and(|until| until >= now)
    }

    /// A quarantined worker is remembered for as long as its quarantine lasts.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expires < now && !self.is_quarantined(now)
    }
}
