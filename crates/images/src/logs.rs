//! Reads the logs of builds: of those that run in this process, and of those that ended.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use cloud::image::{ArtifactError, ArtifactStore, Checksum, LogPiece, read_complete_log, read_log};
use domain::id::ImageName;
use domain::image::{BuildNumber, BuildState};
use tokio::time::timeout;

use crate::image_tree::{ImageNode, ImageTree};
use crate::live_builds::{LiveBuild, LiveBuilds};

/// A piece of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPage {
    pub bytes: Vec<u8>,
    /// Bytes that are left out before this piece.
    pub left_out: u64,
    /// Where the next piece begins.
    pub next: u64,
    /// Whether the build has ended, and this piece is the last.
    pub is_last: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("image {image} has no build {build}")]
    NoBuild {
        image: ImageName,
        build: BuildNumber,
    },
    #[error("builder {0} has the log, and this server cannot reach it")]
    Elsewhere(String),
    #[error("the log of build {0} was not kept")]
    NotKept(BuildNumber),
    #[error("the log cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("the log cannot be fetched: {0}")]
    Store(#[from] ArtifactError),
}

/// A question for a piece of a log.
#[derive(Clone, Debug)]
pub struct LogQuery {
    pub image: ImageName,
    pub build: BuildNumber,
    pub from: u64,
    pub at_most: u64,
    /// Wait this long for output, if there is none yet.
    pub wait: Duration,
}

/// Reads a piece of a log. Without an artifact store, only logs of running builds are found.
pub async fn read_build_log(
    images: &ImageTree,
    live: &LiveBuilds,
    artifacts: Option<&dyn ArtifactStore>,
    query: &LogQuery,
) -> Result<LogPage, LogError> {
    if let Some(running) = live.get(&query.image, query.build) {
        return read_running(running, query).await;
    }
    let find = |image: &ImageNode| image.builds.get(&query.build)?.record.clone();
    let record = images.image(&query.image, find).flatten();
    let record = record.ok_or_else(|| LogError::NoBuild {
        image: query.image.clone(),
        build: query.build,
    })?;
    if record.state == BuildState::Building {
        if !live.is_own(&record.builder) {
            return Err(LogError::Elsewhere(record.builder.clone()));
        }
        // It begins, or its end is being recorded.
        let is_changed = |image: Option<&ImageNode>| image.and_then(find).as_ref() != Some(&record);
        tokio::select! {
            _ = images.wait_for(&query.image, query.wait, is_changed) => {}
            () = live.running(&query.image, query.build) => {}
        }
        return Ok(LogPage {
            bytes: Vec::new(),
            left_out: 0,
            next: query.from,
            is_last: false,
        });
    }
    let log = record.log.as_ref().ok_or(LogError::NotKept(query.build))?;
    let key = log
        .key
        .parse()
        .map_err(|_| LogError::NotKept(query.build))?;
    let Some(artifacts) = artifacts else {
        return Err(LogError::Elsewhere(record.builder.clone()));
    };
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("log");
    let checksum = Checksum {
        sha256: log.file.sha256.clone(),
        size_bytes: log.file.size_bytes,
    };
    match artifacts.get(&key, &path, &checksum).await {
        Err(ArtifactError::NotFound(_)) => {
            return Err(LogError::Elsewhere(record.builder.clone()));
        }
        got => got?,
    }
    let (from, at_most) = (query.from, query.at_most);
    let read = tokio::task::spawn_blocking(move || read_complete_log(&path, from, at_most));
    let (piece, is_last) = read.await.map_err(io::Error::other)??;
    Ok(page(piece, is_last))
}

async fn read_running(mut running: LiveBuild, query: &LogQuery) -> Result<LogPage, LogError> {
    let grown = running.progress.wait_for(|bytes| *bytes > query.from);
    // After this time, or at the end of the command, there may still be nothing.
    let _ = timeout(query.wait, grown).await;
    let piece = read_piece(running.log, running.max_log_bytes, query).await?;
    Ok(page(piece, false))
}

async fn read_piece(path: PathBuf, max_bytes: u64, query: &LogQuery) -> io::Result<LogPiece> {
    let (from, at_most) = (query.from, query.at_most);
    let read = tokio::task::spawn_blocking(move || read_log(&path, max_bytes, from, at_most));
    read.await.map_err(io::Error::other)?
}

fn page(piece: LogPiece, is_last: bool) -> LogPage {
    LogPage {
        bytes: piece.bytes,
        left_out: piece.left_out,
        next: piece.next,
        is_last,
    }
}
