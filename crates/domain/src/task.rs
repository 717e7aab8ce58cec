//! A task: what is to be done, where it stands, and the moves that this allows.
//!
//! The definition never changes, the priority excepted; each run is one try. A move consumes the task and
//! gives it back together with what there is to tell of it, or says why it cannot be made.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::Version;
use crate::id::TaskId;
use crate::time::Timestamp;

mod definition;
mod group;
mod limits;
mod moves;
mod priority;
mod run;

pub use definition::{BadDefinition, Requires, TaskDefinition, TaskDocument};
pub use group::TaskGroup;
pub use limits::{InvalidTask, TaskLimits};
pub use moves::{ExceptionReason, MAX_RUNS, Moved, Refused, TaskNews};
pub use priority::{BadPriority, Priority};
pub use run::{BadEndReason, Claim, End, EndReason, Run, RunDocument, StartReason, TaskState};

#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    pub id: TaskId,
    /// Shared, because it may be large and events hold the whole task.
    pub definition: Arc<TaskDefinition>,
    /// The definition's, until it is changed.
    pub priority: Priority,
    /// How often a run that is lost to its worker is still tried again.
    pub retries_left: u32,
    /// Oldest first; the place of a run is its number.
    pub runs: Vec<Run>,
    pub version: Version,
}

impl Task {
    /// A task that waits for its dependencies.
    pub fn new(id: TaskId, definition: TaskDefinition) -> Self {
        Self {
            id,
            priority: definition.priority,
            retries_left: definition.retries,
            definition: Arc::new(definition),
            runs: Vec::new(),
            version: Version::FIRST,
        }
    }

    /// That of the last run.
    pub fn state(&self) -> TaskState {
        self.runs.last().map_or(TaskState::Unscheduled, Run::state)
    }

    pub fn run(&self, run_id: u32) -> Option<&Run> {
        self.runs.get(run_id as usize)
    }

    /// The last run with its number.
    pub fn last_run(&self) -> Option<(u32, &Run)> {
        let run_id = u32::try_from(self.runs.len().checked_sub(1)?).ok()?;
        Some((run_id, self.runs.last()?))
    }

    pub fn is_past_deadline(&self, now: Timestamp) -> bool {
        self.definition.deadline < now
    }

    /// The definition as clients see it: with the priority of now.
    pub fn document(&self) -> TaskDocument {
        let mut document = TaskDocument::from(&*self.definition);
        self.priority.as_str().clone_into(&mut document.priority);
        document
    }

    /// Where it stands, as clients see it.
    pub fn status(&self) -> Value {
        let definition = &self.definition;
        let (provisioner_id, worker_type) = definition.task_queue_id.parts();
        let runs = self.runs.iter().enumerate();
        json!({
            "taskId": self.id.as_str(),
            "provisionerId": provisioner_id,
            "workerType": worker_type,
            "taskQueueId": definition.task_queue_id.as_str(),
            "schedulerId": definition.scheduler_id.as_str(),
            "projectId": definition.project_id.as_str(),
            "taskGroupId": definition.task_group_id.as_str(),
            "priority": self.priority.as_str(),
            "deadline": definition.deadline.to_string(),
            "expires": definition.expires.to_string(),
            "retriesLeft": self.retries_left,
            "state": self.state().as_str(),
            "runs": runs.map(|(run_id, run)| run.status(run_id)).collect::<Vec<_>>(),
        })
    }
}
