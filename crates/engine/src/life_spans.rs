//! Spans of time in the lives of machines, for traces.

use domain::event::{EventBody, WorkerChange};
use domain::id::{LaunchConfigId, ProviderId, TaskId, WorkerKey};
use domain::phases::Phase;
use domain::task::{EndReason, Task, TaskEvent};
use domain::time::Timestamp;
use domain::worker::Worker;

/// A span that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LifeSpan {
    pub worker: WorkerKey,
    pub part: LifePart,
    pub since: Timestamp,
    pub until: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LifePart {
    /// All of it, from the row of the worker to the end of its machine.
    Life {
        provider_id: ProviderId,
        launch_config_id: Option<LaunchConfigId>,
        has_registered: bool,
        end_reason: Option<String>,
    },
    /// A step until it is at work.
    Step(Phase),
    /// A run of a task.
    Run {
        task_id: TaskId,
        run_id: u32,
        end: EndReason,
    },
}

/// Gets each span after the commit of its end. It must not block.
pub trait LifeObserver: Send + Sync {
    fn observe(&self, span: LifeSpan);
}

impl LifeSpan {
    /// The span that an event ends, if it ends one.
    pub(crate) fn of_event(body: &EventBody, now: Timestamp) -> Option<Self> {
        match body {
            EventBody::Worker {
                change: WorkerChange::Stopped,
                worker,
            } => Some(Self::life(worker, now)),
            EventBody::Task {
                news: TaskEvent::Completed(run) | TaskEvent::Failed(run) | TaskEvent::Exception(run),
                task,
            } => Self::run(task, *run),
            EventBody::Worker { .. }
            | EventBody::Task { .. }
            | EventBody::PoolError { .. }
            | EventBody::PoolCreated { .. }
            | EventBody::PoolUpdated { .. }
            | EventBody::LaunchConfig { .. }
            | EventBody::Pause { .. }
            | EventBody::Artifact { .. }
            | EventBody::TaskGroup { .. }
            | EventBody::Client { .. }
            | EventBody::Role { .. }
            | EventBody::Image(_)
            | EventBody::Budget { .. } => None,
        }
    }

    fn life(worker: &Worker, now: Timestamp) -> Self {
        Self {
            worker: worker.key.clone(),
            part: LifePart::Life {
                provider_id: worker.provider_id.clone(),
                launch_config_id: worker.launch_config_id.clone(),
                has_registered: worker.terms.registered_at.is_some(),
                end_reason: worker.terms.end_reason.clone(),
            },
            since: worker.created,
            until: now,
        }
    }

    /// `None`: no worker had the run.
    fn run(task: &Task, run_id: u32) -> Option<Self> {
        let run = task.runs.get(usize::try_from(run_id).ok()?)?;
        let (claim, end) = (run.claim.as_ref()?, run.end.as_ref()?);
        Some(Self {
            worker: WorkerKey {
                pool_id: task.definition.task_queue_id.clone(),
                group: claim.group.clone(),
                id: claim.worker_id.clone(),
            },
            part: LifePart::Run {
                task_id: task.id.clone(),
                run_id,
                end: end.reason,
            },
            since: claim.started,
            until: end.at,
        })
    }
}
