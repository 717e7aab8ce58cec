//! Streams a log to a reader: its present content, and what the run appends.

use bytes::Bytes;
use domain::artifact::{Artifact, ArtifactName};
use domain::id::TaskId;
use domain::time::MINUTE_MS;
use engine::artifacts::{ByteStream, LOG_CONTENT_TYPE, OpenFile, follow_log};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};

use super::file_reply;
use super::runs::runs_of;
use crate::api::{
    call::Call,
    error::ApiError,
    reply::{Reply, StreamReply},
};

/// After this time the reader must reconnect and send its credentials again.
const MAX_FOLLOWING_MS: i64 = 15 * MINUTE_MS;

/// The log as an artifact: the live log continues while the run does.
pub(super) async fn of_artifact(
    call: &Call,
    artifact: &Artifact,
    headers: HeaderMap,
) -> Result<Reply, ApiError> {
    let runs = runs_of(call, &artifact.task_id).await?;
    let has_ended = runs
        .run(artifact.run_id)
        .is_none_or(|run| run.end.is_some());
    let is_live = artifact.name.as_str() == ArtifactName::LIVE_LOG;
    let run = (&artifact.task_id, artifact.run_id);
    if is_live && !has_ended {
        return follow_run(call, run, 0, headers);
    }
    match open(call, run).await? {
        Some(file) => file_reply::reply(file, None, headers, &call.conditions).await,
        None => Ok(Reply::whole(headers, Bytes::new())),
    }
}

/// The log from an offset to its present end, or to its final end.
pub(super) async fn of_run(
    call: &Call,
    task_id: &TaskId,
    run_id: u32,
    offset: u64,
    follow: bool,
) -> Result<Reply, ApiError> {
    let run = (task_id, run_id);
    let headers =
        HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(LOG_CONTENT_TYPE))]);
    if follow {
        return follow_run(call, run, offset, headers);
    }
    let Some(file) = open(call, run).await? else {
        return Ok(Reply::whole(headers, Bytes::new()));
    };
    let length = file.length().saturating_sub(offset);
    let bytes = file.stream(offset..u64::MAX).await?;
    Ok(stream(headers, Some(length), bytes))
}

async fn open(
    call: &Call,
    (task_id, run_id): (&TaskId, u32),
) -> Result<Option<OpenFile>, ApiError> {
    let folder = call.app.engine.artifacts.required_folder()?;
    Ok(OpenFile::open(&folder.log(task_id, run_id)).await?)
}

fn follow_run(
    call: &Call,
    run: (&TaskId, u32),
    offset: u64,
    headers: HeaderMap,
) -> Result<Reply, ApiError> {
    let until = call.now.plus_millis(MAX_FOLLOWING_MS);
    let expires = call.caller.as_ref().map(|caller| caller.expires);
    let until = expires.map_or(until, |expires| expires.min(until));
    let limit = call.app.config.artifacts.max_log_bytes;
    let pieces = follow_log(&call.app.engine, run, offset, until, limit)?;
    Ok(stream(headers, None, pieces))
}

fn stream(headers: HeaderMap, length: Option<u64>, bytes: ByteStream) -> Reply {
    Reply::Stream(StreamReply {
        status: StatusCode::OK,
        headers,
        length,
        bytes,
    })
}
