//! The settings of an artifact store.

use std::path::PathBuf;
use std::sync::Arc;

use domain::time::Clock;
use serde::Deserialize;

use super::artifact_folder::FolderStore;
use super::artifact_store::ArtifactStore;
use super::object_store::{BadObjectStore, ObjectStore, ObjectStoreSettings};

/// The kind of a store, and where it is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ArtifactStoreSettings {
    Folder(FolderSettings),
    /// S3, or any HTTP server.
    Http(ObjectStoreSettings),
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FolderSettings {
    pub path: PathBuf,
}

impl ArtifactStoreSettings {
    /// Makes the store. Does no I/O.
    pub fn store(&self, clock: Arc<dyn Clock>) -> Result<Arc<dyn ArtifactStore>, BadObjectStore> {
        Ok(match self {
            Self::Folder(folder) => Arc::new(FolderStore::new(folder.path.clone())),
            Self::Http(settings) => Arc::new(ObjectStore::new(settings, clock)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::values::TestClock;

    fn location(text: &str) -> Result<String, String> {
        let settings: ArtifactStoreSettings =
            toml::from_str(text).map_err(|error| error.to_string())?;
        let store = settings.store(TestClock::new());
        let store = store.map_err(|error| error.to_string())?;
        Ok(store.location(&"a/b".parse().unwrap()))
    }

    #[test]
    fn each_kind_of_store_has_its_settings() {
        let folder = "kind = \"folder\"\npath = \"/var/lib/images\"";
        assert_eq!(location(folder).unwrap(), "/var/lib/images/a/b");
        let plain = "kind = \"http\"\nurl = \"https://files.example.com/x/\"";
        assert_eq!(location(plain).unwrap(), "https://files.example.com/x/a/b");
        let bucket = "kind = \"http\"\nurl = \"https://s3.example.com\"\nbucket = \"images\"";
        assert_eq!(location(bucket).unwrap(), "s3://images/a/b");
        for (text, expected) in [
            ("kind = \"ftp\"", "ftp"),
            ("kind = \"folder\"", "path"),
            ("kind = \"folder\"\npath = \"/x\"\nurl = \"y\"", "url"),
            ("kind = \"http\"\nurl = \"y\"", "url: must be"),
            (
                "kind = \"http\"\nurl = \"http://x\"\nbuket = \"y\"",
                "buket",
            ),
        ] {
            let error = location(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
