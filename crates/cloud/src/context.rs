//! The environment that every provider is built with.

use std::io;
use std::path::{Path, PathBuf};
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

    /// Makes the provider's own folder, and closes it and that of its kind to all other users.
    pub(crate) fn make_folder(&self, kind: &str) -> io::Result<()> {
        self.each_folder(kind, permissions::make_private)
    }

    /// Closes these folders, if they exist.
    pub(crate) fn close_folder(&self, kind: &str) -> io::Result<()> {
        self.each_folder(kind, permissions::close)
    }

    fn each_folder(&self, kind: &str, act: fn(&Path) -> io::Result<()>) -> io::Result<()> {
        let own = self.folder(kind);
        let both = own
            .iter()
            .flat_map(|own| [own.parent().unwrap_or(own), own.as_path()]);
        both.into_iter().try_for_each(act)
    }
}
