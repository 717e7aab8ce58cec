//! Quarantines and declares workers of the queue.

use access::scope::Params;
use domain::audit::EntityType;
use domain::time::Timestamp;
use engine::queue;
use serde::Deserialize;
use serde_json::{Value, json};

use super::worker_views::{details, not_found, worker_key};
use crate::api::{call::Call, error::ApiError, reply::Reply};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct QuarantineBody {
    quarantine_until: String,
    #[serde(default)]
    quarantine_info: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeclareBody {
    expires: String,
}

/// A quarantined worker gets no work. A time in the past ends the quarantine.
pub(super) async fn quarantine(call: Call) -> Result<Reply, ApiError> {
    let key = worker_key(&call).map_err(|_| not_found(&call))?;
    let body: QuarantineBody = call.body()?;
    let until = moment("quarantineUntil", &body.quarantine_until)?;
    let mut audit = call.audit(EntityType::Worker, &key.to_string(), "quarantined");
    audit.detail = json!({"until": until.to_string(), "info": body.quarantine_info});
    let (engine, info) = (&call.app.engine, body.quarantine_info);
    let worker = queue::quarantine_worker(engine, key, until, info, audit).await?;
    let worker = worker.ok_or_else(|| not_found(&call))?;
    Reply::json(&details(&worker))
}

/// Declares a worker that has not asked for work yet, or extends its expiration.
pub(super) async fn declare(mut call: Call) -> Result<Reply, ApiError> {
    let key = worker_key(&call)?;
    let body: DeclareBody = call.body()?;
    call.authorize(declared_properties(&call)).await?;
    let expires = moment("expires", &body.expires)?;
    let declared = queue::declare_worker(&call.app.engine, call.now, key, expires);
    Reply::json(&details(&declared.await?))
}

/// Each given property needs a scope of its own.
fn declared_properties(call: &Call) -> Params {
    let given = call.body.as_object().into_iter().flatten();
    let names = given.map(|(name, _): (&String, &Value)| name.clone());
    call.url_params().list("properties", names.collect())
}

fn moment(name: &str, text: &str) -> Result<Timestamp, ApiError> {
    text.parse()
        .map_err(|bad| ApiError::input(format!("`{name}` cannot be used: {bad}")))
}
