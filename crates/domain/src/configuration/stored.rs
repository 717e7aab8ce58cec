//! Worker configurations as rows: the current version, all versions, and the owner of each worker
//! type.

use serde_json::Value;

use crate::Version;
use crate::id::{ConfigurationId, PoolId, names};
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq)]
pub struct StoredConfiguration {
    pub id: ConfigurationId,
    pub document: Value,
    /// The provider catalog with which it was compiled.
    pub market: Value,
    pub created: Timestamp,
    pub last_modified: Timestamp,
    pub version: Version,
}

/// A version in the history of a configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct VersionRecord {
    pub id: ConfigurationId,
    pub version: Version,
    pub action: Action,
    pub document: Value,
    pub market: Value,
    pub client_id: String,
    /// The rule that changed, or the author's text.
    pub reason: String,
    pub created: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Created,
    Updated,
    RuleAdded,
    RuleReplaced,
    RuleRemoved,
    RuleMoved,
    Reverted,
    Deleted,
}

/// A worker type with the configuration that it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerTypeRecord {
    pub pool_id: PoolId,
    pub configuration_id: ConfigurationId,
    pub payload_schema: Option<Value>,
    /// Refuse tasks whose payload does not match the schema.
    pub check_payload: bool,
}

names! {
    Action, "not an action on worker configurations",
    Created = "created",
    Updated = "updated",
    RuleAdded = "rule-added",
    RuleReplaced = "rule-replaced",
    RuleRemoved = "rule-removed",
    RuleMoved = "rule-moved",
    Reverted = "reverted",
    Deleted = "deleted",
}
