//! How a question gets to the other side, and what may become of it on the way.

use async_trait::async_trait;
use domain::launch::Cause;

use crate::CloudError;

/// A longer answer is not read.
pub(crate) const MAX_ANSWER_BYTES: usize = 16 * 1024 * 1024;

/// What the other side can be asked for: a path in a URL, an argument of a program.
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
pub(crate) trait Carrier: Send + Sync {
    fn kind(&self) -> &'static str;

    /// The schema of the pool configs.
    fn schema(&self) -> &'static str;

    /// Reads secrets, makes folders; what goes wrong is told to people.
    async fn prepare(&self) -> Result<(), String>;

    /// Takes the question there and the answer back, within a time limit of its own.
    async fn carry(&self, operation: Operation, question: Vec<u8>) -> Result<Answer, NoAnswer>;
}

/// What came back, unread.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The other side says that it did what was asked.
    pub(crate) done: bool,
    pub(crate) body: Vec<u8>,
    /// For people: `status 503`.
    pub(crate) outline: String,
    /// Why it was not done, where that can be told without reading the body, and for certain.
    pub(crate) cause: Option<Cause>,
}

#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// The question was not sent.
    NotSent(String),
    /// It was, or part of it, and what became of it nobody knows.
    Lost(String),
}

/// What was asked for was not done, as far as is known.
#[derive(Debug)]
pub(crate) enum Failure {
    NotSent(String),
    /// The other side says that it did nothing.
    Refused {
        cause: Cause,
        message: String,
    },
    /// It may have been done.
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
    fn from(problem: NoAnswer) -> Self {
        match problem {
            NoAnswer::NotSent(problem) => Self::NotSent(problem),
            NoAnswer::Lost(problem) => Self::Lost(problem),
        }
    }
}

impl From<Failure> for CloudError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NotSent(problem) | Failure::Lost(problem) => Self::Unavailable(problem),
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
