//! Definitions of images as rows: the current version, and all versions.

use serde_json::Value;

use crate::Version;
use crate::id::{ImageName, names};
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq)]
pub struct StoredImage {
    pub id: ImageName,
    pub document: Value,
    pub created: Timestamp,
    pub last_modified: Timestamp,
    pub version: Version,
}

/// A version in the history of a definition.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageVersion {
    pub id: ImageName,
    pub version: Version,
    pub action: ImageAction,
    pub document: Value,
    pub client_id: String,
    /// The author's text.
    pub reason: String,
    pub created: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageAction {
    Created,
    Updated,
    Reverted,
    Deleted,
}

names! {
    ImageAction, "not an action on definitions of images",
    Created = "created",
    Updated = "updated",
    Reverted = "reverted",
    Deleted = "deleted",
}
