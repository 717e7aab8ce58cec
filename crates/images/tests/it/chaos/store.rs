//! An artifact store in memory, which loses files when a test wants.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use cloud::image::{ArtifactError, ArtifactKey, ArtifactStore, Checksum, StoredArtifact};
use domain::time::Timestamp;

use super::monitor::Monitor;
use testing::Chance;

pub(super) struct MemoryStore {
    pub(super) name: String,
    files: Mutex<BTreeMap<ArtifactKey, u64>>,
    chance: Chance,
    monitor: Arc<Monitor>,
}

impl MemoryStore {
    pub(super) fn new(name: &str, chance: &Chance, monitor: &Arc<Monitor>) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            files: Mutex::default(),
            chance: chance.clone(),
            monitor: Arc::clone(monitor),
        })
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<ArtifactKey, u64>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn keys(&self) -> Vec<ArtifactKey> {
        self.files().keys().cloned().collect()
    }

    pub(super) fn lose(&self, key: &ArtifactKey) {
        self.files().remove(key);
    }

    fn fail_sometimes(&self) -> Result<(), ArtifactError> {
        match !self.monitor.is_calm() && self.chance.percent(5) {
            true => Err(ArtifactError::Unavailable("the network".to_owned())),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl ArtifactStore for MemoryStore {
    fn location(&self, key: &ArtifactKey) -> String {
        format!("memory:{key}")
    }

    async fn put(
        &self,
        key: &ArtifactKey,
        _file: &Path,
        checksum: &Checksum,
    ) -> Result<(), ArtifactError> {
        self.fail_sometimes()?;
        self.files().insert(key.clone(), checksum.size_bytes);
        self.fail_sometimes()
    }

    async fn get(
        &self,
        key: &ArtifactKey,
        _to: &Path,
        _checksum: &Checksum,
    ) -> Result<(), ArtifactError> {
        self.fail_sometimes()?;
        match self.files().contains_key(key) {
            true => Ok(()),
            false => Err(ArtifactError::NotFound(key.clone())),
        }
    }

    async fn find(&self, key: &ArtifactKey) -> Result<Option<StoredArtifact>, ArtifactError> {
        let size_bytes = self.files().get(key).copied();
        Ok(size_bytes.map(|size_bytes| StoredArtifact {
            key: key.clone(),
            size_bytes,
        }))
    }

    async fn delete(&self, key: &ArtifactKey) -> Result<(), ArtifactError> {
        self.fail_sometimes()?;
        self.files().remove(key);
        self.fail_sometimes()
    }

    async fn list(&self) -> Result<Option<Vec<StoredArtifact>>, ArtifactError> {
        self.fail_sometimes()?;
        let files = self.files();
        let listed = files.iter().map(|(key, size_bytes)| StoredArtifact {
            key: key.clone(),
            size_bytes: *size_bytes,
        });
        Ok(Some(listed.collect()))
    }

    async fn remove_leftovers(&self, _before: Timestamp) -> Result<usize, ArtifactError> {
        Ok(0)
    }
}
