//! The log of a run: appended by its worker, and read by others.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use domain::artifact::{Artifact, ArtifactName, Content, author};
use domain::id::TaskId;
use domain::task::Run;
use domain::time::Timestamp;
use store::Tx;

use super::ArtifactError;
use super::log_file::{LogState, append, state};
use crate::Engine;

pub const LOG_CONTENT_TYPE: &str = "text/plain; charset=utf-8";

pub struct LogPiece {
    pub bytes: Bytes,
    /// The number of bytes of the log before this piece.
    pub offset: u64,
    pub is_last: bool,
}

/// Appends a piece to the log of a run; `expires` is the expiration of its task.
pub async fn append_to_log(
    engine: &Arc<Engine>,
    (task_id, run_id): (TaskId, u32),
    run: &Run,
    expires: Timestamp,
    piece: LogPiece,
    (limit, now): (u64, Timestamp),
) -> Result<LogState, ArtifactError> {
    author(run, now)?;
    if log_state(engine, (&task_id, run_id), limit)
        .await?
        .is_none()
    {
        // Before the file, so that no file exists without a row.
        announce(engine, &task_id, run_id, expires, now).await?;
    }
    let folder = engine.artifacts.required_folder()?;
    let (path, root) = (folder.log(&task_id, run_id), folder.root().to_owned());
    let LogPiece {
        bytes,
        offset,
        is_last,
    } = piece;
    let limits = engine.artifacts.limits;
    let write = move || {
        limits.check_disk(&root, bytes.len() as u64)?;
        append(&path, offset, &bytes, is_last, limit).map_err(ArtifactError::from)
    };
    let state = run_blocking(write).await??;
    engine.artifacts.log_wakeups.wake(&(task_id, run_id));
    Ok(state)
}

/// The progress of the log of a run; `None`: it has not begun.
pub async fn log_state(
    engine: &Engine,
    (task_id, run_id): (&TaskId, u32),
    limit: u64,
) -> Result<Option<LogState>, ArtifactError> {
    let path = engine.artifacts.required_folder()?.log(task_id, run_id);
    Ok(run_blocking(move || state(&path, limit)).await??)
}

/// Whether the worker publishes the log of this run itself.
pub async fn is_log_external(
    engine: &Engine,
    task_id: TaskId,
    run_id: u32,
    now: Timestamp,
) -> store::Result<bool> {
    let read = engine.store.read("artifact_get", move |tx| {
        has_external_log(tx, &task_id, run_id, now)
    });
    read.await
}

/// Whether the live log of a run is an artifact other than our log, and can be fetched.
pub(super) fn has_external_log(
    tx: &mut Tx<'_>,
    task_id: &TaskId,
    run_id: u32,
    now: Timestamp,
) -> store::Result<bool> {
    let Ok(name) = ArtifactName::LIVE_LOG.parse() else {
        return Ok(false);
    };
    let artifact = store::artifacts::get(tx, task_id, run_id, &name)?;
    Ok(artifact.is_some_and(|artifact| {
        artifact.expires >= now && artifact.content != Content::Log && artifact.content.is_present()
    }))
}

/// Creates the two artifacts of a log, unless the worker has created artifacts of these names.
async fn announce(
    engine: &Arc<Engine>,
    task_id: &TaskId,
    run_id: u32,
    expires: Timestamp,
    now: Timestamp,
) -> store::Result<()> {
    let names = [ArtifactName::LIVE_LOG, ArtifactName::LIVE_BACKING_LOG];
    let artifacts: Vec<Artifact> = names
        .into_iter()
        .filter_map(|name| {
            Some(Artifact {
                task_id: task_id.clone(),
                run_id,
                name: name.parse().ok()?,
                content_type: LOG_CONTENT_TYPE.to_owned(),
                expires,
                created: now,
                content: Content::Log,
            })
        })
        .collect();
    let written = engine.change("log_create", now, move |change| {
        for artifact in &artifacts {
            store::artifacts::insert(change.tx, artifact)?;
        }
        Ok(())
    });
    written.await
}

/// Runs work on files on a thread that may block.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(io::Error::other)
}
