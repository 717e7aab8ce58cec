//! Why an artifact or a log is not taken, or cannot be had.

use std::io;

use domain::artifact::TakesNothing;
use store::StoreError;

use super::log_file::AppendRefused;

#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    #[error("Task not found")]
    NoSuchTask,
    #[error("There is no file of this artifact")]
    NoFile,
    #[error("Artifact expired")]
    Expired,
    /// An artifact is asked for that its run cannot have.
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Conflict(String),
    #[error(transparent)]
    TakesNothing(#[from] TakesNothing),
    #[error(
        "This server keeps no files of tasks: its configuration names no folder for them (`data`, \
         or `artifacts.folder`)"
    )]
    NoFolder,
    #[error(transparent)]
    Append(AppendRefused),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<AppendRefused> for ArtifactError {
    fn from(refused: AppendRefused) -> Self {
        match refused {
            AppendRefused::Gap { .. } | AppendRefused::Finished => Self::Append(refused),
            AppendRefused::Io(problem) => Self::Io(problem),
        }
    }
}
