//! The state and the version of the service. The same for all of Taskcluster's services.

use engine::measures::seconds;
use serde_json::{Value, json};

use crate::api::endpoint::{Endpoint, NewEndpoint, Service, Verb};
use crate::api::{call::Call, error::ApiError, reply::Reply};

const CATEGORY: &str = "Monitoring";

/// The endpoints before and after the main table of each of Taskcluster's services.
pub(in crate::api) fn endpoints(service: Service) -> ([Endpoint; 3], Endpoint) {
    let on = |name, route| NewEndpoint::new(service, name, Verb::Get, route);
    let first = [
        on("ping", "/ping")
            .runs(|call| Box::pin(ping(call)))
            .about(CATEGORY, "Ping the service")
            .describe("Answers at once if the service is alive, with its uptime in seconds."),
        on("lbheartbeat", "/__lbheartbeat__")
            .runs(|call| Box::pin(heartbeat(call)))
            .about(CATEGORY, "Heartbeat for load balancers")
            .describe("Answers 200 while the service serves requests."),
        on("version", "/__version__")
            .runs(|call| Box::pin(version(call)))
            .about(CATEGORY, "Version of the service")
            .describe("The running version and the commit that it was built from."),
    ];
    let last = on("heartbeat", "/__heartbeat__")
        .runs(|call| Box::pin(heartbeat(call)))
        .about(CATEGORY, "Heartbeat")
        .describe("Answers 200 if the service works.");
    (first, last)
}

async fn ping(call: Call) -> Result<Reply, ApiError> {
    let uptime_ms = call.now.millis_since(call.app.started).max(0);
    Reply::json(&json!({"alive": true, "uptime": seconds(uptime_ms)}))
}

async fn heartbeat(_call: Call) -> Result<Reply, ApiError> {
    Reply::done()
}

async fn version(_call: Call) -> Result<Reply, ApiError> {
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
