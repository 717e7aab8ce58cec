//! The environment that every provider is built with.

use std::path::PathBuf;
use std::sync::Arc;

use access::seal::Keyring;
use contract::Schemas;
use domain::id::ProviderId;
use domain::time::Clock;

#[derive(Clone)]
pub struct ProviderContext {
    /// The provider's id.
    pub id: ProviderId,
    pub schemas: Schemas,
    pub keyring: Arc<Keyring>,
    /// The URL where workers and clients reach the server, without a trailing slash.
    pub root_url: String,
    /// The data folder. A provider keeps its files in its own folder below. `None`: no folder is
    /// configured.
    pub data: Option<PathBuf>,
    pub clock: Arc<dyn Clock>,
}

impl ProviderContext {
    /// The provider's own folder, which may not exist yet. The path is absolute, because programs
    /// that get it run in other folders.
    pub(crate) fn folder(&self, kind: &str) -> Option<PathBuf> {
        let folder = self.data.as_ref()?.join(kind).join(self.id.as_str());
        Some(std::path::absolute(&folder).unwrap_or(folder))
    }
}
