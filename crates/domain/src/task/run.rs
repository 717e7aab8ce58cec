//! Runs: each is one attempt at a task. It is pending, then claimed, then resolved.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::{WorkerGroup, WorkerId, names};
use crate::time::Timestamp;

/// The state of a task or a run; a run is never unscheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskState {
    Unscheduled,
    Pending,
    Running,
    Completed,
    Failed,
    Exception,
}

/// Why a run was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StartReason {
    Scheduled,
    /// The previous run was lost with its worker.
    Retry,
    /// The worker reported the task as intermittent.
    TaskRetry,
    /// A client asked for it.
    Rerun,
    /// The task ended before it was scheduled; this run has the reason.
    Exception,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndReason {
    Completed,
    Failed,
    DeadlineExceeded,
    Canceled,
    ClaimExpired,
    WorkerShutdown,
    MalformedPayload,
    ResourceUnavailable,
    InternalError,
    IntermittentTask,
    Superseded,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub reason: StartReason,
    pub scheduled: Timestamp,
    /// The worker that has the run, or last had it.
    pub claim: Option<Claim>,
    pub end: Option<End>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub group: WorkerGroup,
    pub worker_id: WorkerId,
    pub started: Timestamp,
    /// The worker must reclaim the run before this time.
    pub taken_until: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    pub reason: EndReason,
    pub at: Timestamp,
}

/// A run in JSON: in a column of a task, and in its status (there with its id and state).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunDocument {
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub run_id: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub state: Option<String>,
    pub reason_created: StartReason,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason_resolved: Option<EndReason>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub worker_group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub worker_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub taken_until: Option<String>,
    pub scheduled: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub started: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub resolved: Option<String>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRun {
    #[error(transparent)]
    Id(#[from] crate::id::BadId),
    #[error(transparent)]
    Time(#[from] crate::time::BadTimestamp),
    #[error("a claimed run needs a group, a worker, a start and an end of its claim")]
    HalfClaimed,
    #[error("an ended run needs a moment and a reason")]
    HalfEnded,
}

names! {
    TaskState, "not the state of a task",
    Unscheduled = "unscheduled",
    Pending = "pending",
    Running = "running",
    Completed = "completed",
    Failed = "failed",
    Exception = "exception",
}

impl EndReason {
    /// Whether a task is over with a run that ended like this, unless all its retries were used up
    /// before.
    pub fn ends_task(self) -> bool {
        match self {
            Self::ClaimExpired | Self::WorkerShutdown | Self::IntermittentTask => false,
            Self::Completed
            | Self::Failed
            | Self::DeadlineExceeded
            | Self::Canceled
            | Self::MalformedPayload
            | Self::ResourceUnavailable
            | Self::InternalError
            | Self::Superseded => true,
        }
    }
}

impl TaskState {
    /// Whether the state is final.
    pub fn is_resolved(self) -> bool {
        match self {
            Self::Unscheduled | Self::Pending | Self::Running => false,
            Self::Completed | Self::Failed | Self::Exception => true,
        }
    }
}

names! {
    StartReason, "no reason for a run to begin",
    Scheduled = "scheduled",
    Retry = "retry",
    TaskRetry = "task-retry",
    Rerun = "rerun",
    Exception = "exception",
}

names! {
    EndReason, "no reason for a run to end",
    Completed = "completed",
    Failed = "failed",
    DeadlineExceeded = "deadline-exceeded",
    Canceled = "canceled",
    ClaimExpired = "claim-expired",
    WorkerShutdown = "worker-shutdown",
    MalformedPayload = "malformed-payload",
    ResourceUnavailable = "resource-unavailable",
    InternalError = "internal-error",
    IntermittentTask = "intermittent-task",
    Superseded = "superseded",
}

impl EndReason {
    /// The state of a run that ended for this reason.
    pub fn state(self) -> TaskState {
        match self {
            Self::Completed => TaskState::Completed,
            Self::Failed => TaskState::Failed,
            Self::DeadlineExceeded
            | Self::Canceled
            | Self::ClaimExpired
            | Self::WorkerShutdown
            | Self::MalformedPayload
            | Self::ResourceUnavailable
            | Self::InternalError
            | Self::IntermittentTask
            | Self::Superseded => TaskState::Exception,
        }
    }
}

impl Run {
    /// A run that waits for a worker.
    pub fn pending(reason: StartReason, now: Timestamp) -> Self {
        Self {
            reason,
            scheduled: now,
            claim: None,
            end: None,
        }
    }

    pub fn state(&self) -> TaskState {
        match (&self.end, &self.claim) {
            (Some(end), _) => end.reason.state(),
            (None, Some(_)) => TaskState::Running,
            (None, None) => TaskState::Pending,
        }
    }

    /// The claim, while the run is running.
    pub fn running(&self) -> Option<&Claim> {
        self.claim.as_ref().filter(|_| self.end.is_none())
    }

    /// The run as clients see it.
    pub(super) fn status(&self, run_id: usize) -> Value {
        let document = RunDocument {
            run_id: Some(run_id),
            state: Some(self.state().as_str().to_owned()),
            ..RunDocument::from(self)
        };
        serde_json::to_value(document).expect("texts and numbers always serialize")
    }
}

impl From<&Run> for RunDocument {
    fn from(run: &Run) -> Self {
        let claim = run.claim.as_ref();
        Self {
            run_id: None,
            state: None,
            reason_created: run.reason,
            reason_resolved: run.end.map(|end| end.reason),
            worker_group: claim.map(|claim| claim.group.to_string()),
            worker_id: claim.map(|claim| claim.worker_id.to_string()),
            taken_until: claim.map(|claim| claim.taken_until.to_string()),
            scheduled: run.scheduled.to_string(),
            started: claim.map(|claim| claim.started.to_string()),
            resolved: run.end.map(|end| end.at.to_string()),
        }
    }
}

impl TryFrom<RunDocument> for Run {
    type Error = BadRun;

    fn try_from(document: RunDocument) -> Result<Self, BadRun> {
        let claim = match (
            document.worker_group,
            document.worker_id,
            document.started,
            document.taken_until,
        ) {
            (None, None, None, None) => None,
            (Some(group), Some(worker_id), Some(started), Some(taken_until)) => Some(Claim {
                group: group.parse()?,
                worker_id: worker_id.parse()?,
                started: started.parse()?,
                taken_until: taken_until.parse()?,
            }),
            _ => return Err(BadRun::HalfClaimed),
        };
        let end = match (document.reason_resolved, document.resolved) {
            (None, None) => None,
            (Some(reason), Some(at)) => Some(End {
                reason,
                at: at.parse()?,
            }),
            _ => return Err(BadRun::HalfEnded),
        };
        Ok(Self {
            reason: document.reason_created,
            scheduled: document.scheduled.parse()?,
            claim,
            end,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claimed() -> Run {
        let at = Timestamp::from_millis;
        Run {
            claim: Some(Claim {
                group: "dc1".parse().unwrap(),
                worker_id: "host-7".parse().unwrap(),
                started: at(2_000),
                taken_until: at(3_000),
            }),
            ..Run::pending(StartReason::Retry, at(1_000))
        }
    }

    #[test]
    fn a_run_is_written_as_clients_know_it() {
        let mut run = claimed();
        assert_eq!(
            run.status(1),
            json!({
                "runId": 1, "state": "running", "reasonCreated": "retry", "workerGroup": "dc1",
                "workerId": "host-7", "takenUntil": "1970-01-01T00:00:03.000Z",
                "scheduled": "1970-01-01T00:00:01.000Z", "started": "1970-01-01T00:00:02.000Z",
            })
        );
        run.end = Some(End {
            reason: EndReason::ClaimExpired,
            at: Timestamp::from_millis(4_000),
        });
        let status = run.status(1);
        assert_eq!(status["state"], "exception");
        assert_eq!(status["reasonResolved"], "claim-expired");
        assert_eq!(status["resolved"], "1970-01-01T00:00:04.000Z");
        assert_eq!(run.running(), None);
    }

    #[test]
    fn writing_and_reading_a_run_agree() {
        let mut ended = claimed();
        ended.end = Some(End {
            reason: EndReason::Completed,
            at: Timestamp::from_millis(5),
        });
        let waiting = Run::pending(StartReason::TaskRetry, Timestamp::from_millis(7));
        for run in [claimed(), ended, waiting] {
            let text = serde_json::to_string(&RunDocument::from(&run)).unwrap();
            let read: RunDocument = serde_json::from_str(&text).unwrap();
            assert_eq!(Run::try_from(read), Ok(run));
        }
    }

    #[test]
    fn a_reason_has_one_name_in_json_and_elsewhere() {
        for reason in EndReason::ALL {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.as_str());
            assert_eq!(reason.as_str().parse(), Ok(reason));
        }
        assert!("fallen-over".parse::<EndReason>().is_err());
        for reason in [StartReason::Retry, StartReason::TaskRetry] {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.as_str());
        }
    }

    #[test]
    fn half_of_a_claim_or_of_an_end_is_refused() {
        let mut document = RunDocument::from(&claimed());
        document.started = None;
        assert_eq!(Run::try_from(document), Err(BadRun::HalfClaimed));
        let mut document = RunDocument::from(&claimed());
        document.resolved = Some("1970-01-01T00:00:04.000Z".to_owned());
        assert_eq!(Run::try_from(document), Err(BadRun::HalfEnded));
    }
}
