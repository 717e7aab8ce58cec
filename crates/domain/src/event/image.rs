//! The events of an image: each step of the rollout of a build.

use serde_json::{Value, json};

use crate::id::ImageName;
use crate::time::Timestamp;

/// A step of a rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageEvent {
    pub image: ImageName,
    /// The number of the build.
    pub build: u64,
    pub step: ImageStep,
    pub reason: String,
    /// The client that decided it; `fleetwright` for a verdict.
    pub by: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageStep {
    CanaryStarted,
    CanaryExpired,
    CanaryEnded,
    Promoted,
    RolledBack,
}

impl ImageStep {
    pub(super) fn exchange(self) -> &'static str {
        match self {
            Self::CanaryStarted => "image-canary-started",
            Self::CanaryExpired => "image-canary-expired",
            Self::CanaryEnded => "image-canary-ended",
            Self::Promoted => "image-promoted",
            Self::RolledBack => "image-rolled-back",
        }
    }

    /// The action in the audit history.
    pub fn action(self) -> &'static str {
        match self {
            Self::CanaryStarted => "canary-started",
            Self::CanaryExpired => "canary-expired",
            Self::CanaryEnded => "canary-ended",
            Self::Promoted => "build-promoted",
            Self::RolledBack => "build-rolled-back",
        }
    }
}

impl ImageEvent {
    /// A dot would begin another word of the key.
    pub(super) fn routing_key(&self) -> String {
        format!("primary.{}._", self.image.as_str().replace('.', "_"))
    }

    pub(super) fn payload(&self, at: Timestamp) -> Value {
        json!({
            "imageId": self.image.as_str(),
            "build": self.build,
            "reason": self.reason,
            "by": self.by,
            "timestamp": at.to_string(),
        })
    }
}
