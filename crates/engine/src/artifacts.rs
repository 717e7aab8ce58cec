//! Files of tasks: artifacts that were uploaded, and the logs of runs.
//!
//! A file appears when it is complete, under a name that no client can choose; only logs grow in
//! place.

mod artifact_folder;
mod create_artifact;
mod error;
mod expected_file;
mod file_limits;
mod file_stream;
mod follow_log;
mod log_file;
mod orphaned_files;
mod run_log;
mod upload;

use std::path::PathBuf;

use domain::id::TaskId;

use crate::keyed_wakeups::KeyedWakeups;

pub use artifact_folder::{ArtifactFolder, N_SHARDS, file_name};
pub use create_artifact::create_artifact;
pub use error::ArtifactError;
pub use expected_file::{ExpectedFile, find_file};
pub use file_limits::FileLimits;
pub use file_stream::{ByteStream, OpenFile};
pub use follow_log::follow_log;
pub use log_file::{AppendError, LogState};
pub use orphaned_files::{KnownFiles, RunFolder, list_runs, list_tasks_after, remove_file};
pub use run_log::{LOG_CONTENT_TYPE, LogPiece, append_to_log, is_log_external, log_state};
pub use upload::Upload;

/// The folder of artifacts, and the wake-ups of those who follow logs.
pub struct Artifacts {
    /// `None`: no folder is configured, so this server keeps no artifacts.
    pub folder: Option<ArtifactFolder>,
    pub limits: FileLimits,
    /// Wakes the followers of a run's log when it has grown.
    pub log_wakeups: KeyedWakeups<(TaskId, u32)>,
}

impl Artifacts {
    pub fn new(folder: Option<PathBuf>, limits: FileLimits) -> Self {
        if folder.is_none() {
            tracing::warn!(
                "files and logs of tasks are not kept: the configuration names no folder for them \
                 (`data`, or `artifacts.folder`)"
            );
        }
        Self {
            folder: folder.map(ArtifactFolder::new),
            limits,
            log_wakeups: KeyedWakeups::default(),
        }
    }

    pub fn required_folder(&self) -> Result<&ArtifactFolder, ArtifactError> {
        self.folder.as_ref().ok_or(ArtifactError::NoFolder)
    }
}
