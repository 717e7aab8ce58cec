//! The transport of the provider protocol: operations, responses and failures.

use async_trait::async_trait;
use domain::launch::Cause;

use crate::{CloudError, LaunchError};

/// Longest response that is read.
pub(crate) const MAX_ANSWER_BYTES: usize = 16 * 1024 * 1024;

/// An operation of the protocol: a path in a URL, or an argument of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Setup,
    Validate,
    Bids,
    Launch,
    Look,
    Owned,
    End,
    Verify,
    UploadImage,
    FindImage,
    DeleteImage,
    OwnedImages,
    CreateWorker,
    UpdateWorker,
    PreparePool,
    ReleasePool,
    Terminate,
}

#[async_trait]
pub(crate) trait Transport: Send + Sync {
    fn kind(&self) -> &'static str;

    /// The schema of the pool configs.
    fn schema(&self) -> &'static str;

    /// Reads secrets and makes folders. The error is a message for the operator.
    async fn prepare(&self) -> Result<(), String>;

    /// Sends a request and returns the response, within the transport's own time limit.
    async fn send(&self, operation: Operation, question: Vec<u8>) -> Result<Answer, Failure>;
}

/// A response that has not been parsed.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Whether the provider reports success.
    pub(crate) done: bool,
    pub(crate) body: Vec<u8>,
    /// A short form for error messages, like `status 503`.
    pub(crate) outline: String,
    /// The cause of a failure, where it is certain without the body.
    pub(crate) cause: Option<Cause>,
    /// The text that the provider wrote beside its response, as one bounded line.
    pub(crate) log: Option<String>,
}

/// The operation did not succeed, as far as is known.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nothing was done: the provider says so, or the request was not sent.
    Refused { cause: Cause, message: String },
    /// The operation may have been done.
    Lost(String),
}

impl Failure {
    /// Adds the text that a program wrote to standard error: it may explain a response that says
    /// nothing.
    pub(crate) fn with_log(self, log: Option<&str>) -> Self {
        match (self, log) {
            (Self::Lost(error), Some(log)) => Self::Lost(format!("{error}. stderr: {log}")),
            (failure, _) => failure,
        }
    }

    pub(crate) fn not_sent(message: impl Into<String>) -> Self {
        Self::Refused {
            cause: Cause::Unavailable,
            message: message.into(),
        }
    }
}

impl Operation {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Setup => "setup",
            Self::Validate => "validate",
            Self::Bids => "bids",
            Self::Launch => "launch",
            Self::Look => "look",
            Self::Owned => "owned",
            Self::End => "end",
            Self::Verify => "verify",
            Self::UploadImage => "upload-image",
            Self::FindImage => "find-image",
            Self::DeleteImage => "delete-image",
            Self::OwnedImages => "owned-images",
            Self::CreateWorker => "create-worker",
            Self::UpdateWorker => "update-worker",
            Self::PreparePool => "prepare-pool",
            Self::ReleasePool => "release-pool",
            Self::Terminate => "terminate",
        }
    }
}

impl From<Failure> for CloudError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused { cause, message } => Self::caused_by(cause, message),
            Failure::Lost(error) => Self::Unavailable(error),
        }
    }
}

impl From<Failure> for LaunchError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused { cause, message } => Self::Refused {
                cause,
                error: message,
            },
            Failure::Lost(error) => Self::Unknown(error),
        }
    }
}
