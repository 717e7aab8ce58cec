//! The subject of an event, and the scopes to receive it.
//!
//! A caller that can read an object may receive its events: an event needs the scopes of the
//! endpoints that show its content.

use access::scope::{Expression, ScopeSet};
use serde_json::Value;
use store::outbox::OutboxRow;

/// The objects that an event names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSubject {
    /// The last part of the exchange's name.
    pub exchange: String,
    /// The worker pool, or the task queue of the same name.
    pub pool: Option<String>,
    pub worker_group: Option<String>,
    pub worker_id: Option<String>,
    pub task: Option<String>,
    pub task_group: Option<String>,
    /// The scopes that a listener needs.
    scopes: Expression,
}

impl EventSubject {
    pub fn of(row: &OutboxRow) -> Self {
        let payload = &row.payload;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let status = &payload["status"];
        let exchange = row.topic.rsplit('/').next().unwrap_or(&row.topic);
        let mut about = Self {
            exchange: exchange.to_owned(),
            pool: text(&payload["workerPoolId"]).or_else(|| text(&status["taskQueueId"])),
            worker_group: text(&payload["workerGroup"]),
            worker_id: text(&payload["workerId"]),
            task: text(&status["taskId"]),
            task_group: text(&payload["taskGroupId"]).or_else(|| text(&status["taskGroupId"])),
            scopes: Expression::AnyOf(Vec::new()),
        };
        about.scopes = about.scopes_of(payload);
        about
    }

    pub fn may_be_heard_with(&self, scopes: &ScopeSet) -> bool {
        self.scopes.satisfied_by(scopes)
    }

    /// Events of unknown kinds need the scope for all events.
    fn scopes_of(&self, payload: &Value) -> Expression {
        let name = |name: &str| payload[name].as_str().unwrap_or_default();
        let pool = self.pool.as_deref().unwrap_or_default();
        let scope = Expression::Scope;
        match self.exchange.as_str() {
            "worker-pool-created" | "worker-pool-updated" => {
                scope(format!("worker-manager:get-worker-pool:{pool}"))
            }
            // A pause event shows the content of an override, and may affect more than one pool.
            "launch-config-paused" | "launch-config-resumed" => Expression::AnyOf(vec![
                scope("worker-manager:list-overrides".to_owned()),
                scope(format!(
                    "worker-manager:get-override:{}",
                    name("overrideId")
                )),
            ]),
            "budget-step" => Expression::AnyOf(vec![
                scope("worker-manager:list-budgets".to_owned()),
                scope(format!("worker-manager:get-budget:{}", name("budgetId"))),
            ]),
            launch_config if launch_config.starts_with("launch-config-") => {
                scope(format!("worker-manager:get-worker-pool:{pool}"))
            }
            "worker-pool-error" => scope(format!("worker-manager:list-worker-pool-errors:{pool}")),
            worker if worker.starts_with("worker-") => {
                let (group, id) = (name("workerGroup"), name("workerId"));
                Expression::AnyOf(vec![
                    scope(format!("worker-manager:list-workers:{pool}")),
                    scope(format!("worker-manager:get-worker:{pool}/{group}/{id}")),
                ])
            }
            client if client.starts_with("client-") => {
                scope(format!("auth:get-client:{}", name("clientId")))
            }
            role if role.starts_with("role-") => scope(format!("auth:get-role:{}", name("roleId"))),
            _ => self.scopes_of_tasks(payload),
        }
    }

    /// Events of a task show its status and its tags; lists of its group show both.
    fn scopes_of_tasks(&self, payload: &Value) -> Expression {
        let of_group = self.task_group.iter();
        let mut any: Vec<Expression> = of_group
            .map(|group| Expression::Scope(format!("queue:list-task-group:{group}")))
            .collect();
        let Some(task) = &self.task else {
            if any.is_empty() {
                let scope = format!("fleetwright:listen-events:{}", self.exchange);
                any.push(Expression::Scope(scope));
            }
            return Expression::AnyOf(any);
        };
        any.push(Expression::AllOf(vec![
            Expression::Scope(format!("queue:status:{task}")),
            Expression::Scope(format!("queue:get-task:{task}")),
        ]));
        let of_task = Expression::AnyOf(any);
        if self.exchange != "artifact-created" {
            return of_task;
        }
        let files = format!("queue:list-artifacts:{task}:{}", payload["runId"]);
        Expression::AllOf(vec![of_task, Expression::Scope(files)])
    }
}

#[cfg(test)]
mod tests {
    use domain::time::Timestamp;
    use serde_json::json;

    use super::*;

    fn about(exchange: &str, payload: Value) -> EventSubject {
        EventSubject::of(&OutboxRow {
            position: 1,
            event_id: "e".to_owned(),
            topic: format!("exchange/taskcluster-x/v1/{exchange}"),
            routing_key: "_".to_owned(),
            routes: Vec::new(),
            pool_id: None,
            payload,
            created: Timestamp::from_millis(0),
        })
    }

    fn is_heard(about: &EventSubject, scope: &str) -> bool {
        about.may_be_heard_with(&ScopeSet::new([scope.to_owned()]))
    }

    #[test]
    fn a_caller_that_can_read_an_object_receives_its_events() {
        let worker = json!({"workerPoolId": "p/q", "workerGroup": "g", "workerId": "w"});
        let pool = json!({"workerPoolId": "p/q"});
        let task = json!({"status": {"taskId": "T", "taskGroupId": "G", "taskQueueId": "p/q"}});
        for (exchange, payload, scope) in [
            (
                "worker-pool-created",
                &pool,
                "worker-manager:get-worker-pool:p/q",
            ),
            (
                "worker-pool-updated",
                &pool,
                "worker-manager:get-worker-pool:p/q",
            ),
            (
                "launch-config-archived",
                &pool,
                "worker-manager:get-worker-pool:p/q",
            ),
            (
                "launch-config-paused",
                &json!({"overrideId": "o", "workerPoolId": "p/q"}),
                "worker-manager:get-override:o",
            ),
            (
                "budget-step",
                &json!({"budgetId": "b"}),
                "worker-manager:get-budget:b",
            ),
            (
                "launch-config-resumed",
                &json!({"overrideId": "o", "providerId": "p"}),
                "worker-manager:list-overrides",
            ),
            (
                "worker-pool-error",
                &pool,
                "worker-manager:list-worker-pool-errors:p/q",
            ),
            ("worker-running", &worker, "worker-manager:list-workers:p/q"),
            (
                "worker-removed",
                &worker,
                "worker-manager:get-worker:p/q/g/w",
            ),
            (
                "client-updated",
                &json!({"clientId": "c/d"}),
                "auth:get-client:c/d",
            ),
            ("role-deleted", &json!({"roleId": "r"}), "auth:get-role:r"),
            ("task-pending", &task, "queue:list-task-group:G"),
            (
                "task-group-sealed",
                &json!({"taskGroupId": "G"}),
                "queue:list-task-group:G",
            ),
            (
                "what-may-come",
                &json!({}),
                "fleetwright:listen-events:what-may-come",
            ),
        ] {
            let about = about(exchange, payload.clone());
            assert!(is_heard(&about, scope), "{exchange}");
            assert!(is_heard(&about, "*"), "{exchange}");
            assert!(!is_heard(&about, &format!("{scope}x")), "{exchange}");
            assert!(!is_heard(&about, "fleetwright:listen-events"), "{exchange}");
        }
    }

    #[test]
    fn an_event_of_a_task_needs_the_scopes_for_all_of_its_content() {
        let payload = json!({"runId": 0,
            "status": {"taskId": "T", "taskGroupId": "G", "taskQueueId": "p/q"}});
        let (status, definition) = ("queue:status:T", "queue:get-task:T");
        let (group, files) = ("queue:list-task-group:G", "queue:list-artifacts:T:0");
        let hears = |exchange: &str, scopes: &[&str]| {
            let scopes = scopes.iter().map(|scope| (*scope).to_owned());
            about(exchange, payload.clone()).may_be_heard_with(&ScopeSet::new(scopes))
        };
        for (scopes, expected) in [
            (&[status, definition][..], true),
            (&[group], true),
            (&[status], false),
            (&[definition, files], false),
        ] {
            assert_eq!(hears("task-completed", scopes), expected, "{scopes:?}");
        }
        for (scopes, expected) in [
            (&[status, definition, files][..], true),
            (&[group, files], true),
            (&[status, definition], false),
            (&[group, "queue:list-artifacts:T:1"], false),
            (&[files], false),
        ] {
            assert_eq!(hears("artifact-created", scopes), expected, "{scopes:?}");
        }
    }

    #[test]
    fn an_event_is_about_what_its_payload_names() {
        let payload = json!({"status": {"taskId": "T", "taskGroupId": "G", "taskQueueId": "p/q"},
            "workerGroup": "g", "workerId": "w"});
        let about = about("task-running", payload);
        let names = [&about.pool, &about.worker_group, &about.worker_id];
        assert_eq!(
            names.map(|name| name.as_deref().unwrap()),
            ["p/q", "g", "w"]
        );
        assert_eq!(about.task.as_deref(), Some("T"));
        assert_eq!(about.task_group.as_deref(), Some("G"));
    }

    #[test]
    fn a_payload_of_any_shape_has_no_subject() {
        for payload in [
            json!(null),
            json!([1]),
            json!({"status": 3, "workerPoolId": {}}),
        ] {
            let about = about("worker-running", payload);
            assert!(!is_heard(&about, "worker-manager:list-workers:p/q"));
        }
    }
}
