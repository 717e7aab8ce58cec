//! Why a request is not let in.

use crate::role::ExpansionTooLarge;

/// Why a request is not let in, in words for its sender.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AuthFailed {
    /// The words.
    pub message: String,
}

impl From<ExpansionTooLarge> for AuthFailed {
    fn from(problem: ExpansionTooLarge) -> Self {
        Self::new(problem.to_string())
    }
}

impl AuthFailed {
    /// With these words.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
        }
    }

    pub(crate) fn bad_request(what: &str) -> Self {
        Self::new(format!("Bad Request: {what}"))
    }

    pub(crate) fn unauthorized(what: &str) -> Self {
        Self::new(format!("Unauthorized: {what}"))
    }
}
