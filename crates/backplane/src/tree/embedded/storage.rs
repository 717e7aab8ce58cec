//! Where an embedded tree keeps its persistent nodes.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use domain::time::Timestamp;

use crate::tree::error::TreeError;
use crate::tree::path::TreePath;

/// A persistent node with its counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeRow {
    pub path: TreePath,
    pub data: Vec<u8>,
    pub version: i32,
    pub created: Timestamp,
    pub changed: Timestamp,
    /// Numbers of changes: the one that created the node, that changed its data last, and that
    /// created or deleted a child last.
    pub created_by: i64,
    pub changed_by: i64,
    pub children_changed_by: i64,
    /// How many children were ever created.
    pub next_sequence: u32,
}

/// Changes that are written together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeBatch {
    pub put: Vec<TreeRow>,
    pub delete: Vec<TreePath>,
}

#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    #[error("{0}")]
    TakenOver(String),
    #[error("{0}")]
    Failed(String),
}

/// Keeps rows. After an error, a batch may have been written or not: the tree writes all rows of it
/// again with the next one.
#[async_trait]
pub trait TreeStorage: Send + Sync + 'static {
    async fn load(&self) -> Result<Vec<TreeRow>, StorageError>;
    async fn apply(&self, batch: TreeBatch) -> Result<(), StorageError>;
}

impl From<StorageError> for TreeError {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::TakenOver(by) => Self::TakenOver(by),
            StorageError::Failed(problem) => Self::Storage(problem),
        }
    }
}

/// Rows in memory: for trees that end with the process.
#[derive(Debug, Default)]
pub struct MemoryStorage(Mutex<BTreeMap<TreePath, TreeRow>>);

#[async_trait]
impl TreeStorage for MemoryStorage {
    async fn load(&self) -> Result<Vec<TreeRow>, StorageError> {
        let rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(rows.values().cloned().collect())
    }

    async fn apply(&self, batch: TreeBatch) -> Result<(), StorageError> {
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for path in &batch.delete {
            rows.remove(path);
        }
        for row in batch.put {
            rows.insert(row.path.clone(), row);
        }
        Ok(())
    }
}
