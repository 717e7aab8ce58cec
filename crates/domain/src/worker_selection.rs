//! Selections of workers: those of a pool, a launch config, a worker configuration or a provider.

use crate::id::{ConfigurationId, LaunchConfigId, PoolId, ProviderId, WorkerGroup};

/// Workers that people list, count or end together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerSelection {
    Pool(PoolId),
    LaunchConfig(PoolId, LaunchConfigId),
    /// In the pools of all its worker types.
    Configuration(ConfigurationId),
    /// In all pools, or only in one region of the provider.
    Provider(ProviderId, Option<WorkerGroup>),
}

impl WorkerSelection {
    /// The pool of the selection, if it is in one.
    pub fn pool_id(&self) -> Option<&PoolId> {
        match self {
            Self::Pool(id) | Self::LaunchConfig(id, _) => Some(id),
            Self::Configuration(_) | Self::Provider(..) => None,
        }
    }

    pub fn launch_config_id(&self) -> Option<&LaunchConfigId> {
        match self {
            Self::LaunchConfig(_, id) => Some(id),
            Self::Pool(_) | Self::Configuration(_) | Self::Provider(..) => None,
        }
    }

    pub fn provider_id(&self) -> Option<&ProviderId> {
        match self {
            Self::Provider(id, _) => Some(id),
            Self::Pool(_) | Self::LaunchConfig(..) | Self::Configuration(_) => None,
        }
    }

    pub fn region(&self) -> Option<&WorkerGroup> {
        match self {
            Self::Provider(_, region) => region.as_ref(),
            Self::Pool(_) | Self::LaunchConfig(..) | Self::Configuration(_) => None,
        }
    }
}
