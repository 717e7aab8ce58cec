//! Conformance runs of providers.

use std::time::Duration;

use cloud::ConformanceFinding;
use domain::audit::EntityType;
use domain::id::{LaunchToken, PoolId, ProviderId};
use engine::provider_tests::{ProviderTestOrder, TestedConfig};
use engine::workers;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::on;
use crate::api::endpoint::Endpoint;
use crate::api::endpoint::Verb::Post;
use crate::api::{call::Call, error::ApiError, reply::Reply};

/// How long a reply takes if the request does not say, and at most.
const USUAL_WAIT_SECONDS: u64 = 20;
const MAX_WAIT_SECONDS: u64 = 60;

/// Taskcluster has no such endpoint.
pub(in crate::api) const ENDPOINTS: &[Endpoint] =
    &[on("testProvider", Post, "/provider/<providerId>/test")
        .runs(|call| Box::pin(test(call)))
        .input("test-provider-request.json")
        .output("test-provider-response.json")
        .scope("worker-manager:provider-test:<providerId>")
        .about("Provider Tests", "Test a provider")
        .describe(
            "Asks the provider the questions that every provider must answer well: about its \
     set-up, places, lists, launch configs and bids. With `launch` one machine is made, looked at, \
     listed and ended, which costs money. The machine is no worker, and is ended whatever the \
     answers are. One test of a provider runs at a time in a process. It goes on without its \
     caller: call again with the same `testId` and `continue` until `state` is `done`.",
        )];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Body {
    test_id: String,
    worker_pool_id: Option<String>,
    launch_config: Option<Map<String, Value>>,
    #[serde(default)]
    launch: bool,
    #[serde(default)]
    r#continue: bool,
    wait_seconds: Option<u64>,
}

async fn test(call: Call) -> Result<Reply, ApiError> {
    let provider_id = call.id::<ProviderId>("providerId")?;
    let body = call.body::<Body>()?;
    let subject = match (body.worker_pool_id, body.launch_config) {
        (Some(_), Some(_)) => {
            let text = "`workerPoolId` and `launchConfig` exclude each other: give one of them";
            return Err(ApiError::input(text.to_owned()));
        }
        (Some(id), None) => Some(TestedConfig::Pool(id.parse::<PoolId>()?)),
        (None, Some(content)) => Some(TestedConfig::LaunchConfig(content)),
        (None, None) => None,
    };
    let mut audit = call.audit(EntityType::Provider, provider_id.as_str(), "tested");
    audit.detail = json!({"testId": body.test_id, "launch": body.launch});
    let wait = body.wait_seconds.unwrap_or(USUAL_WAIT_SECONDS);
    let order = ProviderTestOrder {
        provider_id,
        id: body.test_id.parse::<LaunchToken>()?,
        subject,
        launches: body.launch,
        is_begun: body.r#continue,
        wait: Duration::from_secs(wait.min(MAX_WAIT_SECONDS)),
    };
    let progress = workers::test_provider(&call.app.engine, order, audit).await?;
    let state = if progress.is_done { "done" } else { "running" };
    Reply::json(&json!({
        "testId": body.test_id,
        "state": state,
        "questions": progress.findings.iter().map(finding_json).collect::<Vec<_>>(),
    }))
}

fn finding_json(finding: &ConformanceFinding) -> Value {
    let mut entry = json!({
        "question": finding.question.name(),
        "text": finding.question.text(),
        "result": finding.result.name(),
        "answer": finding.answer,
    });
    if let Some(advice) = finding.advice {
        entry["advice"] = json!(advice);
    }
    entry
}
