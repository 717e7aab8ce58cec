//! What an event is about, and who may hear of it.
//!
//! Whoever could read a thing may hear what happens to it: an event is told to those who hold a scope of an
//! endpoint that shows the thing.

use access::scope::ScopeSet;
use serde_json::Value;
use store::OutboxRow;

/// What an event says about things, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// The last part of the exchange's name.
    pub exchange: String,
    /// The worker pool, or the task queue, which has the same name.
    pub pool: Option<String>,
    pub worker_group: Option<String>,
    pub worker_id: Option<String>,
    pub task: Option<String>,
    pub task_group: Option<String>,
    /// Any of these lets one hear it.
    scopes: Vec<String>,
}

impl About {
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
            scopes: Vec::new(),
        };
        about.scopes = about.scopes_of(payload);
        about
    }

    pub fn may_be_heard_with(&self, scopes: &ScopeSet) -> bool {
        self.scopes.iter().any(|scope| scopes.satisfies(scope))
    }

    /// What is not known here is for those who may hear everything.
    fn scopes_of(&self, payload: &Value) -> Vec<String> {
        let name = |name: &str| payload[name].as_str().unwrap_or_default();
        let pool = self.pool.as_deref().unwrap_or_default();
        match self.exchange.as_str() {
            "worker-pool-created" | "worker-pool-updated" => {
                vec![format!("worker-manager:get-worker-pool:{pool}")]
            }
            launch_config if launch_config.starts_with("launch-config-") => {
                vec![format!("worker-manager:get-worker-pool:{pool}")]
            }
            "worker-pool-error" => vec![format!("worker-manager:list-worker-pool-errors:{pool}")],
            worker if worker.starts_with("worker-") => {
                let (group, id) = (name("workerGroup"), name("workerId"));
                vec![
                    format!("worker-manager:list-workers:{pool}"),
                    format!("worker-manager:get-worker:{pool}/{group}/{id}"),
                ]
            }
            client if client.starts_with("client-") => {
                vec![format!("auth:get-client:{}", name("clientId"))]
            }
            role if role.starts_with("role-") => vec![format!("auth:get-role:{}", name("roleId"))],
            _ => self.scopes_of_tasks(),
        }
    }

    fn scopes_of_tasks(&self) -> Vec<String> {
        let task = self.task.iter();
        let task = task.map(|task| format!("queue:get-task:{task}"));
        let group = self.task_group.iter();
        let group = group.map(|group| format!("queue:list-task-group:{group}"));
        let scopes: Vec<String> = task.chain(group).collect();
        if scopes.is_empty() {
            return vec![format!("fleetwright:listen-events:{}", self.exchange)];
        }
        scopes
    }
}

#[cfg(test)]
mod tests {
    use domain::time::Timestamp;
    use serde_json::json;

    use super::*;

    fn about(exchange: &str, payload: Value) -> About {
        About::of(&OutboxRow {
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

    fn is_heard(about: &About, scope: &str) -> bool {
        about.may_be_heard_with(&ScopeSet::new([scope.to_owned()]))
    }

    #[test]
    fn who_may_read_a_thing_hears_of_it() {
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
            ("task-pending", &task, "queue:get-task:T"),
            ("artifact-created", &task, "queue:list-task-group:G"),
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
    fn a_payload_of_any_shape_is_about_nothing() {
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
