//! Errors of EC2 calls, and what each means for the next step.

use domain::launch::Cause;

use crate::signing::credentials::NoCredentials;
use crate::{CloudError, LaunchError};

/// Longest EC2 message that is kept: an encoded authorisation failure fills pages.
const MAX_MESSAGE_CHARS: usize = 1_000;

const THROTTLING: [&str; 9] = [
    "EC2ThrottledException",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "SlowDown",
    "ThrottledException",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
];

/// EC2 does not accept our credentials, or no longer accepts them.
const STALE_CREDENTIALS: [&str; 12] = [
    "AuthFailure",
    "ExpiredToken",
    "ExpiredTokenException",
    "IncompleteSignature",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidSecurityToken",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "RequestExpired",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
];

/// EC2 accepts our credentials but does not allow this call.
const FORBIDDEN: [&str; 6] = [
    "AccessDenied",
    "AccessDeniedException",
    "Blocked",
    "NotAuthorized",
    "OptInRequired",
    "UnauthorizedOperation",
];

/// An EC2 call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Ec2Error {
    /// No credentials were found, so nothing was signed or sent.
    #[error(transparent)]
    NoCredentials(#[from] NoCredentials),
    /// The request was not sent, so it had no effect.
    #[error("EC2 cannot be reached: {0}")]
    NotSent(String),
    /// The request was sent, and its outcome is unknown.
    #[error("no usable response from EC2: {0}")]
    Lost(String),
    /// EC2 responded with an error.
    #[error("Error calling AWS API: {code}: {message}")]
    Answered {
        status: u16,
        code: String,
        message: String,
    },
}

impl Ec2Error {
    pub(crate) fn answered(status: u16, code: &str, message: &str) -> Self {
        Self::Answered {
            status,
            code: code.to_owned(),
            message: message.chars().take(MAX_MESSAGE_CHARS).collect(),
        }
    }

    /// EC2 does not know the instance, or the id is not an instance id.
    pub(crate) fn is_unknown_instance(&self) -> bool {
        match self {
            Self::Answered { code, .. } => {
                code == "InvalidInstanceID.NotFound" || code == "InvalidInstanceID.Malformed"
            }
            Self::NoCredentials(_) | Self::NotSent(_) | Self::Lost(_) => false,
        }
    }

    /// Whether EC2 responded with one of these errors.
    pub(crate) fn has_code(&self, codes: &[&str]) -> bool {
        match self {
            Self::Answered { code, .. } => codes.contains(&code.as_str()),
            Self::NoCredentials(_) | Self::NotSent(_) | Self::Lost(_) => false,
        }
    }

    /// Whether fresh credentials of the same account might be accepted. They do not help against
    /// missing permissions.
    pub(crate) fn asks_for_fresh_credentials(&self) -> bool {
        match self {
            Self::Answered { code, message, .. } => {
                STALE_CREDENTIALS.contains(&code.as_str()) && !is_about_a_resource(code, message)
            }
            Self::NoCredentials(_) | Self::NotSent(_) | Self::Lost(_) => false,
        }
    }

    /// Why the call had no effect; `None`: it may have made something.
    fn cause(&self) -> Option<Cause> {
        match self {
            Self::NoCredentials(_) => Some(Cause::Credentials),
            Self::NotSent(_) => Some(Cause::Unavailable),
            Self::Lost(_) => None,
            Self::Answered {
                status,
                code,
                message,
            } => cause_of(*status, code, message),
        }
    }
}

impl From<Ec2Error> for LaunchError {
    fn from(error: Ec2Error) -> Self {
        let text = error.to_string();
        match error.cause() {
            Some(cause) => Self::Refused { cause, error: text },
            None => Self::Unknown(text),
        }
    }
}

impl From<Ec2Error> for CloudError {
    fn from(error: Ec2Error) -> Self {
        let cause = error.cause().unwrap_or(Cause::Unavailable);
        Self::caused_by(cause, error.to_string())
    }
}

/// EC2 uses `AuthFailure` for bad credentials, and also for a machine image, a snapshot or another
/// resource that does not exist or belongs to another account ("Not authorized for images:
/// [ami-1]"). Other credentials do not help against the latter.
fn is_about_a_resource(code: &str, message: &str) -> bool {
    code == "AuthFailure" && message.starts_with("Not authorized for ")
}

/// The code decides, since EC2 sends some plain refusals with status 500. The status counts only
/// where the code does not decide. `None`: EC2 may have made something.
fn cause_of(status: u16, code: &str, message: &str) -> Option<Cause> {
    Some(match code {
        _ if is_about_a_resource(code, message) => Cause::Configuration,
        // The token was used before: it may have made machines, and the scan will find them.
        "IdempotentParameterMismatch" | "IdempotentInstanceTerminated" => return None,
        _ if THROTTLING.contains(&code) || status == 429 => Cause::Throttled,
        _ if STALE_CREDENTIALS.contains(&code) || FORBIDDEN.contains(&code) => Cause::Credentials,
        "ReservationCapacityExceeded" | "SpotMaxPriceTooLow" => Cause::Capacity,
        _ if code.starts_with("Insufficient") => Cause::Capacity,
        "MaxSpotInstanceCountExceeded" | "PendingVerification" => Cause::Quota,
        _ if code.ends_with("LimitExceeded") => Cause::Quota,
        "Unavailable" | "ServiceUnavailable" => Cause::Unavailable,
        _ if status >= 500 => return None,
        // A proxy between us and EC2 has responded.
        "" => Cause::Unavailable,
        _ => Cause::Configuration,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(status: u16, code: &str) -> LaunchError {
        Ec2Error::answered(status, code, "so it is").into()
    }

    #[test]
    fn each_error_code_has_its_cause() {
        use Cause::{Capacity, Configuration, Credentials, Quota, Throttled, Unavailable};
        for (status, code, expected) in [
            (500, "InsufficientInstanceCapacity", Capacity),
            (400, "InsufficientFreeAddressesInSubnet", Capacity),
            (400, "SpotMaxPriceTooLow", Capacity),
            (400, "ReservationCapacityExceeded", Capacity),
            (400, "InstanceLimitExceeded", Quota),
            (400, "VcpuLimitExceeded", Quota),
            (400, "MaxSpotInstanceCountExceeded", Quota),
            (400, "PendingVerification", Quota),
            (503, "RequestLimitExceeded", Throttled),
            (400, "Throttling", Throttled),
            (429, "Whatever", Throttled),
            (401, "AuthFailure", Credentials),
            (400, "InvalidClientTokenId", Credentials),
            (403, "UnauthorizedOperation", Credentials),
            (400, "ExpiredToken", Credentials),
            (400, "MissingAuthenticationToken", Credentials),
            (400, "InvalidAMIID.NotFound", Configuration),
            (400, "InvalidParameterValue", Configuration),
            (400, "MissingParameter", Configuration),
            (400, "Unsupported", Configuration),
            (400, "DryRunOperation", Configuration),
            (400, "SomethingNew", Configuration),
            (503, "Unavailable", Unavailable),
            (503, "ServiceUnavailable", Unavailable),
            (407, "", Unavailable),
        ] {
            let LaunchError::Refused { cause, error } = launch(status, code) else {
                panic!("{code} must be a refusal");
            };
            assert_eq!(cause, expected, "{code}");
            assert_eq!(error, format!("Error calling AWS API: {code}: so it is"));
        }
    }

    #[test]
    fn an_image_that_we_may_not_use_is_an_error_of_the_launch_config() {
        let message = "Not authorized for images: [ami-0123]";
        let error = Ec2Error::answered(403, "AuthFailure", message);
        assert!(!error.asks_for_fresh_credentials());
        let LaunchError::Refused { cause, .. } = error.clone().into() else {
            panic!("must be a refusal");
        };
        assert_eq!(cause, Cause::Configuration);
        assert!(matches!(error.into(), CloudError::Refused(_)));

        let error = Ec2Error::answered(401, "AuthFailure", "AWS was not able to validate them");
        assert!(error.asks_for_fresh_credentials());
    }

    #[test]
    fn the_outcome_of_a_call_that_may_have_made_a_machine_is_unknown() {
        for (status, code) in [
            (500, "InternalError"),
            (502, ""),
            (504, "SomethingNew"),
            (400, "IdempotentParameterMismatch"),
            (400, "IdempotentInstanceTerminated"),
        ] {
            assert!(
                matches!(launch(status, code), LaunchError::Unknown(_)),
                "{code}"
            );
        }
        let lost = Ec2Error::Lost("cut".to_owned());
        assert!(matches!(lost.into(), LaunchError::Unknown(_)));
    }

    #[test]
    fn a_request_that_was_not_sent_made_nothing() {
        let refused = |error: Ec2Error| match LaunchError::from(error) {
            LaunchError::Refused { cause, .. } => cause,
            LaunchError::Unknown(error) => panic!("{error}"),
        };
        let text = || "why".to_owned();
        assert_eq!(refused(Ec2Error::NotSent(text())), Cause::Unavailable);
        assert_eq!(refused(NoCredentials(text()).into()), Cause::Credentials);
    }

    #[test]
    fn errors_of_other_calls_are_sorted_by_what_to_do_next() {
        let cloud = |status, code| CloudError::from(Ec2Error::answered(status, code, "m"));
        assert!(matches!(
            cloud(503, "RequestLimitExceeded"),
            CloudError::Throttled(_)
        ));
        assert!(matches!(
            cloud(401, "AuthFailure"),
            CloudError::Credentials(_)
        ));
        assert!(matches!(
            cloud(500, "InternalError"),
            CloudError::Unavailable(_)
        ));
        assert!(matches!(
            cloud(400, "InvalidFilter"),
            CloudError::Refused(_)
        ));
        let lost = CloudError::from(Ec2Error::Lost("cut".to_owned()));
        assert!(matches!(lost, CloudError::Unavailable(_)));
    }

    #[test]
    fn a_long_message_is_cut() {
        let error = Ec2Error::answered(403, "UnauthorizedOperation", &"é".repeat(5_000));
        assert!(error.to_string().chars().count() < 1_100);
    }
}
