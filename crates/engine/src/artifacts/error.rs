//! Why an artifact or a log is refused or missing.

use std::io;

use domain::artifact::ArtifactRefusal;
use store::StoreError;

use super::log_file::AppendError;

#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    #[error("Task not found")]
    NoSuchTask,
    #[error("This artifact has no file")]
    NoFile,
    #[error("Artifact expired")]
    Expired,
    /// The run cannot have this artifact.
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Conflict(String),
    #[error(transparent)]
    ArtifactRefusal(#[from] ArtifactRefusal),
    #[error(
        "This server keeps no files of tasks: its configuration names no folder for them (`data`, \
         or `artifacts.folder`)"
    )]
    NoFolder,
    #[error(transparent)]
    Append(AppendError),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<AppendError> for ArtifactError {
    fn from(refused: AppendError) -> Self {
        match refused {
            AppendError::Gap { .. } | AppendError::Finished => Self::Append(refused),
            AppendError::Io(problem) => Self::Io(problem),
        }
    }
}
