//! Follows the log of a run: streams its bytes, and waits for more while the run lasts.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use domain::id::TaskId;
use domain::time::Timestamp;
use futures_util::stream;
use store::StoreError;
use store::tasks::TaskRuns;

use super::ArtifactError;
use super::file_stream::{ByteStream, Reader};
use super::log_file::state;
use super::run_log::{has_external_log, run_blocking};
use crate::Engine;
use crate::keyed_wakeups::Listener;

/// Without a wake-up a follower polls this often, since another process may write the log.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// After this many polls without new bytes, it also checks whether the run has ended.
const QUIET_POLLS: u32 = 4;

/// Streams the log of a run from an offset on, until the run ends or this moment comes; `limit` is
/// the maximum length of a log.
pub fn follow_log(
    engine: &Arc<Engine>,
    (task_id, run_id): (&TaskId, u32),
    offset: u64,
    until: Timestamp,
    limit: u64,
) -> Result<ByteStream, ArtifactError> {
    let path = engine.artifacts.required_folder()?.log(task_id, run_id);
    let follower = Follower {
        listener: engine
            .artifacts
            .log_wakeups
            .listen(&(task_id.clone(), run_id)),
        engine: Arc::clone(engine),
        until,
        limit,
        reader: Reader::open(path.clone(), offset),
        path,
        task_id: task_id.clone(),
        run_id,
        quiet: 0,
    };
    let pieces = stream::try_unfold(follower, |mut follower| async move {
        let next = follower.next().await?;
        Ok(next.map(|piece| (piece, follower)))
    });
    Ok(Box::pin(pieces))
}

struct Follower {
    engine: Arc<Engine>,
    path: PathBuf,
    task_id: TaskId,
    run_id: u32,
    reader: Reader,
    listener: Listener<(TaskId, u32)>,
    until: Timestamp,
    limit: u64,
    /// Polls without new bytes, in a row.
    quiet: u32,
}

impl Follower {
    /// Waits for more bytes; `None` at the end of the log. When the time is up, the reply fails:
    /// a regular end would look like the end of the log.
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            if self.engine.clock.now() >= self.until {
                let text = "this reader's time is up; it may come again with its credentials";
                return Err(io::Error::other(text));
            }
            // Checked before reading, so that all bytes before the end are read.
            let is_over = self.is_over().await?;
            let piece = self.reader.next().await?;
            if !piece.is_empty() {
                self.quiet = 0;
                return Ok(Some(piece));
            }
            if is_over {
                return Ok(None);
            }
            let woken = self.listener.wait(POLL_INTERVAL).await;
            self.quiet = if woken { 0 } else { self.quiet.wrapping_add(1) };
        }
    }

    async fn is_over(&self) -> io::Result<bool> {
        let (path, limit) = (self.path.clone(), self.limit);
        let state = run_blocking(move || state(&path, limit)).await??;
        let has_log = state.is_some();
        if state.is_some_and(|state| state.is_finished) {
            return Ok(true);
        }
        if !self.quiet.is_multiple_of(QUIET_POLLS) {
            return Ok(false);
        }
        let (id, run_id, now) = (self.task_id.clone(), self.run_id, self.engine.clock.now());
        let read = self.engine.store.read("task_runs", move |tx| {
            let is_external = !has_log && has_external_log(tx, &id, run_id, now)?;
            Ok((store::tasks::get_runs(tx, &id)?, is_external))
        });
        let (runs, is_external): (Option<TaskRuns>, bool) = read
            .await
            .map_err(|problem: StoreError| io::Error::other(problem))?;
        if is_external {
            let text = "the worker shows its log elsewhere; ask again to be led there";
            return Err(io::Error::other(text));
        }
        // The log of a removed task does not grow.
        let run = runs.as_ref().and_then(|runs| runs.run(run_id));
        Ok(run.is_none_or(|run| run.end.is_some()))
    }
}
