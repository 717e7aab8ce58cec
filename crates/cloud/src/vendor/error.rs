//! Errors of vendors' calls, and what each means for the next step.

use std::fmt;
use std::time::Duration;

use domain::launch::Cause;
use serde_json::Value;

use crate::{CloudError, ImageError, LaunchError};

/// Longest message of a vendor that is kept.
const MAX_MESSAGE_CHARS: usize = 1_000;

/// The causes of a vendor's error codes. `None`: the call may have had an effect. A code that is
/// not here is judged by the status of the response.
pub(crate) type CauseTable = &'static [(&'static str, Option<Cause>)];

/// A vendor and the form of its errors.
pub(crate) struct Vendor {
    /// For messages, like `Google`.
    pub(crate) name: &'static str,
    /// Reads code and message out of the body of a refusal.
    pub(crate) read_error: fn(&Value) -> Option<(String, String)>,
    pub(crate) causes: CauseTable,
}

impl Vendor {
    /// The cause that this code has by itself, without the status of a response.
    pub(crate) fn known_cause(&self, code: &str) -> Option<Cause> {
        let known = self.causes.iter().find(|(known, _)| *known == code);
        known.and_then(|(_, cause)| *cause)
    }

    /// Why a call with this error had no effect; `None`: it may have had one.
    pub(crate) fn cause_of(&self, status: u16, code: &str) -> Option<Cause> {
        if let Some((_, cause)) = self.causes.iter().find(|(known, _)| *known == code) {
            return *cause;
        }
        match status {
            429 => Some(Cause::Throttled),
            401 | 403 => Some(Cause::Credentials),
            // The vendor may have begun.
            408 | 500.. => None,
            // A proxy between us and the vendor has responded.
            _ if code.is_empty() => Some(Cause::Unavailable),
            _ => Some(Cause::Configuration),
        }
    }
}

impl fmt::Debug for Vendor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

/// A call of a vendor failed.
#[derive(Clone, Debug)]
pub(crate) struct VendorError {
    pub(crate) vendor: &'static Vendor,
    pub(crate) failure: Failure,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No token was got, so nothing was sent.
    NoCredentials(String),
    /// No token was got, because its service cannot be reached: nothing was sent.
    NoTokenService(String),
    /// The request was not sent, so it had no effect.
    NotSent(String),
    /// The request was sent, and its outcome is unknown.
    Lost(String),
    /// The vendor responded with an error.
    Answered(Answered),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    /// Empty: the response was not the vendor's own.
    pub(crate) code: String,
    pub(crate) message: String,
    /// The vendor asks to wait this long.
    pub(crate) retry_after: Option<Duration>,
}

impl VendorError {
    pub(crate) fn new(vendor: &'static Vendor, failure: Failure) -> Self {
        Self { vendor, failure }
    }

    pub(crate) fn answered(
        vendor: &'static Vendor,
        status: u16,
        code: &str,
        message: &str,
        retry_after: Option<Duration>,
    ) -> Self {
        let answered = Answered {
            status,
            code: code.to_owned(),
            message: message.chars().take(MAX_MESSAGE_CHARS).collect(),
            retry_after,
        };
        Self::new(vendor, Failure::Answered(answered))
    }

    /// The vendor's response, if there was one.
    pub(crate) fn answer(&self) -> Option<&Answered> {
        match &self.failure {
            Failure::Answered(answered) => Some(answered),
            Failure::NoCredentials(_)
            | Failure::NoTokenService(_)
            | Failure::NotSent(_)
            | Failure::Lost(_) => None,
        }
    }

    pub(crate) fn has_status(&self, status: u16) -> bool {
        self.answer().is_some_and(|answer| answer.status == status)
    }

    /// Why the call had no effect; `None`: it may have had one.
    pub(crate) fn cause(&self) -> Option<Cause> {
        match &self.failure {
            Failure::NoCredentials(_) => Some(Cause::Credentials),
            Failure::NoTokenService(_) | Failure::NotSent(_) => Some(Cause::Unavailable),
            Failure::Lost(_) => None,
            Failure::Answered(answered) => self.vendor.cause_of(answered.status, &answered.code),
        }
    }
}

impl fmt::Display for VendorError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.vendor.name;
        match &self.failure {
            Failure::NoCredentials(error) => write!(formatter, "no credentials of {name}: {error}"),
            Failure::NoTokenService(error) => {
                write!(formatter, "no token for calls of {name}: {error}")
            }
            Failure::NotSent(error) => write!(formatter, "{name} cannot be reached: {error}"),
            Failure::Lost(error) => write!(formatter, "no usable response from {name}: {error}"),
            Failure::Answered(Answered {
                status,
                code,
                message,
                ..
            }) => {
                let code: &dyn fmt::Display = if code.is_empty() { status } else { code };
                write!(formatter, "Error calling {name} API: {code}: {message}")
            }
        }
    }
}

impl std::error::Error for VendorError {}

impl From<VendorError> for LaunchError {
    fn from(error: VendorError) -> Self {
        let text = error.to_string();
        match error.cause() {
            Some(cause) => Self::Refused { cause, error: text },
            None => Self::Unknown(text),
        }
    }
}

impl From<VendorError> for ImageError {
    fn from(error: VendorError) -> Self {
        let cause = error.cause().unwrap_or(Cause::Lost);
        Self::new(cause, error.to_string())
    }
}

impl From<VendorError> for CloudError {
    fn from(error: VendorError) -> Self {
        let cause = error.cause().unwrap_or(Cause::Unavailable);
        Self::caused_by(cause, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vendor::recorder::TEST_VENDOR;

    fn launch(status: u16, code: &str) -> LaunchError {
        VendorError::answered(&TEST_VENDOR, status, code, "why", None).into()
    }

    #[test]
    fn the_code_decides_before_the_status() {
        use Cause::{Capacity, Configuration, Credentials, Throttled, Unavailable};
        for (status, code, expected) in [
            (500, "NO_STOCK", Some(Capacity)),
            (400, "MAYBE", None),
            (429, "Other", Some(Throttled)),
            (401, "Other", Some(Credentials)),
            (403, "Other", Some(Credentials)),
            (400, "Other", Some(Configuration)),
            (404, "Other", Some(Configuration)),
            (407, "", Some(Unavailable)),
            (408, "Other", None),
            (500, "Other", None),
            (503, "", None),
        ] {
            match (launch(status, code), expected) {
                (LaunchError::Refused { cause, .. }, Some(expected)) => {
                    assert_eq!(cause, expected, "{status} {code}");
                }
                (LaunchError::Unknown(_), None) => {}
                (other, _) => panic!("{status} {code}: {other:?}"),
            }
        }
    }

    #[test]
    fn only_an_answer_that_was_lost_leaves_the_outcome_open() {
        let of = |failure| VendorError::new(&TEST_VENDOR, failure);
        let text = || "why".to_owned();
        for (failure, cause, message) in [
            (
                Failure::NoCredentials(text()),
                Some(Cause::Credentials),
                "no credentials of Test: why",
            ),
            (
                Failure::NoTokenService(text()),
                Some(Cause::Unavailable),
                "no token for calls of Test: why",
            ),
            (
                Failure::NotSent(text()),
                Some(Cause::Unavailable),
                "Test cannot be reached: why",
            ),
            (
                Failure::Lost(text()),
                None,
                "no usable response from Test: why",
            ),
        ] {
            let error = of(failure);
            assert_eq!(
                (error.cause(), error.to_string()),
                (cause, message.to_owned())
            );
        }
        let lost = CloudError::from(of(Failure::Lost(text())));
        assert!(matches!(lost, CloudError::Unavailable(_)));
    }

    #[test]
    fn a_long_message_is_cut() {
        let error = VendorError::answered(&TEST_VENDOR, 403, "C", &"é".repeat(5_000), None);
        assert!(error.to_string().chars().count() < 1_100);
    }
}
