//! What became of the runs that workers had claimed: told by the queue, counted by pool.
//!
//! Every outcome is told once, by the message of the change that ended the run: a run that was lost and is tried
//! again by the message that the next one waits, any other by its own. So old runs that a status repeats are not
//! taken for new ones.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::id::{BadId, TaskId, WorkerKey};
use crate::task::{EndReason, StartReason, TaskState};
use crate::time::{BadTimestamp, HOUR_MS, Timestamp};

/// The exchanges of the queue whose messages tell of outcomes.
pub const OUTCOME_EXCHANGES: [&str; 4] = [
    "exchange/taskcluster-queue/v1/task-completed",
    "exchange/taskcluster-queue/v1/task-failed",
    "exchange/taskcluster-queue/v1/task-exception",
    "exchange/taskcluster-queue/v1/task-pending",
];

/// How one run ended, and on which worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOutcome {
    pub worker: WorkerKey,
    pub task_id: TaskId,
    pub run_id: u32,
    /// Its state is the outcome.
    pub reason: EndReason,
    pub resolved: Timestamp,
}

/// A message of the queue that makes no sense.
#[derive(Debug, thiserror::Error)]
pub enum BadMessage {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Id(#[from] BadId),
    #[error(transparent)]
    Time(#[from] BadTimestamp),
    #[error("it is about run {0}, which its status does not have")]
    NoSuchRun(usize),
    #[error("run {0} has ended, but its status does not say when")]
    Never(usize),
}

/// As far as it matters here; the queues of other deployments may say more.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message {
    status: Status,
    run_id: Option<usize>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    task_id: String,
    task_queue_id: String,
    #[serde(default)]
    runs: Vec<Run>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Run {
    /// Newer queues may know further reasons; of those, only this one matters.
    reason_created: String,
    reason_resolved: Option<EndReason>,
    worker_group: Option<String>,
    worker_id: Option<String>,
    resolved: Option<String>,
}

impl RunOutcome {
    /// Reads a message of one of the exchanges. `None`: no run has ended by what it tells, or none that a worker
    /// had claimed.
    pub fn of_message(body: &[u8]) -> Result<Option<Self>, BadMessage> {
        let Message { status, run_id } = serde_json::from_slice(body)?;
        let told = match (run_id, status.runs.len().checked_sub(1)) {
            (Some(told), _) | (None, Some(told)) => told,
            // A task that ended before anything was tried.
            (None, None) => return Ok(None),
        };
        let run = status.runs.get(told);
        let run = run.ok_or(BadMessage::NoSuchRun(told))?;
        let ended = match (run.reason_resolved, told.checked_sub(1)) {
            (Some(_), _) => told,
            (None, Some(before)) if is_another_try(&run.reason_created) => before,
            (None, _) => return Ok(None),
        };
        let Run {
            reason_resolved: Some(reason),
            worker_group: Some(group),
            worker_id: Some(worker_id),
            resolved,
            ..
        } = &status.runs[ended]
        else {
            return Ok(None);
        };
        let resolved = resolved.as_ref().ok_or(BadMessage::Never(ended))?;
        Ok(Some(Self {
            worker: WorkerKey {
                pool_id: status.task_queue_id.parse()?,
                group: group.parse()?,
                id: worker_id.parse()?,
            },
            task_id: status.task_id.parse()?,
            run_id: u32::try_from(ended).map_err(|_| BadMessage::NoSuchRun(ended))?,
            reason: *reason,
            resolved: resolved.parse()?,
        }))
    }
}

/// Whether such a run is there because the one before it was lost.
fn is_another_try(reason_created: &str) -> bool {
    [StartReason::Retry, StartReason::TaskRetry]
        .iter()
        .any(|reason| reason.as_str() == reason_created)
}

/// How many runs ended how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub completed: u64,
    pub failed: u64,
    /// By reason.
    pub exceptions: BTreeMap<&'static str, u64>,
}

impl Tally {
    pub fn add(&mut self, reason: EndReason, count: u64) {
        match reason.state() {
            TaskState::Completed => self.completed += count,
            TaskState::Failed => self.failed += count,
            TaskState::Exception
            | TaskState::Unscheduled
            | TaskState::Pending
            | TaskState::Running => {
                *self.exceptions.entry(reason.as_str()).or_default() += count;
            }
        }
    }

    pub fn exception(&self) -> u64 {
        self.exceptions.values().sum()
    }

    /// The part that completed, 0 to 1; of nothing, nothing is known.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a share for people; counts have fewer than 52 bits"
    )]
    pub fn success_rate(&self) -> Option<f64> {
        let total = self.completed + self.failed + self.exception();
        (total > 0).then(|| self.completed as f64 / total as f64)
    }
}

/// A time up to now over which outcomes are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub name: &'static str,
    hours: i64,
}

impl Window {
    /// The shortest first; each lies in the next.
    pub const ALL: [Self; 3] = [
        Self::of("1h", 1),
        Self::of("24h", 24),
        Self::of("7d", 7 * 24),
    ];

    const fn of(name: &'static str, hours: i64) -> Self {
        Self { name, hours }
    }

    /// Counts are kept by the hour, so a window begins with the hour in which its first moment lies.
    pub fn since(self, now: Timestamp) -> Timestamp {
        now.plus_millis(-self.hours * HOUR_MS).start_of(HOUR_MS)
    }
}

#[cfg(test)]
mod tests;
