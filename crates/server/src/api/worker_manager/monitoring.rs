//! The state and the version of the service. The same for every service.

use engine::measures::seconds;
use serde_json::{Map, Value, json};

use super::super::call::Call;
use super::super::error::ApiError;
use super::super::reply::Reply;

pub(in crate::api) async fn ping(call: Call) -> Result<Reply, ApiError> {
    let uptime_ms = call.now.millis_since(call.app.started).max(0);
    Reply::json(&json!({"alive": true, "uptime": seconds(uptime_ms)}))
}

pub(in crate::api) async fn heartbeat(_call: Call) -> Result<Reply, ApiError> {
    Reply::json(&Value::Object(Map::new()))
}

pub(in crate::api) async fn version(_call: Call) -> Result<Reply, ApiError> {
    Reply::json(&version_document())
}

/// The document that other services call `version.json`.
pub(in crate::api) fn version_document() -> Value {
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "commit": option_env!("FLEETWRIGHT_COMMIT").unwrap_or(""),
        "source": env!("CARGO_PKG_REPOSITORY"),
        "build": option_env!("FLEETWRIGHT_BUILD").unwrap_or(""),
    })
}
