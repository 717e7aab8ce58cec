//! The transport of the provider protocol: operations, responses and failures.

use async_trait::async_trait;
use domain::launch::Cause;

use crate::CloudError;

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
}

#[async_trait]
pub(crate) trait Transport: Send + Sync {
    fn kind(&self) -> &'static str;

    /// The schema of the pool configs.
    fn schema(&self) -> &'static str;

    /// Reads secrets and makes folders. The error is a message for the operator.
    async fn prepare(&self) -> Result<(), String>;

    /// Sends a request and returns the response, within the transport's own time limit.
    async fn send(&self, operation: Operation, question: Vec<u8>) -> Result<Answer, NoAnswer>;
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
}

#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// The request was not sent.
    NotSent(String),
    /// The request was sent at least in part, and its outcome is unknown.
    Lost(String),
}

/// The operation did not succeed, as far as is known.
#[derive(Debug)]
pub(crate) enum Failure {
    NotSent(String),
    /// The provider reports that it did nothing.
    Refused {
        cause: Cause,
        message: String,
    },
    /// The operation may have been done.
    Lost(String),
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
        }
    }
}

impl From<NoAnswer> for Failure {
    fn from(error: NoAnswer) -> Self {
        match error {
            NoAnswer::NotSent(error) => Self::NotSent(error),
            NoAnswer::Lost(error) => Self::Lost(error),
        }
    }
}

impl From<Failure> for CloudError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NotSent(error) | Failure::Lost(error) => Self::Unavailable(error),
            Failure::Refused { cause, message } => match cause {
                Cause::Throttled => Self::Throttled(message),
                Cause::Credentials => Self::Credentials(message),
                Cause::Unavailable => Self::Unavailable(message),
                Cause::Capacity | Cause::Quota | Cause::Configuration | Cause::Lost => {
                    Self::Refused(message)
                }
            },
        }
    }
}
