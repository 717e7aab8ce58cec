//! The audit history: each change with its author, time and source address.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

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
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not something that has an audit history")]
pub struct BadEntityType(pub String);

impl EntityType {
    const ALL: [Self; 8] = [
        Self::Client,
        Self::Role,
        Self::Secret,
        Self::Hook,
        Self::WorkerPool,
        Self::Worker,
        Self::WorkerConfiguration,
        Self::Override,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Role => "role",
            Self::Secret => "secret",
            Self::Hook => "hook",
            Self::WorkerPool => "worker-pool",
            Self::Worker => "worker",
            Self::WorkerConfiguration => "worker-configuration",
            Self::Override => "override",
        }
    }
}

impl fmt::Display for EntityType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for EntityType {
    type Err = BadEntityType;

    fn from_str(text: &str) -> Result<Self, BadEntityType> {
        Self::ALL
            .into_iter()
            .find(|entity| entity.as_str() == text)
            .ok_or_else(|| BadEntityType(text.to_owned()))
    }
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
