//! The section `[artifacts]`: the folder of artifacts and logs, and their maximum sizes.

use std::path::PathBuf;

use engine::artifacts::FileLimits;
use serde::Deserialize;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Artifacts {
    /// The default is `artifacts` in the data folder. Processes that share a database must share
    /// the folder.
    pub folder: Option<PathBuf>,
    /// Maximum size of an upload.
    pub max_bytes: u64,
    /// Maximum size of a log; longer ones are cut.
    pub max_log_bytes: u64,
    /// Maximum size of all uploads of a task together.
    pub max_task_bytes: u64,
    /// Free space of the disk that uploads and logs leave to others, such as the database.
    pub reserve_bytes: u64,
}

impl Artifacts {
    pub fn limits(&self) -> FileLimits {
        FileLimits {
            task_bytes: self.max_task_bytes,
            reserve_bytes: self.reserve_bytes,
        }
    }
}

impl Default for Artifacts {
    fn default() -> Self {
        Self {
            folder: None,
            max_bytes: 1024 * 1024 * 1024,
            max_log_bytes: 64 * 1024 * 1024,
            max_task_bytes: 32 * 1024 * 1024 * 1024,
            reserve_bytes: 512 * 1024 * 1024,
        }
    }
}
