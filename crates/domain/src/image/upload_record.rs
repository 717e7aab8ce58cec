//! The record of an upload in the tree, and its states.
//!
//! Other modules can read the fields of a record, and cannot write them. Each transition consumes
//! the record and returns the changed one, or an error:
//!
//! ```compile_fail,E0594
//! fn assign(upload: &mut domain::image::UploadRecord) {
//!     upload.state = domain::image::UploadState::Uploading;
//! }
//! ```

use std::ops::Deref;

use serde_json::{Map, Value};

use super::format::ImageFormat;
use super::record_fields::{BadRecord, Fields};
use crate::time::Timestamp;

/// `uploading` → `ready` or `failed` → `deleting`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UploadState {
    Uploading,
    /// The provider has the image.
    Ready,
    Failed {
        error: String,
        /// The uploading process ended.
        abandoned: bool,
    },
    /// The provider's image is deleted, then the record.
    Deleting,
}

/// The fields of a record. Only parsers and tests make a record of them.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredUpload {
    pub state: UploadState,
    /// Since when it has this state.
    pub state_time: Timestamp,
    /// The provider's id of the image. Known for a ready upload; perhaps earlier.
    pub external_id: Option<String>,
    /// The provider's name of the image.
    pub external_name: Option<String>,
    pub format: Option<ImageFormat>,
    /// Which process uploads.
    pub uploader: String,
    pub started: Option<Timestamp>,
    pub finished: Option<Timestamp>,
    /// Counts uploads of this build to this target since the last success or change: 1 for the
    /// first.
    pub attempt: u32,
    /// The number of the lock under which it is uploaded.
    pub fence: Option<u64>,
    /// How it is uploaded; see `UploadTarget::hash`.
    pub target_hash: Option<String>,
    /// Identifies the upload for the provider.
    pub token: Option<String>,
    /// It failed, and an attempt with the same token goes on where it stopped.
    pub resumable: bool,
    /// Fields of other programs.
    pub further: Map<String, Value>,
}

/// The fields of a new upload; `begin` sets the others.
pub struct NewUpload {
    pub uploader: String,
    pub format: ImageFormat,
    pub external_name: Option<String>,
    pub attempt: u32,
    pub fence: u64,
    pub target_hash: String,
    pub token: String,
}

/// Its fields are those of [`StoredUpload`], and only its transitions change them.
#[derive(Clone, Debug, PartialEq)]
pub struct UploadRecord(StoredUpload);

/// A transition that an upload does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UploadStateError {
    #[error("an upload that is {from} cannot become {to}")]
    State {
        from: &'static str,
        to: &'static str,
    },
    #[error("the upload belongs to lock {held}, and the caller holds lock {given}")]
    Fenced { held: u64, given: u64 },
    #[error("a ready upload has an external id")]
    NoExternalId,
}

impl UploadState {
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Uploading => "uploading",
            Self::Ready => "ready",
            Self::Failed { .. } => "failed",
            Self::Deleting => "deleting",
        }
    }
}

impl Deref for UploadRecord {
    type Target = StoredUpload;

    fn deref(&self) -> &StoredUpload {
        &self.0
    }
}

impl NewUpload {
    /// Written before the provider is called.
    pub fn begin(self, now: Timestamp) -> UploadRecord {
        UploadRecord(StoredUpload {
            state: UploadState::Uploading,
            state_time: now,
            external_id: None,
            external_name: self.external_name,
            format: Some(self.format),
            uploader: self.uploader,
            started: Some(now),
            finished: None,
            attempt: self.attempt.max(1),
            fence: Some(self.fence),
            target_hash: Some(self.target_hash),
            token: Some(self.token),
            resumable: false,
            further: Map::new(),
        })
    }
}

impl UploadRecord {
    /// For parsers and tests: it checks nothing.
    pub fn from_stored(stored: StoredUpload) -> Self {
        Self(stored)
    }

    pub fn into_stored(self) -> StoredUpload {
        self.0
    }

    /// Reads a record of ours, or of Nodepool.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadRecord> {
        let mut fields = Fields::parse(bytes)?;
        let error = fields.text("error")?;
        let abandoned = fields.flag("abandoned")?;
        let state = match fields.text("state")?.as_deref() {
            Some("uploading") => UploadState::Uploading,
            Some("ready") => UploadState::Ready,
            Some("failed") => UploadState::Failed {
                error: error.unwrap_or_default(),
                abandoned,
            },
            Some("deleting" | "delete") => UploadState::Deleting,
            Some(other) => {
                let text = format!("{other:?} is not an upload's state");
                return Err(BadRecord::at("state", text));
            }
            None => return Err(BadRecord::at("state", "is missing")),
        };
        let external_id = fields.text("external_id")?;
        if state == UploadState::Ready && external_id.is_none() {
            return Err(BadRecord::at("external_id", "is missing in a ready upload"));
        }
        let state_time = fields.moment("state_time")?;
        Ok(Self(StoredUpload {
            state,
            state_time: state_time.unwrap_or(Timestamp::from_millis(0)),
            external_id,
            external_name: fields.text("external_name")?,
            format: fields.parsed("format")?,
            uploader: fields.text("uploader")?.unwrap_or_default(),
            started: fields.moment("started")?,
            finished: fields.moment("finished")?,
            attempt: fields.count("attempt")?.unwrap_or(1).max(1),
            fence: fields.number("fence")?,
            target_hash: fields.text("target_hash")?,
            token: fields.text("token")?,
            resumable: fields.flag("resumable")?,
            further: fields.0,
        }))
    }

    pub fn to_document(&self) -> Value {
        let mut fields = Fields(self.further.clone());
        fields.put("state", self.state.as_str());
        fields.put_moment("state_time", Some(self.state_time));
        if let UploadState::Failed { error, abandoned } = &self.state {
            fields.put("error", error.as_str());
            if *abandoned {
                fields.put("abandoned", true);
            }
        }
        fields.put("external_id", self.external_id.clone());
        fields.put("external_name", self.external_name.clone());
        fields.put("format", self.format.as_ref().map(ImageFormat::as_str));
        fields.put("uploader", self.uploader.as_str());
        fields.put_moment("started", self.started);
        fields.put_moment("finished", self.finished);
        fields.put("attempt", self.attempt);
        fields.put("fence", self.fence);
        fields.put("target_hash", self.target_hash.clone());
        fields.put("token", self.token.clone());
        if self.resumable {
            fields.put("resumable", true);
        }
        Value::Object(fields.0)
    }

    /// Notes the provider's id as soon as it is known, so that a failed upload can be removed.
    pub fn identify(self, external_id: String, fence: u64) -> Result<Self, UploadStateError> {
        self.check_uploading("uploading", fence)?;
        let mut stored = self.0;
        stored.external_id = Some(external_id);
        Ok(Self(stored))
    }

    /// The provider has the image. `fence` is the number of the lock that the caller holds.
    pub fn succeed(
        self,
        external_id: String,
        fence: u64,
        now: Timestamp,
    ) -> Result<Self, UploadStateError> {
        self.check_uploading("ready", fence)?;
        if external_id.is_empty() {
            return Err(UploadStateError::NoExternalId);
        }
        let mut stored = self.0;
        stored.external_id = Some(external_id);
        stored.finished = Some(now);
        Ok(Self::with_state(stored, UploadState::Ready, now))
    }

    /// `fence` is the number of the lock that the caller holds. A `resumable` upload goes on where
    /// it stopped at the next attempt.
    pub fn fail(
        self,
        error: String,
        resumable: bool,
        fence: u64,
        now: Timestamp,
    ) -> Result<Self, UploadStateError> {
        self.check_uploading("failed", fence)?;
        let mut failed = self.into_failed(error, false, now);
        failed.0.resumable = resumable;
        Ok(failed)
    }

    /// Its lock is free: the uploading process ended. Any process may say so.
    pub fn abandon(self, now: Timestamp) -> Result<Self, UploadStateError> {
        self.check_state("failed")?;
        let error = format!("{} ended before the upload did", self.uploader);
        let mut failed = self.into_failed(error, true, now);
        failed.0.resumable = true;
        Ok(failed)
    }

    /// The provider's image has to be deleted. Any process may say so.
    pub fn delete(self, now: Timestamp) -> Result<Self, UploadStateError> {
        match self.state {
            UploadState::Ready | UploadState::Failed { .. } => {
                Ok(Self::with_state(self.0, UploadState::Deleting, now))
            }
            UploadState::Uploading | UploadState::Deleting => Err(UploadStateError::State {
                from: self.state.as_str(),
                to: "deleting",
            }),
        }
    }

    fn into_failed(self, error: String, abandoned: bool, now: Timestamp) -> Self {
        let mut stored = self.0;
        stored.finished = Some(now);
        Self::with_state(stored, UploadState::Failed { error, abandoned }, now)
    }

    fn with_state(mut stored: StoredUpload, state: UploadState, now: Timestamp) -> Self {
        stored.state = state;
        stored.state_time = now;
        Self(stored)
    }

    fn check_uploading(&self, to: &'static str, given: u64) -> Result<(), UploadStateError> {
        self.check_state(to)?;
        match self.fence {
            Some(held) if held != given => Err(UploadStateError::Fenced { held, given }),
            Some(_) | None => Ok(()),
        }
    }

    fn check_state(&self, to: &'static str) -> Result<(), UploadStateError> {
        match self.state {
            UploadState::Uploading => Ok(()),
            UploadState::Ready | UploadState::Failed { .. } | UploadState::Deleting => {
                let from = self.state.as_str();
                Err(UploadStateError::State { from, to })
            }
        }
    }
}

#[cfg(test)]
mod tests;
