//! What tasks leave behind as files: artifacts that were uploaded, and the logs of runs.
//!
//! A file appears whole or not at all, under a name that nobody can choose; only logs grow in place.

mod folder;
mod log_file;
mod reading;
mod sweep;
mod upload;

use std::path::PathBuf;

use domain::id::TaskId;

use crate::wakeups::Wakeups;

pub use folder::{Folder, N_SHELVES, file_name};
pub use log_file::{AppendRefused, LogState, append, state};
pub use reading::{ByteStream, Reader, whole_file};
pub use sweep::{RunFolder, Wanted, remove, runs_in, tasks_after};
pub use upload::{Complete, Upload};

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
}
