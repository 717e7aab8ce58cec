//! Why a pool cannot be created, changed or deleted.

use cloud::ProviderUnavailable;
use domain::id::{ConfigurationId, PoolId, ProviderId};
use domain::launch_config::BadLaunchConfigs;
use domain::pool::MAX_LAUNCH_CONFIGS;
use domain::provider_list::BadProviders;
use store::StoreError;

use crate::image_references::ReferenceError;

#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    #[error("Worker pool does not exist")]
    NoSuchPool,
    #[error("Worker pool already exists")]
    Exists,
    #[error(
        "Worker pool {pool} is made of the worker configuration {configuration}: change its rules instead, or take the \
         worker type out of it first"
    )]
    Compiled {
        pool: PoolId,
        configuration: ConfigurationId,
    },
    #[error("Invalid Provider")]
    UnknownProvider,
    #[error(
        "The provider {id} is out of service: {why}. Nothing was changed. The server tries to set \
         it up again every minute; `fleetwright provider list` shows its state"
    )]
    OutOfService { id: ProviderId, why: String },
    #[error("The provider {id} cannot check the pool now: {why}. Nothing was changed; try again")]
    CannotCheck { id: ProviderId, why: String },
    #[error(
        "config.providers: there is no provider {0}. `fleetwright provider list` shows what exists"
    )]
    UnknownListedProvider(ProviderId),
    #[error(transparent)]
    Providers(#[from] BadProviders),
    #[error(
        "config must be an object, such as {{\"minCapacity\": 0, \"maxCapacity\": 4, \"launchConfigs\": []}}"
    )]
    NotAnObject,
    #[error("A pool has at most {MAX_LAUNCH_CONFIGS} launch configs")]
    TooManyLaunchConfigs,
    /// The provider's schema refuses the config.
    #[error("{0}")]
    Invalid(String),
    #[error(transparent)]
    LaunchConfigs(#[from] BadLaunchConfigs),
    #[error(transparent)]
    Images(#[from] ReferenceError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<ProviderUnavailable> for PoolError {
    fn from(problem: ProviderUnavailable) -> Self {
        match problem {
            ProviderUnavailable::Unknown => Self::UnknownProvider,
            ProviderUnavailable::SetupFailed { id, why } => Self::OutOfService { id, why },
        }
    }
}
