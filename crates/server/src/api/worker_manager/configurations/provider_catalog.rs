//! The conditions that the providers of this deployment offer to rule sets.

use engine::configurations::provider_entry;
use serde_json::{Value, json};

use crate::api::{call::Call, error::ApiError, reply::Reply};

pub(super) async fn list(call: Call) -> Result<Reply, ApiError> {
    let listed = call.app.engine.providers.listed().map(|(id, kind)| {
        let mut entry = match provider_entry(&call.app.engine, id) {
            Ok(wares) => json!(wares),
            Err(problem) => json!({ "problem": problem }),
        };
        entry["providerId"] = json!(id.as_str());
        entry["providerType"] = json!(kind);
        entry
    });
    Reply::json(&json!({ "providers": listed.collect::<Vec<Value>>() }))
}
