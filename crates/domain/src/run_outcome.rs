//! The outcomes of runs that workers had claimed, read from messages of the queue.
//!
//! Each outcome is in exactly one message: the message of the change that ended the run. If the run
//! is retried, that is the `task-pending` message of the next run. So the old runs that a status
//! repeats are not counted again.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::id::{BadId, TaskId, WorkerKey};
use crate::task::{EndReason, Priority, StartReason, TaskState};
use crate::time::{BadTimestamp, HOUR_MS, Timestamp};

/// The exchanges of the queue whose messages contain outcomes.
pub const OUTCOME_EXCHANGES: [&str; 4] = [
    "exchange/taskcluster-queue/v1/task-completed",
    "exchange/taskcluster-queue/v1/task-failed",
    "exchange/taskcluster-queue/v1/task-exception",
    "exchange/taskcluster-queue/v1/task-pending",
];

/// The exchange of the queue whose messages say which worker claimed a run.
pub const CLAIM_EXCHANGE: &str = "exchange/taskcluster-queue/v1/task-running";

/// How one run ended, and on which worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOutcome {
    pub worker: WorkerKey,
    pub task_id: TaskId,
    pub run_id: u32,
    /// The reason; its state is the outcome.
    pub reason: EndReason,
    pub resolved: Timestamp,
    /// When the worker claimed it, if the message says so.
    pub started: Option<Timestamp>,
}

/// A run that has ended, with the wait of its task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedRun {
    pub outcome: RunOutcome,
    /// When the task began to wait: at the first of the runs that replaced each other.
    pub waiting_since: Option<Timestamp>,
    pub priority: Option<Priority>,
}

/// A worker has claimed a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunClaim {
    pub worker: WorkerKey,
    pub at: Timestamp,
}

/// The content of a message about a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunNews {
    Claimed(RunClaim),
    Ended(EndedRun),
}

/// The message of the queue is not valid.
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

/// The fields that are read here; the queues of other deployments may send more.
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
    /// Older queues do not say it.
    priority: Option<String>,
    #[serde(default)]
    runs: Vec<Run>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Run {
    /// Newer queues may have further reasons.
    reason_created: String,
    reason_resolved: Option<EndReason>,
    worker_group: Option<String>,
    worker_id: Option<String>,
    scheduled: Option<String>,
    started: Option<String>,
    resolved: Option<String>,
}

impl RunOutcome {
    /// Parses a message of one of the exchanges. `None` if the message ends no run, or no run that
    /// a worker had claimed.
    pub fn of_message(body: &[u8]) -> Result<Option<Self>, BadMessage> {
        Ok(EndedRun::of_message(body)?.map(|ended| ended.outcome))
    }

    /// How long the task took, in milliseconds; `None` if it did not end by itself.
    pub fn duration_ms(&self) -> Option<i64> {
        let started = self.started.filter(|_| self.ended_by_itself())?;
        Some(self.resolved.millis_since(started).max(0))
    }

    /// Whether the task is over with this run, unless all its retries were used up before.
    pub fn ends_task(&self) -> bool {
        self.reason.ends_task()
    }

    fn ended_by_itself(&self) -> bool {
        match self.reason.state() {
            TaskState::Completed | TaskState::Failed => true,
            TaskState::Exception
            | TaskState::Unscheduled
            | TaskState::Pending
            | TaskState::Running => false,
        }
    }
}

impl EndedRun {
    /// Parses a message of one of the exchanges. `None` if the message ends no run, or no run that
    /// a worker had claimed.
    pub fn of_message(body: &[u8]) -> Result<Option<Self>, BadMessage> {
        Ok(match RunNews::of_message(body)? {
            Some(RunNews::Ended(ended)) => Some(ended),
            Some(RunNews::Claimed(_)) | None => None,
        })
    }

    fn of_runs(status: Status, last: usize) -> Result<Option<Self>, BadMessage> {
        let run = status.runs.get(last);
        let run = run.ok_or(BadMessage::NoSuchRun(last))?;
        let ended = match (run.reason_resolved, last.checked_sub(1)) {
            (Some(_), _) => last,
            (None, Some(before)) if is_retry(&run.reason_created) => before,
            (None, _) => return Ok(None),
        };
        let Run {
            reason_resolved: Some(reason),
            worker_group: Some(group),
            worker_id: Some(worker_id),
            started,
            resolved,
            ..
        } = &status.runs[ended]
        else {
            return Ok(None);
        };
        let resolved = resolved.as_ref().ok_or(BadMessage::Never(ended))?;
        let outcome = RunOutcome {
            worker: WorkerKey {
                pool_id: status.task_queue_id.parse()?,
                group: group.parse()?,
                id: worker_id.parse()?,
            },
            task_id: status.task_id.parse()?,
            run_id: u32::try_from(ended).map_err(|_| BadMessage::NoSuchRun(ended))?,
            reason: *reason,
            resolved: resolved.parse()?,
            started: started.as_ref().map(|at| at.parse()).transpose()?,
        };
        Ok(Some(Self {
            outcome,
            waiting_since: waiting_since(&status.runs[..=ended]),
            priority: status.priority.and_then(|name| name.parse().ok()),
        }))
    }
}

impl RunNews {
    /// Parses a message of one of the exchanges, or of [`CLAIM_EXCHANGE`]. `None`: neither has a
    /// worker claimed the run, nor has a claimed run ended.
    pub fn of_message(body: &[u8]) -> Result<Option<Self>, BadMessage> {
        let Message { status, run_id } = serde_json::from_slice(body)?;
        let last = match (run_id, status.runs.len().checked_sub(1)) {
            (Some(last), _) | (None, Some(last)) => last,
            // A task that ended before its first run.
            (None, None) => return Ok(None),
        };
        if let Some(run) = status.runs.get(last)
            && let (None, Some(group), Some(id), Some(started)) = (
                run.reason_resolved,
                &run.worker_group,
                &run.worker_id,
                &run.started,
            )
        {
            return Ok(Some(Self::Claimed(RunClaim {
                worker: WorkerKey {
                    pool_id: status.task_queue_id.parse()?,
                    group: group.parse()?,
                    id: id.parse()?,
                },
                at: started.parse()?,
            })));
        }
        Ok(EndedRun::of_runs(status, last)?.map(Self::Ended))
    }

    /// The claim that it shows.
    pub fn claim(&self) -> RunClaim {
        match self {
            Self::Claimed(claim) => claim.clone(),
            Self::Ended(EndedRun { outcome, .. }) => RunClaim {
                worker: outcome.worker.clone(),
                at: outcome.started.unwrap_or(outcome.resolved),
            },
        }
    }
}

/// When the first of the runs that led to the last one was scheduled. A rerun is a new task to the
/// fleet.
fn waiting_since(runs: &[Run]) -> Option<Timestamp> {
    let mut since = None;
    for run in runs.iter().rev() {
        since = run.scheduled.as_ref().and_then(|at| at.parse().ok());
        if !is_retry(&run.reason_created) {
            break;
        }
    }
    since
}

/// Whether the run replaces a lost run.
fn is_retry(reason_created: &str) -> bool {
    matches!(
        reason_created.parse(),
        Ok(StartReason::Retry | StartReason::TaskRetry)
    )
}

/// How many runs ended with each outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutcomeCounts {
    pub completed: u64,
    pub failed: u64,
    /// By reason.
    pub exceptions: BTreeMap<&'static str, u64>,
}

impl OutcomeCounts {
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

    /// The share of completed runs, 0 to 1; `None` without runs.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a share for people; counts have fewer than 52 bits"
    )]
    pub fn success_rate(&self) -> Option<f64> {
        let total = self.completed + self.failed + self.exception();
        (total > 0).then(|| self.completed as f64 / total as f64)
    }
}

/// A period up to now for which outcomes are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub name: &'static str,
    hours: i64,
}

impl Window {
    /// The shortest first; each is contained in the next.
    pub const ALL: [Self; 3] = [
        Self::of("1h", 1),
        Self::of("24h", 24),
        Self::of("7d", 7 * 24),
    ];

    const fn of(name: &'static str, hours: i64) -> Self {
        Self { name, hours }
    }

    /// Counts are kept by hour, so a window begins at the start of the hour that contains its first
    /// moment.
    pub fn since(self, now: Timestamp) -> Timestamp {
        now.plus_millis(-self.hours * HOUR_MS).start_of(HOUR_MS)
    }
}

#[cfg(test)]
mod tests;
