//! Errors of Resource Manager, and what each means for the next step.

use domain::launch::Cause;
use serde_json::Value;

use crate::vendor::{CauseTable, Vendor, VendorError};

/// Longest message that is kept.
const MAX_MESSAGE_CHARS: usize = 1_000;
/// Codes of one error that are looked at, at most: an error of a deployment has others inside.
const MAX_CODES: usize = 32;
/// Errors inside of others are read down to this depth.
const MAX_DEPTH: usize = 8;

/// The causes of the codes; `None`: the call may have made something. Others are judged by status.
pub(super) const CAUSES: CauseTable = &[
    ("AllocationFailed", Some(Cause::Capacity)),
    ("OverconstrainedAllocationRequest", Some(Cause::Capacity)),
    (
        "OverconstrainedZonalAllocationRequest",
        Some(Cause::Capacity),
    ),
    ("SkuNotAvailable", Some(Cause::Capacity)),
    (PRICE_TOO_LOW, Some(Cause::Capacity)),
    ("SubnetIsFull", Some(Cause::Capacity)),
    ("ZonalAllocationFailed", Some(Cause::Capacity)),
    (QUOTA_EXCEEDED, Some(Cause::Quota)),
    ("ResourceQuotaExceeded", Some(Cause::Quota)),
    ("ResourceRequestsThrottled", Some(Cause::Throttled)),
    ("SubscriptionRequestsThrottled", Some(Cause::Throttled)),
    ("TooManyRequests", Some(Cause::Throttled)),
    ("TooManyRequestsReceived", Some(Cause::Throttled)),
    ("AuthenticationFailed", Some(Cause::Credentials)),
    ("AuthorizationFailed", Some(Cause::Credentials)),
    ("ExpiredAuthenticationToken", Some(Cause::Credentials)),
    ("InvalidAuthenticationToken", Some(Cause::Credentials)),
    ("InvalidAuthenticationTokenTenant", Some(Cause::Credentials)),
    ("InvalidSubscriptionId", Some(Cause::Credentials)),
    ("LinkedAuthorizationFailed", Some(Cause::Credentials)),
    ("MissingSubscriptionRegistration", Some(Cause::Credentials)),
    ("ReadOnlyDisabledSubscription", Some(Cause::Credentials)),
    ("SubscriptionNotFound", Some(Cause::Credentials)),
    ("RequestDisallowedByPolicy", Some(Cause::Configuration)),
    // Nothing was made, and the same call may work later.
    ("AnotherOperationInProgress", Some(Cause::Unavailable)),
    ("InUseSubnetCannotBeDeleted", Some(Cause::Unavailable)),
    ("ReferencedResourceNotProvisioned", Some(Cause::Unavailable)),
    ("RetryableError", Some(Cause::Unavailable)),
    (
        "RetryableErrorDueToAnotherOperation",
        Some(Cause::Unavailable),
    ),
    ("ServerBusy", Some(Cause::Unavailable)),
    ("ServiceUnavailable", Some(Cause::Unavailable)),
];

const QUOTA_EXCEEDED: &str = "QuotaExceeded";
const PRICE_TOO_LOW: &str = "SpotPriceTooLow";
/// The code of many refusals, which only their messages tell apart.
const NOT_ALLOWED: &str = "OperationNotAllowed";

pub(super) static AZURE: Vendor = Vendor {
    name: "Azure",
    read_error: |body| {
        let error = AzureError::read(body);
        let code = error.deciding_code()?;
        Some((code.clone(), error.text(&code)))
    },
    causes: CAUSES,
};

/// The failure of an operation that Azure describes so, as of a call that had no effect.
pub(super) fn operation_failure(error: &Value) -> VendorError {
    let error = AzureError::read(error);
    let code = error.deciding_code();
    let code = code.unwrap_or_else(|| "OperationFailed".to_owned());
    VendorError::answered(&AZURE, 409, &code, &error.text(&code), None)
}

/// The error in an answer of Resource Manager.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AzureError {
    /// The code of the error, and those of the errors inside.
    pub(super) codes: Vec<String>,
    pub(super) message: String,
}

impl AzureError {
    /// The error in the body of an answer, or in the description of an operation.
    pub(super) fn read(body: &Value) -> Self {
        let mut found = Self::default();
        let error = if body["error"].is_object() {
            &body["error"]
        } else {
            body
        };
        found.collect(error, 0);
        found.message = found.message.chars().take(MAX_MESSAGE_CHARS).collect();
        found
    }

    fn collect(&mut self, error: &Value, depth: usize) {
        if depth > MAX_DEPTH || self.codes.len() >= MAX_CODES {
            return;
        }
        if let Some(code) = error["code"].as_str() {
            self.codes.push(code.to_owned());
        }
        if let Some(text) = error["message"].as_str() {
            let inner = serde_json::from_str::<Value>(text).ok();
            match inner.filter(|inner| inner["error"].is_object()) {
                // The message of a deployment's error is often the answer of another service.
                Some(inner) => self.collect(&inner["error"], depth + 1),
                None => self.add_message(text),
            }
        }
        for inner in error["details"].as_array().into_iter().flatten() {
            self.collect(inner, depth + 1);
        }
        if error["innererror"].is_object() {
            self.collect(&error["innererror"], depth + 1);
        }
    }

    fn add_message(&mut self, text: &str) {
        if !self.message.is_empty() {
            self.message.push_str("; ");
        }
        self.message.push_str(text);
    }

    /// The code that says most: the first that has a cause, and else the outer one. A deployment
    /// that lacks capacity is an `InvalidTemplateDeployment`, with the reason inside.
    pub(super) fn deciding_code(&self) -> Option<String> {
        let says = |part: &str| self.message.to_ascii_lowercase().contains(part);
        if self.codes.iter().any(|code| code.ends_with("LimitReached")) {
            return Some(QUOTA_EXCEEDED.to_owned());
        }
        if self.codes.iter().any(|code| code == NOT_ALLOWED) {
            if says("quota") {
                return Some(QUOTA_EXCEEDED.to_owned());
            }
            if says("max price") {
                return Some(PRICE_TOO_LOW.to_owned());
            }
        }
        let has_cause = |code: &&String| CAUSES.iter().any(|(known, _)| known == code);
        let deciding = self.codes.iter().find(has_cause);
        deciding.or_else(|| self.codes.first()).cloned()
    }

    /// The message, after the codes beside this one.
    pub(super) fn text(&self, code: &str) -> String {
        let others: Vec<&str> = self.codes.iter().map(String::as_str).collect();
        if others == [code] {
            return self.message.clone();
        }
        format!("{}: {}", others.join(", "), self.message)
    }
}

#[cfg(test)]
mod tests {
    use ::testing::sizes_around;
    use serde_json::json;

    use super::*;

    fn cause(status: u16, body: &Value) -> Option<Cause> {
        let (code, _) = (AZURE.read_error)(body).unwrap_or_default();
        AZURE.cause_of(status, &code)
    }

    fn with_code(status: u16, code: &str) -> Option<Cause> {
        cause(
            status,
            &json!({"error": {"code": code, "message": "so it is"}}),
        )
    }

    #[test]
    fn each_error_code_has_its_cause() {
        use Cause::{Capacity, Configuration, Credentials, Quota, Throttled, Unavailable};
        for (status, code, expected) in [
            (409, "SkuNotAvailable", Some(Capacity)),
            (200, "AllocationFailed", Some(Capacity)),
            (200, "ZonalAllocationFailed", Some(Capacity)),
            (200, "OverconstrainedAllocationRequest", Some(Capacity)),
            (400, "SubnetIsFull", Some(Capacity)),
            (409, "QuotaExceeded", Some(Quota)),
            (400, "PublicIPCountLimitReached", Some(Quota)),
            (409, "ResourceQuotaExceeded", Some(Quota)),
            (429, "Whatever", Some(Throttled)),
            (503, "TooManyRequests", Some(Throttled)),
            (409, "OperationNotAllowed", Some(Configuration)),
            (401, "InvalidAuthenticationToken", Some(Credentials)),
            (401, "Whatever", Some(Credentials)),
            (403, "AuthorizationFailed", Some(Credentials)),
            (403, "Whatever", Some(Credentials)),
            (404, "SubscriptionNotFound", Some(Credentials)),
            (403, "RequestDisallowedByPolicy", Some(Configuration)),
            (404, "ResourceGroupNotFound", Some(Configuration)),
            (400, "InvalidTemplate", Some(Configuration)),
            (400, "InvalidParameter", Some(Configuration)),
            (409, "PropertyChangeNotAllowed", Some(Configuration)),
            (503, "ServiceUnavailable", Some(Unavailable)),
            (409, "AnotherOperationInProgress", Some(Unavailable)),
            (500, "InternalServerError", None),
            (504, "GatewayTimeout", None),
            (503, "SomethingNew", None),
        ] {
            assert_eq!(with_code(status, code), expected, "{status} {code}");
        }
        assert_eq!(cause(407, &json!("<html>")), Some(Unavailable));
        assert_eq!(cause(502, &json!("<html>")), None);
    }

    #[test]
    fn some_codes_need_their_message() {
        let refused = |message: &str| {
            let error = json!({"error": {"code": "OperationNotAllowed", "message": message}});
            cause(409, &error)
        };
        let quota =
            "Operation could not be completed as it results in exceeding approved Cores Quota";
        assert_eq!(refused(quota), Some(Cause::Quota));
        let price = "The Max Price is lower than the current price";
        assert_eq!(refused(price), Some(Cause::Capacity));
        assert_eq!(refused("The VM is deallocated"), Some(Cause::Configuration));
    }

    #[test]
    fn errors_inside_of_an_error_count() {
        let inner = json!({"error": {"code": "SkuNotAvailable", "message": "not in westus"}});
        let error = json!({"error": {
            "code": "InvalidTemplateDeployment", "message": "see inside",
            "details": [{"code": "Conflict", "message": inner.to_string()}],
        }});
        let read = AzureError::read(&error);
        let code = read.deciding_code().unwrap();
        assert_eq!(code, "SkuNotAvailable");
        assert_eq!(
            read.text(&code),
            "InvalidTemplateDeployment, Conflict, SkuNotAvailable: see inside; not in westus"
        );
        assert_eq!(cause(400, &error), Some(Cause::Capacity));
        let failed = operation_failure(&error);
        assert_eq!(failed.cause(), Some(Cause::Capacity));
        assert_eq!(
            operation_failure(&json!({})).cause(),
            Some(Cause::Configuration)
        );
    }

    #[test]
    fn a_long_message_and_a_deep_error_are_cut() {
        let long = json!({"error": {"code": "X", "message": "é".repeat(5_000)}});
        assert!(AzureError::read(&long).text("X").chars().count() < 1_100);
        for depth in sizes_around("cloud::azure::error::MAX_DEPTH", MAX_DEPTH) {
            let inner = (0..depth).fold(
                json!({"code": "X"}),
                |inner, _| json!({"code": "X", "details": [inner]}),
            );
            let read = AzureError::read(&inner).codes.len();
            assert_eq!(read, depth.min(MAX_DEPTH) + 1, "{depth}");
        }
        for count in sizes_around("cloud::azure::error::MAX_CODES", MAX_CODES) {
            let many: Vec<_> = (0..count).map(|_| json!({"code": "Y"})).collect();
            let wide = AzureError::read(&json!({"details": many}));
            assert_eq!(wide.codes.len(), count.min(MAX_CODES), "{count}");
        }
    }
}
