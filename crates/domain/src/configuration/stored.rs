//! Worker configurations as rows: the current version, all versions, and the owner of each worker
//! type.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

use crate::Version;
use crate::id::{ConfigurationId, PoolId};
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

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an action on worker configurations")]
pub struct BadAction(pub String);

/// A worker type with the configuration that it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerTypeRecord {
    pub pool_id: PoolId,
    pub configuration_id: ConfigurationId,
    pub payload_schema: Option<Value>,
    /// Refuse tasks whose payload does not match the schema.
    pub check_payload: bool,
}

impl Action {
    const ALL: [Self; 8] = [
        Self::Created,
        Self::Updated,
        Self::RuleAdded,
        Self::RuleReplaced,
        Self::RuleRemoved,
        Self::RuleMoved,
        Self::Reverted,
        Self::Deleted,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::RuleAdded => "rule-added",
            Self::RuleReplaced => "rule-replaced",
            Self::RuleRemoved => "rule-removed",
            Self::RuleMoved => "rule-moved",
            Self::Reverted => "reverted",
            Self::Deleted => "deleted",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Action {
    type Err = BadAction;

    fn from_str(text: &str) -> Result<Self, BadAction> {
        let found = Self::ALL.into_iter().find(|action| action.as_str() == text);
        found.ok_or_else(|| BadAction(text.to_owned()))
    }
}
