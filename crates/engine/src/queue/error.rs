//! Why a task or a task group cannot be created, changed or claimed.

use domain::id::{TaskGroupId, TaskId, WorkerKey};
use domain::task::TransitionError;
use domain::worker::WorkerState;
use store::StoreError;

use crate::configurations::PayloadError;

#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    #[error("There is no task {0}; was it ever created, or has it expired?")]
    NoSuchTask(TaskId),
    #[error("There is no task group {0}; was it ever created, or has it expired?")]
    NoSuchGroup(TaskGroupId),
    #[error("{0}")]
    Dependencies(String),
    #[error("{0}")]
    Conflict(String),
    /// The payload does not fit its schema.
    #[error("{0}")]
    InvalidPayload(String),
    #[error(
        "Worker {worker} is {state} and gets no tasks: it {}. It should shut down; `getWorker` of the worker manager \
         says more.",
        reason_for(*state)
    )]
    WorkerLeaving {
        worker: WorkerKey,
        state: WorkerState,
    },
    #[error("Worker {0} is quarantined, so it gets no work")]
    Quarantined(WorkerKey),
    #[error(transparent)]
    Refused(#[from] TransitionError),
    #[error(transparent)]
    Payload(#[from] PayloadError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn reason_for(state: WorkerState) -> &'static str {
    match state {
        WorkerState::Stopped => "has been removed",
        WorkerState::Stopping | WorkerState::Requested | WorkerState::Running => {
            "is being removed, as it was asked to or is past its time"
        }
    }
}
