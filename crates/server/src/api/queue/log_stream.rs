//! Streams a log to a reader: its present content, and what the run appends.

use domain::artifact::{Artifact, ArtifactName};
use domain::id::TaskId;
use domain::time::MINUTE_MS;
use engine::artifacts::{ByteStream, LOG_CONTENT_TYPE, follow_log, stream_file};
use futures_util::stream;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};

use super::file_headers::headers;
use super::runs::runs_of;
use crate::api::{
    call::Call,
    error::ApiError,
    reply::{Reply, StreamReply},
};

/// After this time the reader must reconnect and send its credentials again.
const MAX_FOLLOWING_MS: i64 = 15 * MINUTE_MS;

/// The log as an artifact: the live log continues while the run does.
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

/// The log from an offset to its present end, or to its final end.
pub(super) async fn of_run(
    call: &Call,
    task_id: &TaskId,
    run_id: u32,
    offset: u64,
    follow: bool,
) -> Result<Reply, ApiError> {
    let headers =
        HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(LOG_CONTENT_TYPE))]);
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
    let engine = &call.app.engine;
    let (length, bytes): (_, ByteStream) = if follow {
        let until = call.now.plus_millis(MAX_FOLLOWING_MS);
        let expires = call.caller.as_ref().map(|caller| caller.expires);
        let until = expires.map_or(until, |expires| expires.min(until));
        let limit = call.app.config.artifacts.max_log_bytes;
        let pieces = follow_log(engine, (task_id, run_id), offset, until, limit)?;
        (None, pieces)
    } else {
        let path = engine.artifacts.required_folder()?.log(task_id, run_id);
        match stream_file(&path, offset).await? {
            Some((length, bytes)) => (Some(length), bytes),
            None => (Some(0), Box::pin(stream::empty())),
        }
    };
    Ok(Reply::Stream(StreamReply {
        headers,
        length,
        bytes,
    }))
}
