//! The configuration section of a provider.

use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

use crate::panic_guard::build_or_fail;
use crate::{
    AwsConfig, AwsProvider, AzureConfig, AzureProvider, ExecProvider, ExecSettings,
    ExternalProvider, ExternalSettings, FakeCloud, FakeSettings, GoogleConfig, GoogleProvider,
    LocalProvider, LocalSettings, Provider, ProviderContext, StaticProvider, StaticSettings,
};

/// The section `[providers.<id>]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ProviderConfig {
    /// Hosts that people declare.
    Static(StaticSettings),
    /// A cloud in memory, for tests and rehearsals.
    Fake(FakeSettings),
    /// Worker processes on this machine.
    Local(LocalSettings),
    /// Machines behind an HTTP service that the operator writes.
    External(ExternalSettings),
    /// Machines behind a program that the operator writes.
    Exec(ExecSettings),
    /// Amazon EC2.
    Aws(AwsConfig),
    /// Google Compute Engine.
    Google(GoogleConfig),
    /// Microsoft Azure.
    Azure(AzureConfig),
}

impl ProviderConfig {
    /// The file with its secret.
    pub fn secret_file(&self) -> Option<&Path> {
        match self {
            Self::External(settings) => settings.secret_file.as_deref(),
            Self::Aws(settings) => settings.secret_file(),
            Self::Google(settings) => settings.secret_file(),
            Self::Azure(settings) => settings.secret_file(),
            Self::Static(_) | Self::Fake(_) | Self::Local(_) | Self::Exec(_) => None,
        }
    }

    /// Whether its calls leave this machine, and so may exceed a rate limit of others.
    pub fn calls_a_cloud(&self) -> bool {
        match self {
            Self::External(_) | Self::Exec(_) | Self::Aws(_) | Self::Google(_) | Self::Azure(_) => {
                true
            }
            Self::Static(_) | Self::Fake(_) | Self::Local(_) => false,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Static(_) => "static",
            Self::Fake(_) => "fake",
            Self::Local(_) => "local",
            Self::External(_) => "external",
            Self::Exec(_) => "exec",
            Self::Aws(_) => "aws",
            Self::Google(_) => "google",
            Self::Azure(_) => "azure",
        }
    }

    /// A provider whose constructor panics is there, and out of service.
    pub fn build(&self, context: ProviderContext) -> Arc<dyn Provider> {
        build_or_fail(self.kind(), || self.construct(context))
    }

    fn construct(&self, context: ProviderContext) -> Arc<dyn Provider> {
        match self.clone() {
            Self::Static(settings) => Arc::new(StaticProvider::new(
                context.schemas,
                context.keyring,
                &settings,
            )),
            Self::Fake(settings) => Arc::new(FakeCloud::new(context, settings)),
            Self::Local(settings) => Arc::new(LocalProvider::new(context, settings)),
            Self::External(settings) => Arc::new(ExternalProvider::new(context, settings)),
            Self::Exec(settings) => Arc::new(ExecProvider::new(context, settings)),
            Self::Aws(config) => Arc::new(AwsProvider::new(&config, context)),
            Self::Google(config) => Arc::new(GoogleProvider::new(&config, context)),
            Self::Azure(config) => Arc::new(AzureProvider::new(&config, context)),
        }
    }
}
