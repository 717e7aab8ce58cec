//! What the configuration file says about a provider.

use std::sync::Arc;

use serde::Deserialize;

use crate::{
    AwsConfig, AwsProvider, ExecProvider, ExecSettings, ExternalProvider, ExternalSettings,
    FakeCloud, FakeSettings, LocalProvider, LocalSettings, Provider, ProviderContext,
    StaticProvider,
};

/// Nothing needs to be said, and what is said all the same is a mistake.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StaticSettings {}

/// The section `[providers.<id>]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ProviderConfig {
    /// Machines that are there anyway, declared by hand.
    Static(StaticSettings),
    /// A cloud in memory, for trying things.
    Fake(FakeSettings),
    /// Worker processes on this machine.
    Local(LocalSettings),
    /// Whatever a service of somebody else's makes.
    External(ExternalSettings),
    /// Whatever a program of somebody else's makes.
    Exec(ExecSettings),
    /// Amazon EC2.
    Aws(AwsConfig),
}

impl ProviderConfig {
    /// Whether its machines are made by somebody else, who may be asked too often.
    pub fn calls_a_cloud(&self) -> bool {
        match self {
            Self::External(_) | Self::Exec(_) | Self::Aws(_) => true,
            Self::Static(_) | Self::Fake(_) | Self::Local(_) => false,
        }
    }

    pub fn build(&self, context: ProviderContext) -> Arc<dyn Provider> {
        match self.clone() {
            Self::Static(_) => Arc::new(StaticProvider::new(context.schemas, context.keyring)),
            Self::Fake(settings) => Arc::new(FakeCloud::new(context, settings)),
            Self::Local(settings) => Arc::new(LocalProvider::new(context, settings)),
            Self::External(settings) => Arc::new(ExternalProvider::new(context, settings)),
            Self::Exec(settings) => Arc::new(ExecProvider::new(context, settings)),
            Self::Aws(config) => Arc::new(AwsProvider::new(&config, context)),
        }
    }
}
