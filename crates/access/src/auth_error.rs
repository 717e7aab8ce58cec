//! The error of authentication.

use crate::role::ExpansionTooLarge;

/// Why a request is refused, as a message for its sender.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AuthError {
    pub message: String,
}

impl From<ExpansionTooLarge> for AuthError {
    fn from(problem: ExpansionTooLarge) -> Self {
        Self::new(problem.to_string())
    }
}

impl AuthError {
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
