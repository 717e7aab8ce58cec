//! Shows the result of creating or updating a pool by hand, before it is applied.

use access::scope::Template::{self, AllOf, Scope};
use domain::id::{ImageName, LaunchConfigId};
use engine::image_references::MissingImages;
use engine::pools;
use serde_json::json;

use super::on;
use super::pools::validated;
use super::wire::PoolBody;
use crate::api::endpoint::{Endpoint, Verb::Post};
use crate::api::{call::Call, error::ApiError, reply::Reply};

/// Providers run programs and call services with the definition of the caller.
const PLAN: &[Template] = &[
    Scope("worker-manager:get-worker-pool:<workerPoolId>"),
    Scope("worker-manager:provider:<providerId>"),
];

/// Taskcluster has no such endpoint.
pub(in crate::api) const ENDPOINTS: &[Endpoint] = &[on(
    "planWorkerPool",
    Post,
    "/plan-worker-pool/<workerPoolId>",
)
.runs(|call| Box::pin(plan(call)))
.wildcard("workerPoolId")
.input("update-worker-pool-request.json")
.output("worker-pool-plan.json")
.scopes(AllOf(PLAN))
.about("Worker Pools", "Plan a worker pool")
.describe(
    "Shows the result of creating or updating a pool with this definition, without applying it. \
     Its providers check and complete the definition as for an update, and errors are the same, \
     except that images which do not exist are listed. So the caller needs the scopes of all named providers.",
)];

async fn plan(mut call: Call) -> Result<Reply, ApiError> {
    let (id, body) = (call.pool_id()?, call.body::<PoolBody>()?);
    let judged = validated(&mut call, body, MissingImages::List).await?;
    let (pool_id, now) = (id.clone(), call.now);
    let read = call.read("pool_plan", move |tx| {
        pools::plan(tx, &pool_id, &judged, now)
    });
    let plan = read.await?;
    let missing = plan.missing_images.iter().map(ImageName::as_str);
    Reply::json(&json!({
        "workerPoolId": id.as_str(),
        "exists": plan.exists,
        "changes": plan.changes,
        "launchConfigs": {
            "created": ids(&plan.launch_configs.created),
            "kept": ids(&plan.launch_configs.updated),
            "archived": ids(&plan.launch_configs.archived),
        },
        "conflicts": plan.conflicts,
        "missingImages": missing.collect::<Vec<_>>(),
    }))
}

fn ids(ids: &[LaunchConfigId]) -> Vec<&str> {
    ids.iter().map(LaunchConfigId::as_str).collect()
}
