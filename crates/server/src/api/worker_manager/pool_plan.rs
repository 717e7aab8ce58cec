//! What making or updating a pool by hand would do, before it is done.

use access::scope::Template::Scope;
use domain::id::LaunchConfigId;
use domain::launch_config::reconcile;
use serde_json::{Value, json};

use super::super::call::Call;
use super::super::endpoint::{Endpoint, Service, Verb};
use super::super::error::ApiError;
use super::super::reply::Reply;
use super::pools::{Wanted, changes_nothing, judged, refuse_compiled};
use super::wire::PoolBody;

/// Taskcluster has nothing like it.
pub(in crate::api) const ENDPOINTS: &[Endpoint] = &[Endpoint::new(
    Service::WorkerManager,
    "planWorkerPool",
    Verb::Post,
    "/plan-worker-pool/<workerPoolId>",
    |call| Box::pin(plan(call)),
)
.wildcard("workerPoolId")
.input("update-worker-pool-request.json")
.output("worker-pool-plan.json")
.scopes(Scope("worker-manager:get-worker-pool:<workerPoolId>"))
.about(
    "Worker Pools",
    "Plan a worker pool",
    "What making or updating a pool with this definition would do, and does not do. The definition is checked and \
     completed by its provider as for an update, and what is wrong with it is refused the same way.",
)];

async fn plan(call: Call) -> Result<Reply, ApiError> {
    let (id, body) = (call.pool_id()?, call.body::<PoolBody>()?);
    let wanted = judged(&call.app, body).await?;
    let now = call.now;
    let read = call.app.engine.store.read("pool_plan", move |tx| {
        let pool = store::pool_get(tx, &id)?;
        let known = store::launch_config_all(tx, &id)?;
        let mut conflicts = Vec::new();
        if let Some(pool) = &pool {
            conflicts.extend(refuse_compiled(pool).err().map(|problem| problem.message));
        }
        let Wanted {
            definition,
            launch_configs,
        } = wanted.clone();
        let done = match reconcile(&id, known.clone(), launch_configs, now) {
            Ok(done) => Some(done),
            Err(problem) => {
                conflicts.push(format!(
                    "{problem}: give the new one another launchConfigId, or none"
                ));
                None
            }
        };
        let same_definition = pool
            .as_ref()
            .is_some_and(|pool| pool.definition == definition);
        let same_configs = done
            .as_ref()
            .is_some_and(|done| changes_nothing(&known, done));
        let done = done.unwrap_or_default();
        Ok::<_, ApiError>(json!({
            "workerPoolId": id.as_str(),
            "exists": pool.is_some(),
            "changes": !(same_definition && same_configs),
            "launchConfigs": {
                "created": ids(&done.created),
                "kept": ids(&done.updated),
                "archived": ids(&done.archived),
            },
            "conflicts": conflicts,
        }))
    });
    Reply::json(&read.await?)
}

fn ids(ids: &[LaunchConfigId]) -> Vec<Value> {
    ids.iter().map(|id| json!(id.as_str())).collect()
}
