//! Events: their exchanges, routing keys and payloads, as the contract defines them.
//!
//! An event is written to the outbox in the transaction of the change that caused it.

use serde_json::{Value, json};

use crate::budgets::{BudgetStep, MoneyBudget};
use crate::error_report::ErrorReport;
use crate::id::{ClientId, LaunchConfigId, PoolId, ProviderId, RoleId};
use crate::overrides::Override;
use crate::task::{Task, TaskEvent, TaskGroup};
use crate::time::Timestamp;
use crate::worker::Worker;

mod budget;
mod exchange;
mod image;
mod pause;
mod rfc191;
mod task;

pub use exchange::{EXCHANGES, Exchange, KeyWord, RoutingKey};
pub use image::{ImageEvent, ImageStep};
pub use rfc191::Rfc191;
pub use task::{ArtifactEvent, TaskGroupChange};

#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Lets a consumer drop repetitions.
    pub id: String,
    pub created: Timestamp,
    pub body: EventBody,
}

#[derive(Clone, Debug, PartialEq)]
pub enum EventBody {
    PoolCreated {
        pool_id: PoolId,
        provider_id: ProviderId,
    },
    PoolUpdated {
        pool_id: PoolId,
        provider_id: ProviderId,
        previous_provider_id: ProviderId,
    },
    PoolError {
        /// The pool's provider at the time.
        provider_id: ProviderId,
        report: Box<ErrorReport>,
        /// The worker's group and id, if one reported it.
        worker: Option<(String, String)>,
    },
    Worker {
        change: WorkerChange,
        worker: Box<Worker>,
    },
    LaunchConfig {
        change: LaunchConfigChange,
        pool_id: PoolId,
        provider_id: ProviderId,
        launch_config_id: LaunchConfigId,
    },
    /// A pause of launches began, changed or ended.
    Pause {
        change: PauseChange,
        pause: Box<Override>,
        /// The provider of the launch config, if the pause is about a launch config.
        provider_id: Option<ProviderId>,
    },
    Task {
        news: TaskEvent,
        task: Box<Task>,
    },
    Artifact {
        artifact: Box<ArtifactEvent>,
        run_id: u32,
        task: Box<Task>,
    },
    TaskGroup {
        change: TaskGroupChange,
        group: Box<TaskGroup>,
    },
    Client {
        change: AccessChange,
        client_id: ClientId,
    },
    Role {
        change: AccessChange,
        role_id: RoleId,
    },
    Image(Box<ImageEvent>),
    /// A budget has reached a step for the first time in its period.
    Budget {
        step: BudgetStep,
        budget: Box<MoneyBudget>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerChange {
    Requested,
    Running,
    Stopped,
    Removed { reason: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchConfigChange {
    Created,
    Updated,
    Archived,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseChange {
    Paused,
    Resumed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessChange {
    Created,
    Updated,
    Deleted,
}

impl EventBody {
    /// The name of the exchange, without its prefix.
    pub fn exchange(&self) -> &'static Exchange {
        let name = match self {
            Self::PoolCreated { .. } => "worker-pool-created",
            Self::PoolUpdated { .. } => "worker-pool-updated",
            Self::PoolError { .. } => "worker-pool-error",
            Self::Worker { change, .. } => match change {
                WorkerChange::Requested => "worker-requested",
                WorkerChange::Running => "worker-running",
                WorkerChange::Stopped => "worker-stopped",
                WorkerChange::Removed { .. } => "worker-removed",
            },
            Self::LaunchConfig { change, .. } => match change {
                LaunchConfigChange::Created => "launch-config-created",
                LaunchConfigChange::Updated => "launch-config-updated",
                LaunchConfigChange::Archived => "launch-config-archived",
            },
            Self::Pause { change, .. } => match change {
                PauseChange::Paused => "launch-config-paused",
                PauseChange::Resumed => "launch-config-resumed",
            },
            Self::Task { news, .. } => task::exchange(*news),
            Self::Artifact { .. } => "artifact-created",
            Self::TaskGroup { change, .. } => change.exchange(),
            Self::Client { change, .. } => match change {
                AccessChange::Created => "client-created",
                AccessChange::Updated => "client-updated",
                AccessChange::Deleted => "client-deleted",
            },
            Self::Role { change, .. } => match change {
                AccessChange::Created => "role-created",
                AccessChange::Updated => "role-updated",
                AccessChange::Deleted => "role-deleted",
            },
            Self::Image(event) => event.step.exchange(),
            Self::Budget { .. } => "budget-step",
        };
        EXCHANGES
            .iter()
            .find(|exchange| exchange.exchange == name)
            .expect("every event has its exchange")
    }

    /// Events of one pool are delivered in their order.
    pub fn pool_id(&self) -> Option<&PoolId> {
        match self {
            Self::PoolCreated { pool_id, .. }
            | Self::PoolUpdated { pool_id, .. }
            | Self::LaunchConfig { pool_id, .. } => Some(pool_id),
            Self::PoolError { report, .. } => Some(&report.pool_id),
            Self::Pause { pause, .. } => pause.target.pool_id(),
            Self::Worker { worker, .. } => Some(&worker.key.pool_id),
            Self::Task { task, .. } | Self::Artifact { task, .. } => {
                Some(&task.definition.task_queue_id)
            }
            Self::TaskGroup { .. }
            | Self::Client { .. }
            | Self::Role { .. }
            | Self::Image(_)
            | Self::Budget { .. } => None,
        }
    }

    /// Further routing keys, which the task's author chose.
    pub fn routes(&self) -> Vec<String> {
        let (Self::Task { task, .. } | Self::Artifact { task, .. }) = self else {
            return Vec::new();
        };
        let routes = task.definition.routes.iter();
        routes.map(|route| format!("route.{route}")).collect()
    }

    /// The words of the routing key, joined by dots; an absent word is `_`.
    pub fn routing_key(&self) -> String {
        match self {
            Self::PoolCreated { .. } | Self::PoolUpdated { .. } => {
                "primary._._._._._._._".to_owned()
            }
            Self::PoolError {
                provider_id,
                report,
                worker,
            } => {
                let worker = worker
                    .as_ref()
                    .map(|(group, id)| (group.as_str(), id.as_str()));
                worker_key(
                    provider_id,
                    &report.pool_id,
                    worker,
                    report.launch_config_id.as_ref(),
                )
            }
            Self::Worker { worker, .. } => {
                let names = (worker.key.group.as_str(), worker.key.id.as_str());
                let config = worker.launch_config_id.as_ref();
                worker_key(
                    &worker.provider_id,
                    &worker.key.pool_id,
                    Some(names),
                    config,
                )
            }
            Self::LaunchConfig {
                pool_id,
                provider_id,
                launch_config_id,
                ..
            } => worker_key(provider_id, pool_id, None, Some(launch_config_id)),
            Self::Pause {
                pause, provider_id, ..
            } => pause::routing_key(&pause.target, provider_id.as_ref()),
            Self::Task { news, task } => task::routing_key(task, news.run_id()),
            Self::Artifact { run_id, task, .. } => task::routing_key(task, Some(*run_id)),
            Self::TaskGroup { group, .. } => {
                format!("primary.{}.{}._", group.id, group.scheduler_id)
            }
            Self::Client { .. } | Self::Role { .. } => "_".to_owned(),
            Self::Image(event) => event.routing_key(),
            Self::Budget { step, budget } => budget::routing_key(&budget.id, *step),
        }
    }

    /// The message. `at` is when it happened.
    pub fn payload(&self, at: Timestamp) -> Value {
        match self {
            Self::PoolCreated {
                pool_id,
                provider_id,
            } => json!({
                "workerPoolId": pool_id.as_str(),
                "providerId": provider_id.as_str(),
            }),
            Self::PoolUpdated {
                pool_id,
                provider_id,
                previous_provider_id,
            } => json!({
                "workerPoolId": pool_id.as_str(),
                "providerId": provider_id.as_str(),
                "previousProviderId": previous_provider_id.as_str(),
            }),
            Self::PoolError {
                provider_id,
                report,
                worker,
            } => error_payload(provider_id, report, worker.as_ref(), at),
            Self::Worker { change, worker } => worker_payload(change, worker, at),
            Self::LaunchConfig {
                pool_id,
                provider_id,
                launch_config_id,
                ..
            } => json!({
                "workerPoolId": pool_id.as_str(),
                "providerId": provider_id.as_str(),
                "launchConfigId": launch_config_id.as_str(),
            }),
            Self::Pause {
                pause, provider_id, ..
            } => pause::payload(pause, provider_id.as_ref()),
            Self::Task { news, task } => task::payload(*news, task),
            Self::Artifact {
                artifact,
                run_id,
                task,
            } => artifact.payload(task, *run_id),
            Self::TaskGroup { change, group } => change.payload(group),
            Self::Client { client_id, .. } => json!({"version": 1, "clientId": client_id.as_str()}),
            Self::Role { role_id, .. } => json!({"version": 1, "roleId": role_id.as_str()}),
            Self::Image(event) => event.payload(at),
            Self::Budget { step, budget } => budget::payload(budget, *step, at),
        }
    }
}

fn worker_key(
    provider: &ProviderId,
    pool: &PoolId,
    worker: Option<(&str, &str)>,
    config: Option<&LaunchConfigId>,
) -> String {
    let (left, right) = pool.parts();
    let (group, id) = worker.unwrap_or(("_", "_"));
    let config = config.map_or("_", LaunchConfigId::as_str);
    format!("primary.{provider}.{left}.{right}.{group}.{id}.{config}._")
}

fn error_payload(
    provider_id: &ProviderId,
    report: &ErrorReport,
    worker: Option<&(String, String)>,
    at: Timestamp,
) -> Value {
    let mut payload = json!({
        "workerPoolId": report.pool_id.as_str(),
        "providerId": provider_id.as_str(),
        "errorId": report.error_id.as_str(),
        "kind": report.kind,
        "title": report.title,
        "timestamp": at.to_string(),
    });
    if let Some((group, id)) = worker {
        payload["workerGroup"] = json!(group);
        payload["workerId"] = json!(id);
    }
    if let Some(config) = &report.launch_config_id {
        payload["launchConfigId"] = json!(config.as_str());
    }
    payload
}

fn worker_payload(change: &WorkerChange, worker: &Worker, at: Timestamp) -> Value {
    let mut payload = json!({
        "workerPoolId": worker.key.pool_id.as_str(),
        "providerId": worker.provider_id.as_str(),
        "workerGroup": worker.key.group.as_str(),
        "workerId": worker.key.id.as_str(),
        "capacity": worker.capacity,
        "timestamp": at.to_string(),
    });
    if let Some(config) = &worker.launch_config_id {
        payload["launchConfigId"] = json!(config.as_str());
    }
    if let WorkerChange::Removed { reason } = change {
        payload["reason"] = json!(reason);
    }
    payload
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    fn at() -> Timestamp {
        "2026-09-21T14:13:20.000Z".parse().unwrap()
    }

    fn error(launch_config_id: Option<&str>, worker: Option<(&str, &str)>) -> EventBody {
        EventBody::PoolError {
            provider_id: "testing1".parse().unwrap(),
            report: Box::new(ErrorReport {
                pool_id: "foobar/baz".parse().unwrap(),
                error_id: "AAAAAAAAQACAAAAAAAAAAA".parse().unwrap(),
                reported: at(),
                kind: "oops".to_owned(),
                title: "Oops".to_owned(),
                description: "It went wrong".to_owned(),
                extra: Map::new(),
                launch_config_id: launch_config_id.map(|id| id.parse().unwrap()),
            }),
            worker: worker.map(|(group, id)| (group.to_owned(), id.to_owned())),
        }
    }

    #[test]
    fn the_routing_key_of_an_error_names_what_is_known() {
        assert_eq!(
            error(None, Some(("wg", "wi"))).routing_key(),
            "primary.testing1.foobar.baz.wg.wi._._"
        );
        assert_eq!(
            error(Some("lc-id-1"), Some(("wg", "wi"))).routing_key(),
            "primary.testing1.foobar.baz.wg.wi.lc-id-1._"
        );
        assert_eq!(
            error(None, None).routing_key(),
            "primary.testing1.foobar.baz._._._._"
        );
    }

    #[test]
    fn the_message_of_an_error_has_no_description() {
        assert_eq!(
            error(None, Some(("wg", "wi"))).payload(at()),
            json!({
                "workerPoolId": "foobar/baz", "providerId": "testing1",
                "errorId": "AAAAAAAAQACAAAAAAAAAAA", "kind": "oops", "title": "Oops",
                "timestamp": "2026-09-21T14:13:20.000Z", "workerGroup": "wg", "workerId": "wi",
            })
        );
    }

    #[test]
    fn a_pool_created_event_has_a_key_of_blanks() {
        let body = EventBody::PoolCreated {
            pool_id: "proj-x/ci".parse().unwrap(),
            provider_id: "aws-1".parse().unwrap(),
        };
        assert_eq!(body.routing_key(), "primary._._._._._._._");
        assert_eq!(
            body.payload(at()),
            json!({"workerPoolId": "proj-x/ci", "providerId": "aws-1"})
        );
        assert_eq!(body.exchange().exchange, "worker-pool-created");
    }
}
