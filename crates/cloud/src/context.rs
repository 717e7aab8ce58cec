//! What every provider gets from the program around it.

use std::path::PathBuf;
use std::sync::Arc;

use access::seal::Keyring;
use contract::Schemas;
use domain::id::ProviderId;
use domain::time::Clock;

#[derive(Clone)]
pub struct ProviderContext {
    /// The provider's own name.
    pub id: ProviderId,
    pub schemas: Schemas,
    pub keyring: Arc<Keyring>,
    /// Where workers and clients reach us, without a trailing slash.
    pub root_url: String,
    /// A folder for files; a provider keeps its own in a folder of its own below it. `None`: there is none.
    pub data: Option<PathBuf>,
    pub clock: Arc<dyn Clock>,
}

impl ProviderContext {
    /// The provider's own folder, which need not be there; absolute, because programs that get to know it run elsewhere.
    pub(crate) fn folder(&self, kind: &str) -> Option<PathBuf> {
        let folder = self.data.as_ref()?.join(kind).join(self.id.as_str());
        Some(std::path::absolute(&folder).unwrap_or(folder))
    }
}
