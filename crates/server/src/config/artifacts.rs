//! The section `[artifacts]`: where what tasks leave behind is kept, and how large it may be.

use std::path::PathBuf;

use serde::Deserialize;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Artifacts {
    /// `artifacts` in the data folder, if nothing else is said. Processes that share a database share it.
    pub folder: Option<PathBuf>,
    /// A larger upload is refused.
    pub max_bytes: u64,
    /// A longer log is cut.
    pub max_log_bytes: u64,
}

impl Default for Artifacts {
    fn default() -> Self {
        Self {
            folder: None,
            max_bytes: 1024 * 1024 * 1024,
            max_log_bytes: 64 * 1024 * 1024,
        }
    }
}
