//! What the configuration file says about a provider.

use std::sync::Arc;

use access::seal::Keyring;
use contract::Schemas;
use domain::id::ProviderId;
use serde::Deserialize;

use crate::{FakeCloud, Provider, StaticProvider};

/// The section `[providers.<id>]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ProviderConfig {
    /// Machines that are there anyway, declared by hand.
    Static,
    /// A cloud in memory, for trying things.
    Fake {
        /// Whose pool configs it takes.
        accepts: AcceptedConfig,
    },
}

/// A cloud whose pool configs the fake provider takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AcceptedConfig {
    Aws,
    Azure,
    Google,
}

impl AcceptedConfig {
    pub(crate) fn schema(self) -> &'static str {
        match self {
            Self::Aws => "worker-manager/v1/config-aws.json",
            Self::Azure => "worker-manager/v1/config-azure.json",
            Self::Google => "worker-manager/v1/config-google.json",
        }
    }
}

impl ProviderConfig {
    pub fn build(
        &self,
        id: &ProviderId,
        schemas: Schemas,
        keyring: &Arc<Keyring>,
    ) -> Arc<dyn Provider> {
        let keyring = Arc::clone(keyring);
        match self {
            Self::Static => Arc::new(StaticProvider::new(schemas, keyring)),
            Self::Fake { accepts } => {
                Arc::new(FakeCloud::new(id.clone(), *accepts, schemas, keyring))
            }
        }
    }
}
