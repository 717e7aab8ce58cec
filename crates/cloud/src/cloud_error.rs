//! Failed calls to clouds, by what to do next.

use domain::launch::Cause;

/// A failed call to a cloud. The variants say what to do next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloudError {
    /// Too many calls: call less often.
    #[error("the cloud throttles our calls: {0}")]
    Throttled(String),
    /// The credentials are refused: an operator must look at them.
    #[error("the cloud does not accept our credentials: {0}")]
    Credentials(String),
    /// The cloud cannot be reached, does not answer in time, or fails. Try again later.
    #[error("the cloud is unavailable: {0}")]
    Unavailable(String),
    /// The cloud refuses this call for good. Do not repeat it.
    #[error("the cloud refuses the call: {0}")]
    Refused(String),
}

impl CloudError {
    /// The error of a call that had no effect, for this cause.
    pub(crate) fn caused_by(cause: Cause, text: String) -> Self {
        match cause {
            Cause::Throttled => Self::Throttled(text),
            Cause::Credentials => Self::Credentials(text),
            Cause::Unavailable => Self::Unavailable(text),
            Cause::Capacity | Cause::Quota | Cause::Configuration | Cause::Lost => {
                Self::Refused(text)
            }
        }
    }
}
