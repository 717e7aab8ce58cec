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
    #[error(
        "The disk of this server is nearly full: {free} bytes are free, and {reserve} stay reserved \
         for the database (`artifacts.reserve_bytes`), so there is no room for {needed} bytes. \
         Nothing was stored; free space or delete artifacts, and send it again"
    )]
    DiskFull {
        needed: u64,
        free: u64,
        reserve: u64,
    },
    #[error(
        "The files of a task may take {limit} bytes together (`artifacts.max_task_bytes`), and the \
         others of this task take {others}. The file was not stored; upload less, or let several \
         tasks do it"
    )]
    TaskFull { others: u64, limit: u64 },
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
