//! A log on its way to whoever reads it: what there is, and what comes while the run goes on.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use domain::artifact::{Artifact, ArtifactName, Content};
use domain::id::TaskId;
use domain::time::{MINUTE_MS, Timestamp};
use engine::artifacts::ByteStream;
use engine::artifacts::{self, Reader, whole_file};
use engine::wakeups::Listener;
use futures_util::stream;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use store::{StoreError, Tx};

use super::super::call::Call;
use super::super::error::ApiError;
use super::super::reply::{Reply, Streamed};
use super::file_headers::headers;
use super::runs::{folder, runs_of};
use crate::app::App;

pub(super) const TEXT: &str = "text/plain; charset=utf-8";
/// Then the reader comes again from where it is, and shows its credentials again.
const MAX_FOLLOWING_MS: i64 = 15 * MINUTE_MS;
/// Another process may have written: without a bell, a follower looks this often.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// After so many looks in a row that found nothing new, it also asks whether the run has ended.
const QUIET_LOOKS: u32 = 4;

/// The log as an artifact: the live one goes on while the run does.
pub(super) async fn of_artifact(call: &Call, artifact: &Artifact) -> Result<Reply, ApiError> {
    let runs = runs_of(call, &artifact.task_id).await?;
    let has_ended = runs
        .run(artifact.run_id)
        .is_none_or(|run| run.end.is_some());
    let is_live = artifact.name.as_str() == ArtifactName::LIVE_LOG;
    let (task_id, run_id) = (&artifact.task_id, artifact.run_id);
    let follow = is_live && !has_ended;
    reply(call, task_id, run_id, 0, follow, headers(artifact)).await
}

/// The log from an offset on, to its end of now or to its last end.
pub(super) async fn of_run(
    call: &Call,
    task_id: &TaskId,
    run_id: u32,
    offset: u64,
    follow: bool,
) -> Result<Reply, ApiError> {
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(TEXT))]);
    reply(call, task_id, run_id, offset, follow, headers).await
}

async fn reply(
    call: &Call,
    task_id: &TaskId,
    run_id: u32,
    offset: u64,
    follow: bool,
    headers: HeaderMap,
) -> Result<Reply, ApiError> {
    let path = folder(&call.app)?.log(task_id, run_id);
    let (length, bytes): (_, ByteStream) = if follow {
        (None, following(call, path, task_id, run_id, offset))
    } else {
        match whole_file(&path, offset).await? {
            Some((length, bytes)) => (Some(length), bytes),
            None => (Some(0), Box::pin(stream::empty())),
        }
    };
    Ok(Reply::Stream(Streamed {
        headers,
        length,
        bytes,
    }))
}

fn following(call: &Call, path: PathBuf, task_id: &TaskId, run_id: u32, offset: u64) -> ByteStream {
    let app = &call.app;
    let until = call.now.plus_millis(MAX_FOLLOWING_MS);
    let expires = call.caller.as_ref().map(|caller| caller.expires);
    let follower = Follower {
        listener: app
            .engine
            .artifacts
            .grown
            .listen(&(task_id.clone(), run_id)),
        app: Arc::clone(app),
        until: expires.map_or(until, |expires| expires.min(until)),
        reader: Reader::open(path.clone(), offset),
        path,
        task_id: task_id.clone(),
        run_id,
        quiet: 0,
    };
    Box::pin(stream::try_unfold(follower, |mut follower| async move {
        let next = follower.next().await?;
        Ok(next.map(|piece| (piece, follower)))
    }))
}

/// Whether the live log of a run is an artifact that is no log of ours, and can be fetched.
pub(super) fn is_elsewhere(
    tx: &mut Tx<'_>,
    task_id: &TaskId,
    run_id: u32,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let Ok(name) = ArtifactName::LIVE_LOG.parse() else {
        return Ok(false);
    };
    let artifact = store::artifacts::get(tx, task_id, run_id, &name)?;
    Ok(artifact.is_some_and(|artifact| {
        artifact.expires >= now && artifact.content != Content::Log && artifact.content.is_present()
    }))
}

struct Follower {
    app: Arc<App>,
    path: PathBuf,
    task_id: TaskId,
    run_id: u32,
    reader: Reader,
    listener: Listener<(TaskId, u32)>,
    until: Timestamp,
    /// How many looks in a row have found nothing new.
    quiet: u32,
}

impl Follower {
    /// Waits for more; `None` when nothing more can come. If the time is up before, the reply breaks off:
    /// were it to end, the reader would take what it has for the whole log.
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            if self.app.engine.clock.now() >= self.until {
                let text = "this reader's time is up; it may come again with its credentials";
                return Err(io::Error::other(text));
            }
            // Asked before reading: what was written before the end is then read.
            let is_over = self.is_over().await?;
            let piece = self.reader.next().await?;
            if !piece.is_empty() {
                self.quiet = 0;
                return Ok(Some(piece));
            }
            if is_over {
                return Ok(None);
            }
            let woken = self.listener.woken_within(LOOK_AGAIN).await;
            self.quiet = if woken { 0 } else { self.quiet.wrapping_add(1) };
        }
    }

    async fn is_over(&self) -> io::Result<bool> {
        let (path, limit) = (self.path.clone(), self.app.config.artifacts.max_log_bytes);
        let state = tokio::task::spawn_blocking(move || artifacts::state(&path, limit));
        let state = state.await.map_err(io::Error::other)??;
        let has_log = state.is_some();
        if state.is_some_and(|state| state.is_finished) {
            return Ok(true);
        }
        if !self.quiet.is_multiple_of(QUIET_LOOKS) {
            return Ok(false);
        }
        let (id, run_id, now) = (
            self.task_id.clone(),
            self.run_id,
            self.app.engine.clock.now(),
        );
        let read = self.app.engine.store.read("task_runs", move |tx| {
            let is_elsewhere = !has_log && is_elsewhere(tx, &id, run_id, now)?;
            Ok((store::tasks::get_runs(tx, &id)?, is_elsewhere))
        });
        let (runs, is_elsewhere): (Option<store::tasks::TaskRuns>, bool) = read
            .await
            .map_err(|problem: StoreError| io::Error::other(problem))?;
        if is_elsewhere {
            let text = "the worker shows its log elsewhere; ask again to be led there";
            return Err(io::Error::other(text));
        }
        // A task that is gone has no log any more.
        let run = runs.as_ref().and_then(|runs| runs.run(run_id));
        Ok(run.is_none_or(|run| run.end.is_some()))
    }
}
