//! The events of tasks, their artifacts and their groups.

use serde_json::{Value, json};

use crate::task::{Claim, Priority, Run, Task, TaskEvent, TaskGroup};
use crate::time::Timestamp;

/// An artifact that a run has created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactEvent {
    pub storage_type: String,
    pub name: String,
    pub expires: Timestamp,
    pub content_type: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskGroupChange {
    /// All its tasks are resolved.
    Resolved,
    Sealed,
    PriorityChanged {
        new: Priority,
        tasks_affected: u64,
    },
}

impl TaskGroupChange {
    pub(super) fn exchange(self) -> &'static str {
        match self {
            Self::Resolved => "task-group-resolved",
            Self::Sealed => "task-group-sealed",
            Self::PriorityChanged { .. } => "task-group-priority-changed",
        }
    }

    pub(super) fn payload(self, group: &TaskGroup) -> Value {
        let mut payload = json!({
            "version": 1,
            "taskGroupId": group.id.as_str(),
            "schedulerId": group.scheduler_id.as_str(),
        });
        match self {
            Self::Resolved | Self::Sealed => {
                payload["expires"] = json!(group.expires.to_string());
                if let Some(at) = group.sealed {
                    payload["sealed"] = json!(at.to_string());
                }
            }
            Self::PriorityChanged {
                new,
                tasks_affected,
            } => {
                payload["newPriority"] = json!(new.as_str());
                payload["tasksAffected"] = json!(tasks_affected);
            }
        }
        payload
    }
}

impl ArtifactEvent {
    pub(super) fn payload(&self, task: &Task, run_id: u32) -> Value {
        let mut payload = about_run(task, Some(run_id));
        payload["artifact"] = json!({
            "storageType": self.storage_type,
            "name": self.name,
            "expires": self.expires.to_string(),
            "contentType": self.content_type,
        });
        payload
    }
}

pub(super) fn exchange(news: TaskEvent) -> &'static str {
    match news {
        TaskEvent::Defined => "task-defined",
        TaskEvent::Pending(_) => "task-pending",
        TaskEvent::Running(_) => "task-running",
        TaskEvent::Completed(_) => "task-completed",
        TaskEvent::Failed(_) => "task-failed",
        TaskEvent::Exception(_) => "task-exception",
        TaskEvent::PriorityChanged { .. } => "task-priority-changed",
    }
}

/// A word without a value is `_`.
pub(super) fn routing_key(task: &Task, run_id: Option<u32>) -> String {
    let definition = &task.definition;
    let (left, right) = definition.task_queue_id.parts();
    let claim = claim(task, run_id);
    let (group, worker) = claim.map_or(("_", "_"), |claim| {
        (claim.group.as_str(), claim.worker_id.as_str())
    });
    let run_id = run_id.map_or_else(|| "_".to_owned(), |run_id| run_id.to_string());
    format!(
        "primary.{}.{run_id}.{group}.{worker}.{left}.{right}.{}.{}._",
        task.id, definition.scheduler_id, definition.task_group_id
    )
}

pub(super) fn payload(news: TaskEvent, task: &Task) -> Value {
    let mut payload = about_run(task, news.run_id());
    match news {
        TaskEvent::PriorityChanged { old } => {
            payload["oldPriority"] = json!(old.as_str());
            payload["newPriority"] = json!(task.priority.as_str());
            return payload;
        }
        TaskEvent::Running(run_id) => {
            if let Some(claim) = claim(task, Some(run_id)) {
                payload["takenUntil"] = json!(claim.taken_until.to_string());
            }
        }
        TaskEvent::Defined
        | TaskEvent::Pending(_)
        | TaskEvent::Completed(_)
        | TaskEvent::Failed(_)
        | TaskEvent::Exception(_) => {}
    }
    payload["task"] = json!({ "tags": task.definition.tags });
    payload
}

fn about_run(task: &Task, run_id: Option<u32>) -> Value {
    let mut payload = json!({"version": 1, "status": task.status()});
    if let Some(run_id) = run_id {
        payload["runId"] = json!(run_id);
    }
    if let Some(claim) = claim(task, run_id) {
        payload["workerGroup"] = json!(claim.group.as_str());
        payload["workerId"] = json!(claim.worker_id.as_str());
    }
    payload
}

fn claim(task: &Task, run_id: Option<u32>) -> Option<&Claim> {
    run_id
        .and_then(|run_id| task.run(run_id))
        .and_then(|run: &Run| run.claim.as_ref())
}

#[cfg(test)]
mod tests {
    use contract::Schemas;

    use super::super::{EXCHANGES, EventBody, Exchange};
    use super::*;
    use crate::task::{ExceptionReason, TaskDocument};

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn task() -> Task {
        let id = "AAAAAAAAQACAAAAAAAAAAA".parse().unwrap();
        let document: TaskDocument = serde_json::from_value(json!({
            "taskQueueId": "proj-x/ci", "schedulerId": "me", "dependencies": [],
            "requires": "all-completed", "routes": ["index.a.b"], "priority": "low", "retries": 5,
            "created": "1970-01-01T00:00:00Z", "deadline": "1970-01-02T00:00:00Z", "scopes": [],
            "payload": {}, "metadata": {}, "tags": {"kind": "test"}, "extra": {},
        }))
        .unwrap();
        let definition = document.define(&id).unwrap();
        Task::new(id, definition)
    }

    /// Events of a task with every field set.
    fn everything() -> Vec<EventBody> {
        let task = task().schedule(at(1)).unwrap().task;
        let (group, worker) = ("g".parse().unwrap(), "w".parse().unwrap());
        let running = task.claim(0, &group, &worker, at(2), at(9)).unwrap().task;
        let gone = ExceptionReason::WorkerShutdown;
        let task = running.report_exception(0, gone, at(3)).unwrap().task;
        let task = task.change_priority(Priority::High).unwrap().task;
        let old = Priority::Low;
        let mut told: Vec<EventBody> = [
            TaskEvent::Defined,
            TaskEvent::Pending(1),
            TaskEvent::Running(0),
            TaskEvent::Completed(0),
            TaskEvent::Failed(0),
            TaskEvent::Exception(0),
            TaskEvent::PriorityChanged { old },
        ]
        .into_iter()
        .map(|news| EventBody::Task {
            news,
            task: Box::new(task.clone()),
        })
        .collect();
        let definition = &task.definition;
        let mut group = TaskGroup::new(
            definition.task_group_id.clone(),
            definition.scheduler_id.clone(),
            definition.expires,
        );
        group.sealed = Some(at(5));
        let priority = TaskGroupChange::PriorityChanged {
            new: Priority::High,
            tasks_affected: 2,
        };
        for change in [TaskGroupChange::Resolved, TaskGroupChange::Sealed, priority] {
            let group = Box::new(group.clone());
            told.push(EventBody::TaskGroup { change, group });
        }
        told.push(EventBody::Artifact {
            artifact: Box::new(ArtifactEvent {
                storage_type: "link".to_owned(),
                name: "public/a".to_owned(),
                expires: at(6),
                content_type: "text/plain".to_owned(),
            }),
            run_id: 0,
            task: Box::new(task),
        });
        told
    }

    #[test]
    fn every_message_fits_its_schema_and_every_key_its_words() {
        let mut exchanges = Vec::new();
        for body in everything() {
            let exchange = body.exchange();
            let schema = format!("queue/v1/{}", exchange.schema);
            Schemas::new().check(&schema, &body.payload(at(7))).unwrap();
            let (key, words) = (body.routing_key(), exchange.key.words());
            let given: Vec<&str> = key.split('.').collect();
            assert_eq!(given.len(), words.len(), "{key}");
            for (given, word) in given.iter().zip(words) {
                assert!(word.constant.is_none_or(|constant| constant == *given));
                assert!(*given != "_" || !word.required, "{key}: {}", word.name);
            }
            exchanges.push(exchange.method());
        }
        exchanges.sort_unstable();
        let queue = EXCHANGES
            .iter()
            .filter(|exchange| exchange.service == "queue");
        let mut names: Vec<_> = queue.map(Exchange::method).collect();
        names.sort_unstable();
        assert_eq!(exchanges, names);
    }

    #[test]
    fn the_routing_key_names_the_worker_of_a_claimed_run_only() {
        let told = everything();
        assert_eq!(
            told[2].routing_key(),
            "primary.AAAAAAAAQACAAAAAAAAAAA.0.g.w.proj-x.ci.me.AAAAAAAAQACAAAAAAAAAAA._"
        );
        assert_eq!(
            told[1].routing_key(),
            "primary.AAAAAAAAQACAAAAAAAAAAA.1._._.proj-x.ci.me.AAAAAAAAQACAAAAAAAAAAA._"
        );
        assert_eq!(told[7].routing_key(), "primary.AAAAAAAAQACAAAAAAAAAAA.me._");
    }

    #[test]
    fn task_messages_use_their_routes_too_and_are_ordered_by_pool() {
        let told = everything();
        assert_eq!(told[0].routes(), ["route.index.a.b"]);
        assert_eq!(told[0].pool_id().unwrap().as_str(), "proj-x/ci");
        assert!(told[7].routes().is_empty());
        assert_eq!(told[7].pool_id(), None);
    }

    #[test]
    fn a_running_message_says_until_when_and_all_tell_the_tags() {
        let payload = everything()[2].payload(at(7));
        assert_eq!(payload["takenUntil"], "1970-01-01T00:00:00.009Z");
        assert_eq!(payload["task"], json!({"tags": {"kind": "test"}}));
    }
}
