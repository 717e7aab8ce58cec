//! Errors of the store, as clients get them.

use std::sync::Arc;

use store::StoreError;

use super::error::{ApiError, Code};

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        Self::from(Arc::new(error))
    }
}

/// Several requests may have failed with one transaction.
impl From<Arc<StoreError>> for ApiError {
    fn from(error: Arc<StoreError>) -> Self {
        // Nothing is broken, and nothing was changed.
        if let StoreError::TooManyConflicts { name, attempts } = &*error {
            let message = format!(
                "Nothing was changed: other requests changed the same things first, {attempts} times (transaction \
                 `{name}`). Send the request again in a few seconds."
            );
            return Self::new(Code::ServerBusy, message);
        }
        let unavailable = unavailable(&error);
        let cause: Box<dyn std::error::Error + Send + Sync> = error.into();
        match unavailable {
            Some(message) => Self {
                cause: Some(cause),
                ..Self::new(Code::DatabaseUnavailable, message)
            },
            None => Self::caused_by(cause),
        }
    }
}

/// For the client, if the database cannot be used now.
fn unavailable(error: &StoreError) -> Option<&'static str> {
    match error {
        StoreError::Unavailable { .. } | StoreError::Closed => Some(
            "The database of this server does not answer. Send the request again in a few \
             seconds. If this lasts, see the server's log.",
        ),
        StoreError::Full { .. } => Some(
            "The database of this server has no space left, so nothing was changed. Send the \
             request again when its operator has made room; the server's log has more.",
        ),
        StoreError::OutcomeUnknown { .. } => Some(
            "The connection to the database broke during the change, which may have been made. \
             Look whether it was before you send the request again.",
        ),
        StoreError::TooManyConflicts { .. }
        | StoreError::LostRace
        | StoreError::Corrupt { .. }
        | StoreError::BadText { .. }
        | StoreError::TooManyRows { .. }
        | StoreError::Query { .. }
        | StoreError::IgnoredFailure { .. }
        | StoreError::NotMigrated { .. }
        | StoreError::Migration { .. }
        | StoreError::OtherMigration { .. }
        | StoreError::BadUrl(_)
        | StoreError::Tls(_)
        | StoreError::Panicked { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_503_and_what_does_not_is_500() {
        let source = || "a reason".into();
        let address = "postgres://h/d".to_owned();
        let (name, statement) = ("change", "pool_get");
        for (error, expected) in [
            (
                StoreError::Unavailable {
                    address,
                    source: source(),
                },
                "does not answer",
            ),
            (StoreError::Closed, "does not answer"),
            (
                StoreError::Full {
                    statement,
                    source: source(),
                },
                "no space left",
            ),
            (
                StoreError::OutcomeUnknown {
                    name,
                    source: source(),
                },
                "may have been made",
            ),
        ] {
            let error = ApiError::from(error);
            assert_eq!(error.code, Code::DatabaseUnavailable);
            assert_eq!(error.code.status().as_u16(), 503);
            assert!(error.code.retry_after_seconds().is_some());
            assert!(error.message.contains(expected), "{}", error.message);
            assert!(error.cause.is_some());
        }
        let broken = StoreError::Query {
            statement,
            source: source(),
        };
        let error = ApiError::from(Arc::new(broken));
        assert_eq!(error.code, Code::InternalServerError);
        let attempts = 20;
        let error = ApiError::from(StoreError::TooManyConflicts { name, attempts });
        assert_eq!(
            (error.code, error.cause.is_none()),
            (Code::ServerBusy, true)
        );
    }
}
