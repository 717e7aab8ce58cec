//! Errors of Google's APIs, and what each means for the next step.

use domain::launch::Cause;
use serde_json::Value;

use crate::vendor::{CauseTable, Vendor};

pub(super) static GOOGLE: Vendor = Vendor {
    name: "Google",
    read_error,
    causes: CAUSES,
};

/// Reasons of refused calls, and codes of failed operations.
const CAUSES: CauseTable = &[
    ("RATE_LIMIT_EXCEEDED", Some(Cause::Throttled)),
    ("RESOURCE_OPERATION_RATE_EXCEEDED", Some(Cause::Throttled)),
    ("rateLimitExceeded", Some(Cause::Throttled)),
    ("userRateLimitExceeded", Some(Cause::Throttled)),
    ("LIMIT_EXCEEDED", Some(Cause::Quota)),
    ("QUOTA_EXCEEDED", Some(Cause::Quota)),
    ("dailyLimitExceeded", Some(Cause::Quota)),
    ("limitExceeded", Some(Cause::Quota)),
    ("quotaExceeded", Some(Cause::Quota)),
    ("RESOURCE_POOL_EXHAUSTED", Some(Cause::Capacity)),
    (
        "RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
        Some(Cause::Capacity),
    ),
    ("STOCKOUT", Some(Cause::Capacity)),
    ("ZONE_RESOURCE_POOL_EXHAUSTED", Some(Cause::Capacity)),
    (
        "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
        Some(Cause::Capacity),
    ),
    ("resourcePoolExhausted", Some(Cause::Capacity)),
    ("PERMISSIONS_ERROR", Some(Cause::Credentials)),
    ("accessNotConfigured", Some(Cause::Credentials)),
    ("authError", Some(Cause::Credentials)),
    ("forbidden", Some(Cause::Credentials)),
    ("CONDITION_NOT_MET", Some(Cause::Configuration)),
    ("INVALID_USAGE", Some(Cause::Configuration)),
    ("RESOURCE_NOT_FOUND", Some(Cause::Configuration)),
    ("UNSUPPORTED_OPERATION", Some(Cause::Configuration)),
    ("badRequest", Some(Cause::Configuration)),
    ("invalid", Some(Cause::Configuration)),
    ("notFound", Some(Cause::Configuration)),
    ("required", Some(Cause::Configuration)),
    ("resourceNotReady", Some(Cause::Unavailable)),
    // A machine of this name exists: this call or an earlier one may have made it.
    ("RESOURCE_ALREADY_EXISTS", None),
    ("alreadyExists", None),
    ("INTERNAL_ERROR", None),
    ("backendError", None),
    ("internalError", None),
];

/// The reason is more exact than the status: status 403 means a quota, a rate or a permission.
fn read_error(body: &Value) -> Option<(String, String)> {
    let error = body.get("error")?;
    let message = error.get("message")?.as_str()?.to_owned();
    let reasons = [
        error.pointer("/errors/0/reason"),
        error.pointer("/details/0/reason"),
        error.get("status"),
    ];
    let reason = reasons.into_iter().flatten().find_map(Value::as_str);
    Some((reason.unwrap_or("error").to_owned(), message))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::vendor::VendorError;
    use crate::{CloudError, LaunchError};

    #[test]
    fn each_reason_has_its_cause() {
        use Cause::{Capacity, Configuration, Credentials, Quota, Throttled, Unavailable};
        for (status, reason, expected) in [
            (403, "rateLimitExceeded", Some(Throttled)),
            (403, "userRateLimitExceeded", Some(Throttled)),
            (429, "RATE_LIMIT_EXCEEDED", Some(Throttled)),
            (429, "somethingNew", Some(Throttled)),
            (403, "quotaExceeded", Some(Quota)),
            (200, "QUOTA_EXCEEDED", Some(Quota)),
            (200, "ZONE_RESOURCE_POOL_EXHAUSTED", Some(Capacity)),
            (
                200,
                "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
                Some(Capacity),
            ),
            (200, "STOCKOUT", Some(Capacity)),
            (200, "RESOURCE_NOT_FOUND", Some(Configuration)),
            (404, "notFound", Some(Configuration)),
            (400, "invalid", Some(Configuration)),
            (400, "required", Some(Configuration)),
            (412, "somethingNew", Some(Configuration)),
            (403, "forbidden", Some(Credentials)),
            (403, "accessNotConfigured", Some(Credentials)),
            (401, "UNAUTHENTICATED", Some(Credentials)),
            (503, "resourceNotReady", Some(Unavailable)),
            (409, "alreadyExists", None),
            (503, "backendError", None),
            (500, "internalError", None),
            (502, "somethingNew", None),
        ] {
            let cause = GOOGLE.cause_of(status, reason);
            assert_eq!(cause, expected, "{status} {reason}");
            let error = VendorError::answered(&GOOGLE, status, reason, "why", None);
            match LaunchError::from(error.clone()) {
                LaunchError::Refused { cause, error } => {
                    assert_eq!(Some(cause), expected, "{error}");
                    assert_eq!(error, format!("Error calling Google API: {reason}: why"));
                }
                LaunchError::Unknown(_) => assert_eq!(expected, None, "{status} {reason}"),
            }
            let is_throttled = matches!(CloudError::from(error), CloudError::Throttled(_));
            assert_eq!(is_throttled, expected == Some(Throttled));
        }
    }

    #[test]
    fn the_most_exact_reason_is_read() {
        for (error, reason) in [
            (
                json!({"errors": [{"reason": "quotaExceeded"}], "status": "PERMISSION_DENIED"}),
                "quotaExceeded",
            ),
            (
                json!({"details": [{"reason": "SERVICE_DISABLED"}], "status": "PERMISSION_DENIED"}),
                "SERVICE_DISABLED",
            ),
            (json!({"status": "UNAUTHENTICATED"}), "UNAUTHENTICATED"),
            (json!({}), "error"),
        ] {
            let mut body = json!({"error": error});
            body["error"]["message"] = json!("why");
            let read = read_error(&body);
            assert_eq!(read, Some((reason.to_owned(), "why".to_owned())));
        }
        assert_eq!(read_error(&json!({"error": "invalid_grant"})), None);
        assert_eq!(read_error(&json!([])), None);
    }
}
