//! The limits of task definitions: dates, scopes, sizes, number of dependencies.

use super::{BadDefinition, Task, TaskDefinition, TaskDocument};
use crate::id::TaskId;
use crate::time::{DAY_MS, MINUTE_MS, Timestamp};

/// Clocks of clients may differ from ours by this much.
const CLOCK_SKEW_MS: i64 = 15 * MINUTE_MS;

/// Limits for the tasks of a deployment.
#[derive(Clone, Copy, Debug)]
pub struct TaskLimits {
    /// Maximum days until a deadline.
    pub deadline_days: u32,
    /// Maximum days until a task expires with all its files.
    pub expires_days: u32,
    pub dependencies: usize,
    /// Maximum size of a definition.
    pub task_bytes: usize,
    pub tags_bytes: usize,
}

/// A document that is not accepted as a task.
#[derive(Debug, thiserror::Error)]
pub enum InvalidTask {
    #[error(transparent)]
    Definition(#[from] BadDefinition),
    #[error("`dependencies` may name at most {limit} tasks, and names {count}")]
    Dependencies { limit: usize, count: usize },
    #[error("`created` {created} must be within 15 minutes of now ({now})")]
    Created { created: Timestamp, now: Timestamp },
    #[error("`deadline` {deadline} must not be before `created` {created}")]
    DeadlineBeforeCreated {
        deadline: Timestamp,
        created: Timestamp,
    },
    #[error("`deadline` {deadline} must be in the future (now: {now})")]
    DeadlinePast { deadline: Timestamp, now: Timestamp },
    #[error("`deadline` {deadline} must be within {days} days")]
    DeadlineFar { deadline: Timestamp, days: u32 },
    #[error("`expires` {expires} must not be before `deadline` {deadline}")]
    ExpiresBeforeDeadline {
        expires: Timestamp,
        deadline: Timestamp,
    },
    #[error(
        "`expires` {expires} is more than {days} days in the future (`queue.max_expires_days`): give \
         an earlier time, since a task is kept with its files until then"
    )]
    ExpiresFar { expires: Timestamp, days: u32 },
    #[error("`scopes` must not end with `**`: {0}")]
    DoubleStar(String),
    #[error(
        "A task may take {limit} bytes at most, and this one takes {size}. Let it fetch what is \
         large, as an artifact of another task for example"
    )]
    TooLarge { limit: usize, size: usize },
    #[error(
        "`tags` may take {limit} bytes at most, and these take {size}. What is long belongs in \
         `extra` or `metadata`, which are not part of every event"
    )]
    TagsTooLarge { limit: usize, size: usize },
    #[error("The task cannot be stored: {0}")]
    NotStorable(serde_json::Error),
}

impl TaskLimits {
    pub fn check_dependencies(&self, document: &TaskDocument) -> Result<(), InvalidTask> {
        let (limit, count) = (self.dependencies, document.dependencies.len());
        match count > limit {
            true => Err(InvalidTask::Dependencies { limit, count }),
            false => Ok(()),
        }
    }

    /// The task of a document at this time, exactly as it will be read back from the store, so that
    /// it can be compared with an existing task.
    pub fn task(
        &self,
        id: TaskId,
        document: TaskDocument,
        now: Timestamp,
    ) -> Result<Task, InvalidTask> {
        self.check_dependencies(&document)?;
        let definition = document.define(&id)?;
        self.check_dates(&definition, now)?;
        check_scopes(&definition)?;
        let stored = serde_json::to_string(&TaskDocument::from(&definition))
            .map_err(InvalidTask::NotStorable)?;
        self.check_size(&definition, stored.len())?;
        let document: TaskDocument =
            serde_json::from_str(&stored).map_err(InvalidTask::NotStorable)?;
        let definition = document.define(&id)?;
        Ok(Task::new(id, definition))
    }

    fn check_dates(&self, definition: &TaskDefinition, now: Timestamp) -> Result<(), InvalidTask> {
        let (created, deadline) = (definition.created, definition.deadline);
        let (expires, days) = (definition.expires, self.deadline_days);
        if created.millis_since(now).abs() > CLOCK_SKEW_MS {
            return Err(InvalidTask::Created { created, now });
        }
        if created > deadline {
            return Err(InvalidTask::DeadlineBeforeCreated { deadline, created });
        }
        if deadline < now {
            return Err(InvalidTask::DeadlinePast { deadline, now });
        }
        if deadline > now.plus_millis(i64::from(days) * DAY_MS + CLOCK_SKEW_MS) {
            return Err(InvalidTask::DeadlineFar { deadline, days });
        }
        if expires < deadline {
            return Err(InvalidTask::ExpiresBeforeDeadline { expires, deadline });
        }
        let days = self.expires_days;
        if expires > now.plus_millis(i64::from(days) * DAY_MS + CLOCK_SKEW_MS) {
            return Err(InvalidTask::ExpiresFar { expires, days });
        }
        Ok(())
    }

    /// Limits the size: many tasks are read together, and their tags are part of every event about
    /// them.
    fn check_size(&self, definition: &TaskDefinition, size: usize) -> Result<(), InvalidTask> {
        let limit = self.task_bytes;
        if size > limit {
            return Err(InvalidTask::TooLarge { limit, size });
        }
        let tags = definition.tags.iter();
        let size: usize = tags.map(|(name, text)| name.len() + text.len()).sum();
        let limit = self.tags_bytes;
        if size > limit {
            return Err(InvalidTask::TagsTooLarge { limit, size });
        }
        Ok(())
    }
}

fn check_scopes(definition: &TaskDefinition) -> Result<(), InvalidTask> {
    match definition.scopes.iter().find(|scope| scope.ends_with("**")) {
        Some(scope) => Err(InvalidTask::DoubleStar(scope.clone())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const LIMITS: TaskLimits = TaskLimits {
        deadline_days: 5,
        expires_days: 100,
        dependencies: 2,
        task_bytes: 2_000,
        tags_bytes: 100,
    };

    fn now() -> Timestamp {
        Timestamp::from_millis(30 * DAY_MS)
    }

    fn document(created_ms: i64, deadline_ms: i64, expires_ms: i64) -> TaskDocument {
        let at = |ms| now().plus_millis(ms).to_string();
        let document = json!({
            "taskQueueId": "a/b", "schedulerId": "s", "dependencies": [], "routes": [],
            "requires": "all-completed", "priority": "low", "retries": 1, "scopes": [],
            "created": at(created_ms), "deadline": at(deadline_ms), "expires": at(expires_ms),
            "payload": {}, "metadata": {}, "tags": {}, "extra": {},
        });
        serde_json::from_value(document).unwrap()
    }

    fn judged(document: TaskDocument) -> Result<Task, String> {
        let id = "AAAAAAAAQACAAAAAAAAAAA".parse().unwrap();
        let task = LIMITS.task(id, document, now());
        task.map_err(|invalid| invalid.to_string())
    }

    #[test]
    fn dates_are_in_order_and_not_too_far_away() {
        let (hour, latest) = (60 * MINUTE_MS, 5 * DAY_MS + CLOCK_SKEW_MS);
        let last = 100 * DAY_MS + CLOCK_SKEW_MS;
        for (created, deadline, expires, problem) in [
            (0, hour, 2 * hour, None),
            (-CLOCK_SKEW_MS, hour, hour, None),
            (CLOCK_SKEW_MS, hour, hour, None),
            (0, latest, latest, None),
            (-CLOCK_SKEW_MS - 1, hour, hour, Some("within 15 minutes")),
            (CLOCK_SKEW_MS + 1, hour, hour, Some("within 15 minutes")),
            (2, 1, hour, Some("before `created`")),
            (-2, -1, hour, Some("must be in the future")),
            (0, latest + 1, 2 * latest, Some("must be within 5 days")),
            (0, hour, hour - 1, Some("before `deadline`")),
            (0, hour, last - 1, None),
            (0, hour, last, None),
            (0, hour, last + 1, Some("more than 100 days")),
            (0, hour, 10 * last, Some("`queue.max_expires_days`")),
        ] {
            let judged = judged(document(created, deadline, expires));
            match problem {
                None => assert_eq!(judged.err(), None),
                Some(text) => assert!(judged.as_ref().unwrap_err().contains(text), "{judged:?}"),
            }
        }
    }

    #[test]
    fn a_task_has_a_largest_size_and_so_have_its_tags() {
        for size in [1, 99, 100, 101, 1_000_usize] {
            let mut document = document(0, 1, 1);
            let text = "x".repeat(size - 1);
            document.tags.insert("t".to_owned(), text);
            assert_eq!(
                judged(document).is_ok(),
                size <= LIMITS.tags_bytes,
                "{size}"
            );
        }
        let mut large = document(0, 1, 1);
        large.payload = json!("x".repeat(LIMITS.task_bytes));
        assert!(
            judged(large)
                .unwrap_err()
                .starts_with("A task may take 2000 bytes")
        );
    }

    #[test]
    fn double_stars_and_too_many_dependencies_are_refused() {
        let mut starred = document(0, 1, 1);
        starred.scopes = vec!["a*".to_owned(), "b**".to_owned()];
        assert_eq!(
            judged(starred).unwrap_err(),
            "`scopes` must not end with `**`: b**"
        );
        for count in 0..=4 {
            let mut depending = document(0, 1, 1);
            let named = ["A", "Q", "g", "w"].into_iter().take(count);
            let ids = named.map(|end| format!("AAAAAAAAQACAAAAAAAAAA{end}"));
            depending.dependencies = ids.collect();
            assert_eq!(
                judged(depending).is_ok(),
                count <= LIMITS.dependencies,
                "{count}"
            );
        }
    }

    #[test]
    fn a_task_is_as_it_will_be_read_back() {
        let task = judged(document(0, 1, 1)).unwrap();
        let text = serde_json::to_string(&task.document()).unwrap();
        let read: TaskDocument = serde_json::from_str(&text).unwrap();
        assert_eq!(read.define(&task.id).as_ref(), Ok(&*task.definition));
    }
}
