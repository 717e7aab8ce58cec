//! Waits that ended, read from messages of the queue.
//!
//! Each wait is in exactly one message: of the claim of its run, or of the end of a run that no
//! worker had claimed.

use serde::Deserialize;

use crate::id::{BadId, PoolId, TaskId, WorkerKey};
use crate::time::{BadTimestamp, Timestamp};

/// The exchanges of the queue whose messages end waits.
pub const WAIT_EXCHANGES: [&str; 2] = [
    "exchange/taskcluster-queue/v1/task-running",
    "exchange/taskcluster-queue/v1/task-exception",
];

/// A run that has stopped waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedWait {
    pub task_id: TaskId,
    pub run_id: usize,
    pub queue: PoolId,
    pub since: Timestamp,
    pub until: Timestamp,
    /// The worker that claimed it.
    pub worker: Option<WorkerKey>,
}

/// The message of the queue is not valid.
#[derive(Debug, thiserror::Error)]
pub enum BadWait {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Id(#[from] BadId),
    #[error(transparent)]
    Time(#[from] BadTimestamp),
    #[error("it is about run {0}, which its status does not have")]
    NoSuchRun(usize),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message {
    status: Status,
    run_id: usize,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    task_id: String,
    task_queue_id: String,
    runs: Vec<Run>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Run {
    worker_group: Option<String>,
    worker_id: Option<String>,
    scheduled: String,
    started: Option<String>,
    resolved: Option<String>,
}

impl EndedWait {
    /// Parses a message of one of the exchanges. `None`: the wait of its run ended before.
    pub fn of_message(body: &[u8]) -> Result<Option<Self>, BadWait> {
        let Message { status, run_id } = serde_json::from_slice(body)?;
        let run = status.runs.get(run_id).ok_or(BadWait::NoSuchRun(run_id))?;
        let queue: PoolId = status.task_queue_id.parse()?;
        let end = match (&run.started, &run.resolved) {
            // A claimed run that has ended: its claim ended the wait.
            (Some(_), Some(_)) | (None, None) => return Ok(None),
            (Some(started), None) => started,
            (None, Some(resolved)) => resolved,
        };
        let worker = match (&run.worker_group, &run.worker_id) {
            (Some(group), Some(id)) => Some(WorkerKey::parse(queue.clone(), group, id)?),
            (Some(_) | None, _) => None,
        };
        Ok(Some(Self {
            task_id: status.task_id.parse()?,
            run_id,
            since: run.scheduled.parse()?,
            until: end.parse()?,
            queue,
            worker,
        }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn message(run: Value) -> Vec<u8> {
        let status = json!({"taskId": "00000001QACAAAAAAAAAAA", "taskQueueId": "a/b",
            "runs": [run]});
        json!({"status": status, "runId": 0})
            .to_string()
            .into_bytes()
    }

    #[test]
    fn a_claim_or_an_end_without_a_claim_ends_a_wait() {
        let at = |second: u32| format!("2026-09-21T14:13:{second:02}.000Z");
        let seconds = |run: Value| {
            let wait = EndedWait::of_message(&message(run)).unwrap();
            wait.map(|wait| (wait.until.millis_since(wait.since), wait.worker.is_some()))
        };
        let claimed = json!({"scheduled": at(1), "started": at(4), "workerGroup": "g",
            "workerId": "w"});
        assert_eq!(seconds(claimed.clone()), Some((3_000, true)));
        let canceled = json!({"scheduled": at(1), "resolved": at(9)});
        assert_eq!(seconds(canceled), Some((8_000, false)));
        let mut lost = claimed;
        lost["resolved"] = json!(at(20));
        assert_eq!(seconds(lost), None);
    }

    #[test]
    fn a_message_about_a_missing_run_is_refused() {
        let status = json!({"taskId": "00000001QACAAAAAAAAAAA", "taskQueueId": "a/b", "runs": []});
        let body = json!({"status": status, "runId": 2}).to_string();
        let problem = EndedWait::of_message(body.as_bytes()).unwrap_err();
        assert_eq!(
            problem.to_string(),
            "it is about run 2, which its status does not have"
        );
    }
}
