//! Taking over the machines of a Taskcluster's worker manager.

use std::collections::{BTreeMap, BTreeSet};

use cloud::OwnedMachine;
use domain::audit::EntityType;
use domain::id::{ProviderId, WorkerKey};
use engine::workers::{self, Inheritance, Inherited, InheritedWorker};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::on;
use crate::api::endpoint::Endpoint;
use crate::api::endpoint::Verb::Post;
use crate::api::{call::Call, error::ApiError, reply::Reply};

/// Taskcluster has no such endpoint.
pub(in crate::api) const ENDPOINTS: &[Endpoint] =
    &[on("takeOver", Post, "/provider/<providerId>/take-over")
        .runs(|call| Box::pin(take_over(call)))
        .input("take-over-request.json")
        .output("take-over-response.json")
        .scope("worker-manager:take-over:<providerId>")
        .about("Takeover", "Take over machines of a Taskcluster")
        .describe(
            "Machines that a Taskcluster's worker manager made become workers here: they count as \
     capacity, keep their work, and end as all others do. Each must be listed by the provider, \
     with Taskcluster's tags. Nothing is changed at the cloud. A call may be repeated.",
        )];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Body {
    workers: Vec<WorkerBody>,
    #[serde(default)]
    launch_configs: Vec<ConfigBody>,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WorkerBody {
    worker_pool_id: String,
    worker_group: String,
    worker_id: String,
    launch_config_id: Option<String>,
    capacity: u32,
    state: String,
    created: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ConfigBody {
    worker_pool_id: String,
    launch_config_id: String,
    configuration: Map<String, Value>,
}

async fn take_over(call: Call) -> Result<Reply, ApiError> {
    let provider_id = call.id::<ProviderId>("providerId")?;
    let body = call.body::<Body>()?;
    let asked = body.workers.into_iter().map(inherited);
    let asked: Vec<InheritedWorker> = asked.collect::<Result<_, _>>()?;
    let mut names = BTreeSet::new();
    for worker in &asked {
        if !names.insert(&worker.key) {
            let text = format!("worker {} is named twice: name it once", worker.key);
            return Err(ApiError::input(text));
        }
    }
    let mut launch_configs = BTreeMap::new();
    for config in body.launch_configs {
        let name = (
            config.worker_pool_id.parse()?,
            config.launch_config_id.parse()?,
        );
        launch_configs.insert(name, config.configuration);
    }
    let inheritance = Inheritance {
        provider_id,
        workers: asked,
        launch_configs,
        is_dry_run: body.dry_run,
    };
    let mut audit = call.audit(EntityType::Worker, "", "created");
    audit.detail = json!({"takenOver": true});
    let done = workers::take_over(&call.app.engine, inheritance, audit).await?;
    let unlisted = done.unlisted.iter();
    Reply::json(&json!({
        "workers": done.workers.iter().map(result_json).collect::<Vec<_>>(),
        "unnamed": done.unnamed.iter().map(unnamed_json).collect::<Vec<_>>(),
        "unlisted": unlisted
            .map(|(region, error)| {
                json!({"region": region.to_string(), "reason": error.to_string()})
            })
            .collect::<Vec<_>>(),
    }))
}

fn inherited(body: WorkerBody) -> Result<InheritedWorker, ApiError> {
    let created = body.created.parse();
    Ok(InheritedWorker {
        key: WorkerKey::parse(
            body.worker_pool_id.parse()?,
            &body.worker_group,
            &body.worker_id,
        )?,
        launch_config_id: body.launch_config_id.map(|id| id.parse()).transpose()?,
        capacity: body.capacity.max(1),
        created: created.map_err(|bad| ApiError::input(format!("created: {bad}")))?,
        state: body
            .state
            .parse()
            .map_err(|bad| ApiError::input(format!("{bad}")))?,
    })
}

fn result_json((key, result): &(WorkerKey, Inherited)) -> Value {
    let mut entry = json!({
        "workerPoolId": key.pool_id.as_str(),
        "workerGroup": key.group.as_str(),
        "workerId": key.id.as_str(),
    });
    let (result, reason) = match result {
        Inherited::TakenOver => ("taken-over", None),
        Inherited::Known => ("known", None),
        Inherited::NotFound => ("not-found", None),
        Inherited::NoPool => ("no-pool", None),
        Inherited::Refused(reason) => ("refused", Some(reason)),
    };
    entry["result"] = json!(result);
    if let Some(reason) = reason {
        entry["reason"] = json!(reason);
    }
    entry
}

fn unnamed_json(machine: &OwnedMachine) -> Value {
    let mut entry = json!({
        "workerGroup": machine.machine.group.as_str(),
        "workerId": machine.machine.id.as_str(),
    });
    if let Some(pool_id) = &machine.pool_id {
        entry["workerPoolId"] = json!(pool_id.as_str());
    }
    entry
}
