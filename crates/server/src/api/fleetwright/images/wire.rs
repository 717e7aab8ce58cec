//! The shapes of requests and replies about images.

use domain::Version;
use domain::image::{DefinitionChange, ImageVersion, StoredImage};
use serde_json::{Value, json};
use store::image_versions::ListedImageVersion;

use crate::api::{call::Call, error::ApiError, reply::without_nulls};

pub(super) fn image_json(stored: &StoredImage) -> Value {
    let mut reply = stored.document.clone();
    reply["version"] = json!(stored.version.0);
    reply["created"] = json!(stored.created.to_string());
    reply["lastModified"] = json!(stored.last_modified.to_string());
    reply
}

/// For lists.
pub(super) fn image_summary(stored: &StoredImage) -> Value {
    let document = &stored.document;
    without_nulls(json!({
        "imageId": stored.id.as_str(),
        "description": document.get("description"),
        "owner": document.get("owner"),
        "labels": document.get("labels"),
        "uploads": document.get("uploads"),
        "paused": document.get("paused"),
        "version": stored.version.0,
        "created": stored.created.to_string(),
        "lastModified": stored.last_modified.to_string(),
    }))
}

pub(super) fn version_json(record: &ImageVersion) -> Value {
    let mut reply = record.document.clone();
    reply["version"] = json!(record.version.0);
    reply["action"] = json!(record.action.as_str());
    reply["clientId"] = json!(record.client_id);
    reply["reason"] = json!(record.reason);
    reply["created"] = json!(record.created.to_string());
    reply
}

/// Without the definition, for lists.
pub(super) fn version_summary(listed: &ListedImageVersion) -> Value {
    json!({
        "imageId": listed.id.as_str(),
        "version": listed.version.0,
        "action": listed.action.as_str(),
        "clientId": listed.client_id,
        "reason": listed.reason,
        "created": listed.created.to_string(),
    })
}

pub(super) fn change_json(change: &DefinitionChange) -> Value {
    without_nulls(json!({
        "pointer": change.change.pointer,
        "before": change.change.before,
        "after": change.change.after,
        "effect": change.effect.to_string(),
    }))
}

/// The query parameter `version`: the version that the client read.
pub(super) fn seen(call: &Call) -> Result<Option<Version>, ApiError> {
    call.query("version").map(version).transpose()
}

pub(super) fn version(digits: &str) -> Result<Version, ApiError> {
    let number = digits.parse().map_err(|_| {
        ApiError::input(format!(
            "{digits:?} is not the number of a version, such as 3"
        ))
    })?;
    Ok(Version(number))
}
