//! The shapes of requests and replies about worker configurations.

use domain::Version;
use domain::configuration::{StoredConfiguration, VersionRecord};
use serde::Deserialize;
use serde_json::{Value, json};
use store::configuration_versions::ListedVersion;
use store::configurations::ListedConfiguration;

use crate::api::{call::Call, error::ApiError};

/// The body of createWorkerConfiguration, updateWorkerConfiguration and planWorkerConfiguration.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ConfigurationBody {
    #[serde(default)]
    pub(super) worker_configuration_id: Option<String>,
    #[serde(default)]
    description: String,
    worker_types: Value,
    #[serde(default)]
    sets: Option<Value>,
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
        if let Some(sets) = &self.sets {
            document["sets"] = sets.clone();
        }
        if let Some(ids) = &self.launch_config_ids {
            document["launchConfigIds"] = ids.clone();
        }
        document
    }
}

pub(super) fn configuration_json(stored: &StoredConfiguration) -> Value {
    let mut reply = content(&stored.document);
    reply["workerConfigurationId"] = json!(stored.id.as_str());
    reply["version"] = json!(stored.version.0);
    reply["created"] = json!(stored.created.to_string());
    reply["lastModified"] = json!(stored.last_modified.to_string());
    reply
}

/// Without the rules, for lists.
pub(super) fn configuration_summary(listed: &ListedConfiguration) -> Value {
    json!({
        "workerConfigurationId": listed.id.as_str(),
        "description": listed.summary["description"],
        "workerTypes": listed.summary["workerTypes"],
        "version": listed.version.0,
        "created": listed.created.to_string(),
        "lastModified": listed.last_modified.to_string(),
    })
}

/// One version in the history.
pub(super) fn version_json(record: &VersionRecord) -> Value {
    let mut reply = content(&record.document);
    reply["workerConfigurationId"] = json!(record.id.as_str());
    reply["version"] = json!(record.version.0);
    reply["action"] = json!(record.action.as_str());
    reply["clientId"] = json!(record.client_id);
    reply["reason"] = json!(record.reason);
    reply["created"] = json!(record.created.to_string());
    reply
}

/// Without the document, for lists.
pub(super) fn version_summary(listed: &ListedVersion) -> Value {
    json!({
        "workerConfigurationId": listed.id.as_str(),
        "version": listed.version.0,
        "action": listed.action.as_str(),
        "clientId": listed.client_id,
        "reason": listed.reason,
        "created": listed.created.to_string(),
    })
}

/// The members of a stored document that replies show.
fn content(document: &Value) -> Value {
    let mut reply = json!({
        "description": document["description"],
        "workerTypes": document["workerTypes"],
        "rules": document["rules"],
    });
    for key in ["sets", "launchConfigIds"] {
        if let Some(value) = document.get(key) {
            reply[key] = value.clone();
        }
    }
    reply
}

/// The query parameter `version`: the version that the client read.
pub(super) fn seen(call: &Call) -> Result<Option<i64>, ApiError> {
    call.query("version").map(number).transpose()
}

pub(super) fn version(text: &str) -> Result<Version, ApiError> {
    number(text).map(Version)
}

fn number(digits: &str) -> Result<i64, ApiError> {
    digits.parse().map_err(|_| {
        ApiError::input(format!(
            "{digits:?} is not the number of a version, such as 3"
        ))
    })
}
