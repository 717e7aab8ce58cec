//! Why a worker is not registered, made, changed or removed.

use cloud::ProviderUnavailable;
use store::StoreError;

#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error("{0}")]
    NotThere(String),
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Conflict(String),
    /// A machine registers before its provider has answered the launch that makes it.
    #[error("The launch of this worker was not answered yet; try again")]
    LaunchPending,
    #[error("Provider backend may be down or misconfigured")]
    ProviderSetupFailed,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl WorkerError {
    /// A provider that somebody named cannot be had; `unknown`: because there is none of this name.
    pub(super) fn of_provider(
        problem: ProviderUnavailable,
        unknown: impl FnOnce() -> String,
    ) -> Self {
        match problem {
            ProviderUnavailable::Unknown => Self::NotThere(unknown()),
            ProviderUnavailable::SetupFailed => Self::ProviderSetupFailed,
        }
    }
}
