//! The shapes of requests and replies about worker configurations.

use domain::Version;
use domain::configuration::{StoredConfiguration, VersionRecord};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::configuration_versions::ListedVersion;
use store::configurations::ListedConfiguration;

use super::super::super::call::Call;
use super::super::super::error::ApiError;
use super::super::wire::WireTime;

/// The body of createWorkerConfiguration, updateWorkerConfiguration and planWorkerConfiguration.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ConfigurationBody {
    #[serde(default)]
    pub(super) worker_configuration_id: Option<String>,
    #[serde(default)]
    description: String,
    worker_types: Value,
    rules: Value,
    #[serde(default)]
    launch_config_ids: Option<Value>,
    /// The version that the client read; later versions are not overwritten.
    #[serde(default)]
    pub(super) version: Option<i64>,
    #[serde(default)]
    pub(super) reason: String,
    /// Pools of these names that were made by hand become the configuration's.
    #[serde(default)]
    pub(super) adopt_pools: bool,
    /// Clients may send back fields that they read.
    #[serde(default, rename = "created")]
    _created: Option<String>,
    #[serde(default, rename = "lastModified")]
    _last_modified: Option<String>,
}

impl ConfigurationBody {
    pub(super) fn document(&self) -> Value {
        let mut document = json!({
            "description": self.description,
            "workerTypes": self.worker_types,
            "rules": self.rules,
        });
        if let Some(ids) = &self.launch_config_ids {
            document["launchConfigIds"] = ids.clone();
        }
        document
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConfigurationReply {
    worker_configuration_id: String,
    description: Value,
    worker_types: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    rules: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    launch_config_ids: Option<Value>,
    version: i64,
    created: WireTime,
    last_modified: WireTime,
}

impl ConfigurationReply {
    /// Without the rules, for lists.
    pub(super) fn summary(listed: &ListedConfiguration) -> Self {
        Self {
            worker_configuration_id: listed.id.to_string(),
            description: listed.summary["description"].clone(),
            worker_types: listed.summary["workerTypes"].clone(),
            rules: None,
            launch_config_ids: None,
            version: listed.version.0,
            created: WireTime(listed.created),
            last_modified: WireTime(listed.last_modified),
        }
    }
}

impl From<&StoredConfiguration> for ConfigurationReply {
    fn from(stored: &StoredConfiguration) -> Self {
        Self {
            worker_configuration_id: stored.id.to_string(),
            description: stored.document["description"].clone(),
            worker_types: stored.document["workerTypes"].clone(),
            rules: Some(stored.document["rules"].clone()),
            launch_config_ids: stored.document.get("launchConfigIds").cloned(),
            version: stored.version.0,
            created: WireTime(stored.created),
            last_modified: WireTime(stored.last_modified),
        }
    }
}

/// One version in the history.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct VersionReply {
    worker_configuration_id: String,
    version: i64,
    action: &'static str,
    client_id: String,
    reason: String,
    created: WireTime,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker_types: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rules: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    launch_config_ids: Option<Value>,
}

impl VersionReply {
    /// Without the document, for lists.
    pub(super) fn summary(record: &ListedVersion) -> Self {
        Self {
            worker_configuration_id: record.id.to_string(),
            version: record.version.0,
            action: record.action.as_str(),
            client_id: record.client_id.clone(),
            reason: record.reason.clone(),
            created: WireTime(record.created),
            description: None,
            worker_types: None,
            rules: None,
            launch_config_ids: None,
        }
    }
}

impl From<&VersionRecord> for VersionReply {
    fn from(record: &VersionRecord) -> Self {
        Self {
            worker_configuration_id: record.id.to_string(),
            version: record.version.0,
            action: record.action.as_str(),
            client_id: record.client_id.clone(),
            reason: record.reason.clone(),
            created: WireTime(record.created),
            description: Some(record.document["description"].clone()),
            worker_types: Some(record.document["workerTypes"].clone()),
            rules: Some(record.document["rules"].clone()),
            launch_config_ids: record.document.get("launchConfigIds").cloned(),
        }
    }
}

/// The query parameter `version`: the version that the client read.
pub(super) fn seen(call: &Call) -> Result<Option<i64>, ApiError> {
    call.query("version").map(number).transpose()
}

pub(super) fn version(text: &str) -> Result<Version, ApiError> {
    number(text).map(Version)
}

fn number(digits: &str) -> Result<i64, ApiError> {
    digits
        .parse()
        .map_err(|_| ApiError::input(format!("{digits:?} is not the number of a version")))
}
