//! What can go wrong with a call to EC2, and what to do next about it.

use domain::launch::Cause;

use crate::{CloudError, LaunchError};

/// No message of EC2's is kept longer than this: an encoded authorisation failure fills pages.
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

/// Our credentials are not, or no longer, good.
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

/// Our credentials are good, and we may not do this with them.
const FORBIDDEN: [&str; 6] = [
    "AccessDenied",
    "AccessDeniedException",
    "Blocked",
    "NotAuthorized",
    "OptInRequired",
    "UnauthorizedOperation",
];

/// A call that did not give what was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Ec2Error {
    /// There is nothing to sign with.
    #[error("no AWS credentials: {0}")]
    NoCredentials(String),
    /// It never left: nothing has happened.
    #[error("EC2 cannot be reached: {0}")]
    NotSent(String),
    /// It was sent, and what became of it is not known.
    #[error("no usable answer from EC2: {0}")]
    Lost(String),
    /// EC2 answered with an error.
    #[error("Error calling AWS API: {code}: {message}")]
    Answered {
        status: u16,
        code: String,
        message: String,
    },
}

/// What an error code calls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Refused(Cause),
    /// Something may have been made.
    Doubtful,
}

impl Ec2Error {
    pub(crate) fn answered(status: u16, code: &str, message: &str) -> Self {
        Self::Answered {
            status,
            code: code.to_owned(),
            message: message.chars().take(MAX_MESSAGE_CHARS).collect(),
        }
    }

    /// EC2 does not know the machine, or what was asked about cannot be the id of one.
    pub(crate) fn is_unknown_instance(&self) -> bool {
        match self {
            Self::Answered { code, .. } => {
                code == "InvalidInstanceID.NotFound" || code == "InvalidInstanceID.Malformed"
            }
            Self::NoCredentials(_) | Self::NotSent(_) | Self::Lost(_) => false,
        }
    }

    /// Might fresh credentials of the same holder be accepted? They do not help if he may not do it.
    pub(crate) fn asks_for_fresh_credentials(&self) -> bool {
        match self {
            Self::Answered { code, message, .. } => {
                STALE_CREDENTIALS.contains(&code.as_str()) && !is_about_a_resource(code, message)
            }
            Self::NoCredentials(_) | Self::NotSent(_) | Self::Lost(_) => false,
        }
    }
}

impl From<Ec2Error> for LaunchError {
    fn from(error: Ec2Error) -> Self {
        let problem = error.to_string();
        let verdict = match &error {
            Ec2Error::NoCredentials(_) => Verdict::Refused(Cause::Credentials),
            Ec2Error::NotSent(_) => Verdict::Refused(Cause::Unavailable),
            Ec2Error::Lost(_) => Verdict::Doubtful,
            Ec2Error::Answered {
                status,
                code,
                message,
            } => verdict(*status, code, message),
        };
        match verdict {
            Verdict::Refused(cause) => Self::Refused { cause, problem },
            Verdict::Doubtful => Self::Unknown(problem),
        }
    }
}

impl From<Ec2Error> for CloudError {
    fn from(error: Ec2Error) -> Self {
        let problem = error.to_string();
        match &error {
            Ec2Error::NoCredentials(_) => Self::Credentials(problem),
            Ec2Error::NotSent(_) | Ec2Error::Lost(_) => Self::Unavailable(problem),
            Ec2Error::Answered {
                status,
                code,
                message,
            } => match verdict(*status, code, message) {
                Verdict::Refused(Cause::Throttled) => Self::Throttled(problem),
                Verdict::Refused(Cause::Credentials) => Self::Credentials(problem),
                Verdict::Refused(Cause::Unavailable) | Verdict::Doubtful => {
                    Self::Unavailable(problem)
                }
                Verdict::Refused(
                    Cause::Capacity | Cause::Quota | Cause::Configuration | Cause::Lost,
                ) => Self::Refused(problem),
            },
        }
    }
}

/// EC2 says `AuthFailure` of bad credentials, and also of a machine image, a snapshot or the like that does not exist or
/// belongs to somebody else ("Not authorized for images: [ami-1]"). Other credentials do not help there.
fn is_about_a_resource(code: &str, message: &str) -> bool {
    code == "AuthFailure" && message.starts_with("Not authorized for ")
}

/// The code decides, since EC2 answers some plain refusals with status 500; the status only where
/// the code says nothing.
fn verdict(status: u16, code: &str, message: &str) -> Verdict {
    let cause = match code {
        _ if is_about_a_resource(code, message) => Cause::Configuration,
        // The token was used before: machines may be there under it, and the scan will find them.
        "IdempotentParameterMismatch" | "IdempotentInstanceTerminated" => return Verdict::Doubtful,
        _ if THROTTLING.contains(&code) || status == 429 => Cause::Throttled,
        _ if STALE_CREDENTIALS.contains(&code) || FORBIDDEN.contains(&code) => Cause::Credentials,
        "ReservationCapacityExceeded" | "SpotMaxPriceTooLow" => Cause::Capacity,
        _ if code.starts_with("Insufficient") => Cause::Capacity,
        "MaxSpotInstanceCountExceeded" | "PendingVerification" => Cause::Quota,
        _ if code.ends_with("LimitExceeded") => Cause::Quota,
        "Unavailable" | "ServiceUnavailable" => Cause::Unavailable,
        _ if status >= 500 => return Verdict::Doubtful,
        // Somebody between us and EC2 has answered.
        "" => Cause::Unavailable,
        _ => Cause::Configuration,
    };
    Verdict::Refused(cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(status: u16, code: &str) -> LaunchError {
        Ec2Error::answered(status, code, "so it is").into()
    }

    #[test]
    fn each_code_becomes_what_to_do_next() {
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
            let LaunchError::Refused { cause, problem } = launch(status, code) else {
                panic!("{code} must be a refusal");
            };
            assert_eq!(cause, expected, "{code}");
            assert_eq!(problem, format!("Error calling AWS API: {code}: so it is"));
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
    fn what_may_have_made_a_machine_is_unknown() {
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
    fn what_never_left_made_nothing() {
        let refused = |error: Ec2Error| match LaunchError::from(error) {
            LaunchError::Refused { cause, .. } => cause,
            LaunchError::Unknown(problem) => panic!("{problem}"),
        };
        let text = || "why".to_owned();
        assert_eq!(refused(Ec2Error::NotSent(text())), Cause::Unavailable);
        assert_eq!(refused(Ec2Error::NoCredentials(text())), Cause::Credentials);
    }

    #[test]
    fn other_calls_learn_whether_to_wait_to_mend_or_to_give_up() {
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
