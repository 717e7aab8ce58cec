//! What tasks leave behind as files: artifacts that were uploaded, and the logs of runs.
//!
//! A file appears whole or not at all, under a name that nobody can choose; only logs grow in place.

mod creating;
mod error;
mod expected_file;
mod folder;
mod following;
mod log_file;
mod reading;
mod run_log;
mod sweep;
mod upload;

use std::path::PathBuf;

use domain::id::TaskId;

use crate::wakeups::Wakeups;

pub use creating::create;
pub use error::ArtifactError;
pub use expected_file::{ExpectedFile, find_file};
pub use folder::{Folder, N_SHELVES, file_name};
pub use following::follow_log;
pub use log_file::{AppendRefused, LogState};
pub use reading::{ByteStream, whole_file};
pub use run_log::{LOG_CONTENT_TYPE, LogPiece, append_to_log, is_log_elsewhere, log_state};
pub use sweep::{RunFolder, Wanted, remove, runs_in, tasks_after};
pub use upload::Upload;

/// Where artifacts are kept, and who waits for logs to grow.
pub struct Artifacts {
    /// `None`: this server keeps none, because nobody said where.
    pub folder: Option<Folder>,
    /// Wakes those who follow the log of a run when it has grown.
    pub grown: Wakeups<(TaskId, u32)>,
}

impl Artifacts {
    pub fn new(folder: Option<PathBuf>) -> Self {
        if folder.is_none() {
            tracing::warn!(
                "files and logs of tasks are not kept: the configuration names no folder for them \
                 (`data`, or `artifacts.folder`)"
            );
        }
        Self {
            folder: folder.map(Folder::new),
            grown: Wakeups::default(),
        }
    }

    /// Where artifacts are kept, for those who cannot do without.
    pub fn required_folder(&self) -> Result<&Folder, ArtifactError> {
        self.folder.as_ref().ok_or(ArtifactError::NoFolder)
    }
}
