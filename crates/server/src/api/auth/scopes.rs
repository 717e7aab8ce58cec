//! Expands scopes by the roles.

use serde::Deserialize;
use serde_json::json;

use super::embedded;
use crate::api::{call::Call, error::ApiError, reply::Reply};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScopesBody {
    scopes: Vec<String>,
}

pub(super) async fn expand(call: Call) -> Result<Reply, ApiError> {
    let body: ScopesBody = call.body()?;
    let expanded = embedded(&call)?.expand(&body.scopes, call.now).await?;
    Reply::json(&json!({ "scopes": expanded.to_vec() }))
}

pub(super) async fn current(call: Call) -> Result<Reply, ApiError> {
    Reply::json(&json!({ "scopes": call.scopes().to_vec() }))
}
