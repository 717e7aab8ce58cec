//! The first role of a new installation on one machine: anonymous clients may read public data.
//!
//! Taskcluster's workers and tools rely on this role: they read public artifacts and task status
//! without credentials. Task ids are random, and the role cannot list them.

use serde_json::json;

use crate::client::Client;
use crate::code::Kind;
use crate::failure::{Exit, Failure};

/// The role of anonymous clients.
pub(super) const ANONYMOUS: &str = "anonymous";
const SCOPES: [&str; 7] = [
    "purge-cache:purge-requests:*",
    "queue:get-artifact:public/*",
    "queue:get-task:*",
    "queue:list-artifacts:*",
    "queue:list-dependent-tasks:*",
    "queue:list-task-group:*",
    "queue:status:*",
];

/// Creates the role if it does not exist. Called only on the first start: a deleted role is not
/// created again.
pub(super) async fn make(client: &Client) -> Result<(), Failure> {
    let body = json!({
        "description": "Everybody who reaches this server may read public artifacts, and tasks \
         and their state.",
        "scopes": SCOPES,
    });
    match client.call(&Kind::Role.create_call(ANONYMOUS, body)).await {
        Err(failure) if failure.exit == Exit::Conflict => Ok(()),
        made => made.map(drop),
    }
}

pub(super) async fn n_scopes(client: &Client) -> Result<usize, Failure> {
    match client.call(&Kind::Role.read_call("show", ANONYMOUS)).await {
        Ok(role) => Ok(role["scopes"].as_array().map_or(0, Vec::len)),
        Err(failure) if failure.exit == Exit::NotFound => Ok(0),
        Err(failure) => Err(failure),
    }
}
