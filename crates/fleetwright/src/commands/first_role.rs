//! The role that a new installation begins with on one machine: everybody there may read what tasks publish.
//!
//! Taskcluster's workers and tools rely on such a role: they read public artifacts and the state of tasks without
//! credentials. Names of tasks are random and cannot be listed with it.

use api_client::Credentials;
use serde_json::json;

use crate::client::{AUTH, Call, Client, Settings};
use crate::failure::{Exit, Failure};

/// What anybody may do.
pub(super) const ANYBODY: &str = "anonymous";
const SCOPES: [&str; 7] = [
    "purge-cache:purge-requests:*",
    "queue:get-artifact:public/*",
    "queue:get-task:*",
    "queue:list-artifacts:*",
    "queue:list-dependent-tasks:*",
    "queue:list-task-group:*",
    "queue:status:*",
];

/// Makes the role, unless there is one. Called by the first start only: a role that was deleted stays deleted.
pub(super) async fn make(root_url: String, credentials: Credentials) -> Result<(), Failure> {
    let body = json!({
        "description": "Everybody who reaches this server may read public artifacts, and tasks and their state.",
        "scopes": SCOPES,
    });
    let call = Call::put(AUTH, &["roles", ANYBODY], body);
    let call = call.to(format!("make the role {ANYBODY}"));
    match client(root_url, credentials)?.call(&call).await {
        Err(failure) if failure.exit == Exit::Conflict => Ok(()),
        made => made.map(drop),
    }
}

/// How many scopes everybody has.
pub(super) async fn n_scopes(root_url: String, credentials: Credentials) -> Result<usize, Failure> {
    let call = Call::get(AUTH, &["roles", ANYBODY]);
    let call = call.to(format!("show role {ANYBODY}"));
    match client(root_url, credentials)?.call(&call).await {
        Ok(role) => Ok(role["scopes"].as_array().map_or(0, Vec::len)),
        Err(failure) if failure.exit == Exit::NotFound => Ok(0),
        Err(failure) => Err(failure),
    }
}

fn client(root_url: String, credentials: Credentials) -> Result<Client, Failure> {
    let settings = Settings {
        root_url,
        credentials: Some(credentials),
    };
    Client::new(settings, false)
}
