//! The audit history: each change with its author, time and source address.

use serde_json::Value;

use crate::id::names;
use crate::time::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntityType {
    Client,
    Role,
    Secret,
    Hook,
    WorkerPool,
    Worker,
    WorkerConfiguration,
    Override,
    Budget,
    Image,
    Provider,
}

names! {
    EntityType, "not something that has an audit history",
    Client = "client",
    Role = "role",
    Secret = "secret",
    Hook = "hook",
    WorkerPool = "worker-pool",
    Worker = "worker",
    WorkerConfiguration = "worker-configuration",
    Override = "override",
    Budget = "budget",
    Image = "image",
    Provider = "provider",
}

/// One change. Written in the transaction of the change.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditEntry {
    pub entity_type: EntityType,
    pub entity_id: String,
    /// `created`, `updated`, `deleted`, …
    pub action: String,
    pub client_id: String,
    pub created: Timestamp,
    pub source_ip: Option<String>,
    pub request_id: Option<String>,
    /// Further details; never a secret.
    pub detail: Value,
}
