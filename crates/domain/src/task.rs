//! Tasks: their definition, their state, and the transitions between states.
//!
//! The definition never changes, except for the priority. Each run is one attempt. Other modules
//! can read the fields of a task, and cannot write them. A transition consumes the task and returns
//! it with its events, or returns an error. So no caller can forget a check:
//!
//! ```compile_fail,E0596
//! fn assign(task: &mut domain::task::Task) {
//!     task.runs.clear();
//! }
//! ```

use std::ops::Deref;
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
pub use moves::{ExceptionReason, MAX_RUNS, TaskEvent, Transition, TransitionError};
pub use priority::Priority;
pub use run::{Claim, End, EndReason, Run, RunDocument, StartReason, TaskState};

/// The fields of a task. Only the store and tests make a task of them.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredTask {
    pub id: TaskId,
    /// Shared, because it may be large and events contain the complete task.
    pub definition: Arc<TaskDefinition>,
    /// The priority of the definition, until it is changed.
    pub priority: Priority,
    /// How many more runs may be lost to their workers and retried.
    pub retries_left: u32,
    /// Oldest first; the index of a run is its id.
    pub runs: Vec<Run>,
    pub version: Version,
}

/// Its fields are those of [`StoredTask`], and only its moves change them.
#[derive(Clone, Debug, PartialEq)]
pub struct Task(StoredTask);

impl Deref for Task {
    type Target = StoredTask;

    fn deref(&self) -> &StoredTask {
        &self.0
    }
}

impl Task {
    /// A task that waits for its dependencies.
    pub fn new(id: TaskId, definition: TaskDefinition) -> Self {
        Self(StoredTask {
            id,
            priority: definition.priority,
            retries_left: definition.retries,
            definition: Arc::new(definition),
            runs: Vec::new(),
            version: Version::FIRST,
        })
    }

    /// For the store, which loads rows, and for tests: it checks nothing.
    pub fn from_stored(stored: StoredTask) -> Self {
        Self(stored)
    }

    pub fn into_stored(self) -> StoredTask {
        self.0
    }

    /// The task after the store has written it.
    pub fn with_version(mut self, version: Version) -> Self {
        self.0.version = version;
        self
    }

    /// The state of the last run.
    pub fn state(&self) -> TaskState {
        self.runs.last().map_or(TaskState::Unscheduled, Run::state)
    }

    pub fn run(&self, run_id: u32) -> Option<&Run> {
        self.runs.get(run_id as usize)
    }

    /// The last run with its id.
    pub fn last_run(&self) -> Option<(u32, &Run)> {
        let run_id = u32::try_from(self.runs.len().checked_sub(1)?).ok()?;
        Some((run_id, self.runs.last()?))
    }

    pub fn is_past_deadline(&self, now: Timestamp) -> bool {
        self.definition.deadline < now
    }

    /// The definition as clients see it: with the current priority.
    pub fn document(&self) -> TaskDocument {
        let mut document = TaskDocument::from(&*self.definition);
        self.priority.as_str().clone_into(&mut document.priority);
        document
    }

    /// The status as clients see it.
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
