//! Why a worker cannot be registered, created, changed or removed.

use store::StoreError;

#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Conflict(String),
    /// A machine registered before its provider answered the launch.
    #[error("The launch of this worker was not answered yet; try again")]
    LaunchPending,
    /// The provider could not do what it was asked, for now.
    #[error("The provider failed: {0}. Try again")]
    ProviderFailed(String),
    #[error("Provider backend may be down or misconfigured")]
    ProviderSetupFailed,
    #[error(transparent)]
    Store(#[from] StoreError),
}
