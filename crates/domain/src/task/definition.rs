//! The definition of a task: typed here, JSON in requests, in the store and in replies.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Priority;
use crate::id::{BadId, BadName, PoolId, ProjectId, SchedulerId, TaskGroupId, TaskId};
use crate::time::{BadTimestamp, DAY_MS, Timestamp};

/// A task without an expiry expires this long after its deadline.
const EXPIRES_AFTER_DEADLINE_MS: i64 = 365 * DAY_MS;

/// Which dependencies must be resolved how before the task is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Requires {
    /// Each must be completed.
    AllCompleted,
    /// Each must be resolved.
    AllResolved,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TaskDefinition {
    /// Also the id of the pool that runs it (RFC 145).
    pub task_queue_id: PoolId,
    pub scheduler_id: SchedulerId,
    pub project_id: ProjectId,
    pub task_group_id: TaskGroupId,
    /// Without duplicates.
    pub dependencies: Vec<TaskId>,
    pub requires: Requires,
    pub routes: Vec<String>,
    pub priority: Priority,
    pub retries: u32,
    pub created: Timestamp,
    pub deadline: Timestamp,
    pub expires: Timestamp,
    pub scopes: Vec<String>,
    /// A matter between the task's author and its worker.
    pub payload: Value,
    pub metadata: Value,
    pub tags: BTreeMap<String, String>,
    pub extra: Value,
}

/// A task definition in JSON. Fields that `createTask` may omit are optional.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskDocument {
    pub provisioner_id: Option<String>,
    pub worker_type: Option<String>,
    pub task_queue_id: Option<String>,
    pub scheduler_id: String,
    pub project_id: Option<String>,
    pub task_group_id: Option<String>,
    pub dependencies: Vec<String>,
    pub requires: Requires,
    pub routes: Vec<String>,
    pub priority: String,
    pub retries: u32,
    pub created: String,
    pub deadline: String,
    pub expires: Option<String>,
    pub scopes: Vec<String>,
    pub payload: Value,
    pub metadata: Value,
    pub tags: BTreeMap<String, String>,
    pub extra: Value,
}

/// The document is not a valid task definition.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadDefinition {
    #[error("name the task queue: either `taskQueueId`, or both `provisionerId` and `workerType`")]
    NoQueue,
    #[error(
        "`taskQueueId` is {given}, but `provisionerId` and `workerType` make {joined}: give one of the two"
    )]
    QueuesDisagree { given: String, joined: String },
    #[error(transparent)]
    Id(#[from] BadId),
    #[error(transparent)]
    Priority(#[from] BadName),
    #[error("`{field}`: {problem}")]
    Time {
        field: &'static str,
        problem: BadTimestamp,
    },
}

impl TaskDocument {
    /// The task queue, from either of its names.
    pub fn queue(&self) -> Result<PoolId, BadDefinition> {
        let joined = match (&self.provisioner_id, &self.worker_type) {
            (Some(left), Some(right)) => Some(format!("{left}/{right}")),
            (None, None) => None,
            // One part is useful only beside the complete id, with which it must agree.
            (left, right) => {
                let whole = self.task_queue_id.as_ref().ok_or(BadDefinition::NoQueue)?;
                let (known_left, known_right) = whole.split_once('/').unwrap_or((whole, ""));
                let left = left.as_deref().unwrap_or(known_left);
                Some(format!(
                    "{left}/{}",
                    right.as_deref().unwrap_or(known_right)
                ))
            }
        };
        match (&self.task_queue_id, joined) {
            (None, None) => Err(BadDefinition::NoQueue),
            (Some(given), Some(joined)) if *given != joined => Err(BadDefinition::QueuesDisagree {
                given: given.clone(),
                joined,
            }),
            (Some(name), _) => Ok(name.parse()?),
            (None, Some(name)) => Ok(name.parse()?),
        }
    }

    /// Makes the definition; omitted fields get their defaults.
    pub fn define(self, task_id: &TaskId) -> Result<TaskDefinition, BadDefinition> {
        let time = |field, text: &str| {
            text.parse::<Timestamp>()
                .map_err(|problem| BadDefinition::Time { field, problem })
        };
        let deadline = time("deadline", &self.deadline)?;
        let expires = match &self.expires {
            Some(text) => time("expires", text)?,
            None => deadline.plus_millis(EXPIRES_AFTER_DEADLINE_MS),
        };
        let group = self.task_group_id.as_deref();
        let dependencies = self.dependencies.iter().map(|id| id.parse());
        Ok(TaskDefinition {
            task_queue_id: self.queue()?,
            scheduler_id: self.scheduler_id.parse()?,
            project_id: self.project_id.as_deref().unwrap_or("none").parse()?,
            task_group_id: group.unwrap_or(task_id.as_str()).parse()?,
            dependencies: dependencies.collect::<Result<_, BadId>>()?,
            requires: self.requires,
            routes: self.routes,
            priority: self.priority.parse()?,
            retries: self.retries,
            created: time("created", &self.created)?,
            deadline,
            expires,
            scopes: self.scopes,
            payload: self.payload,
            metadata: self.metadata,
            tags: self.tags,
            extra: self.extra,
        })
    }
}

impl From<&TaskDefinition> for TaskDocument {
    fn from(definition: &TaskDefinition) -> Self {
        let (provisioner_id, worker_type) = definition.task_queue_id.parts();
        let dependencies = definition.dependencies.iter().map(TaskId::to_string);
        Self {
            provisioner_id: Some(provisioner_id.to_owned()),
            worker_type: Some(worker_type.to_owned()),
            task_queue_id: Some(definition.task_queue_id.to_string()),
            scheduler_id: definition.scheduler_id.to_string(),
            project_id: Some(definition.project_id.to_string()),
            task_group_id: Some(definition.task_group_id.to_string()),
            dependencies: dependencies.collect(),
            requires: definition.requires,
            routes: definition.routes.clone(),
            priority: definition.priority.to_string(),
            retries: definition.retries,
            created: definition.created.to_string(),
            deadline: definition.deadline.to_string(),
            expires: Some(definition.expires.to_string()),
            scopes: definition.scopes.clone(),
            payload: definition.payload.clone(),
            metadata: definition.metadata.clone(),
            tags: definition.tags.clone(),
            extra: definition.extra.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document() -> TaskDocument {
        serde_json::from_value(json!({
            "taskQueueId": "proj-x/ci", "schedulerId": "-", "projectId": "none", "dependencies": [],
            "requires": "all-completed", "routes": [], "priority": "lowest", "retries": 5,
            "created": "2026-09-21T14:13:20.0001Z", "deadline": "2026-09-21T17:13:20+01:00",
            "scopes": [], "payload": {"command": ["true"]}, "metadata": {}, "tags": {"a": "b"},
            "extra": {},
        }))
        .unwrap()
    }

    fn id() -> TaskId {
        "AAAAAAAAQACAAAAAAAAAAA".parse().unwrap()
    }

    #[test]
    fn a_task_is_shown_with_all_three_ids_and_everything_filled_in() {
        let shown = TaskDocument::from(&document().define(&id()).unwrap());
        let shown = serde_json::to_value(shown).unwrap();
        assert_eq!(shown["provisionerId"], "proj-x");
        assert_eq!(shown["workerType"], "ci");
        assert_eq!(shown["taskQueueId"], "proj-x/ci");
        assert_eq!(shown["taskGroupId"], "AAAAAAAAQACAAAAAAAAAAA");
        assert_eq!(shown["created"], "2026-09-21T14:13:20.000Z");
        assert_eq!(shown["deadline"], "2026-09-21T16:13:20.000Z");
        assert_eq!(shown["expires"], "2027-09-21T16:13:20.000Z");
    }

    #[test]
    fn the_document_of_a_task_defines_the_same_task() {
        let definition = document().define(&id()).unwrap();
        let shown = TaskDocument::from(&definition);
        assert_eq!(shown.define(&id()), Ok(definition));
    }

    #[test]
    fn the_queue_is_named_by_either_form_or_both() {
        let named = |whole: Option<&str>, left: Option<&str>, right: Option<&str>| {
            let mut document = document();
            document.task_queue_id = whole.map(str::to_owned);
            document.provisioner_id = left.map(str::to_owned);
            document.worker_type = right.map(str::to_owned);
            document
                .queue()
                .map(|id| id.to_string())
                .map_err(|bad| bad.to_string())
        };
        let queue = Ok("a/b".to_owned());
        assert_eq!(named(Some("a/b"), None, None), queue);
        assert_eq!(named(None, Some("a"), Some("b")), queue);
        assert_eq!(named(Some("a/b"), Some("a"), Some("b")), queue);
        assert_eq!(named(Some("a/b"), Some("a"), None), queue);
        for missing in [
            named(None, None, None),
            named(None, Some("a"), None),
            named(None, None, Some("b")),
        ] {
            assert!(missing.unwrap_err().starts_with("name the task queue"));
        }
        for torn in [
            named(Some("a/b"), Some("a"), Some("c")),
            named(Some("a/b"), Some("x"), None),
            named(Some("a/b"), None, Some("x")),
        ] {
            assert!(torn.unwrap_err().contains("`taskQueueId` is a/b, but"));
        }
        assert!(
            named(None, Some("a"), Some("B"))
                .unwrap_err()
                .contains("worker pool id")
        );
    }

    #[test]
    fn a_bad_date_is_named() {
        let mut bad = document();
        bad.deadline = "soon".to_owned();
        let refused = bad.define(&id()).unwrap_err();
        assert!(refused.to_string().starts_with("`deadline`: "), "{refused}");
    }
}
