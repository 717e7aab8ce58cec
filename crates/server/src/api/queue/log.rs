//! The log of a run: its worker appends, and readers may follow it while it grows.

use domain::artifact::ArtifactName;
use domain::id::TaskId;
use engine::artifacts::{LogPiece, LogState, append_to_log, is_log_external, log_state};
use serde_json::json;

use super::artifact_content::{LinkTo, place_of, present};
use super::log_stream;
use super::runs::{known_run, latest, runs_of};
use crate::api::{call::Call, error::ApiError, reply::Reply};

/// Maximum size of an appended piece, which is held in memory.
const MAX_PIECE_BYTES: u64 = 1024 * 1024;

pub(in crate::api) async fn append(mut call: Call) -> Result<Reply, ApiError> {
    let task_id = call.id("taskId")?;
    let Some(offset) = offset(&call)? else {
        let text = "`offset` is needed: how many bytes of the log precede this piece";
        return Err(ApiError::input(text));
    };
    let is_last = call.query("finished") == Some("true");
    // Read first: the run may end while the piece arrives, or its time may pass.
    let bytes = call.raw_body(MAX_PIECE_BYTES)?.whole().await?;
    let now = call.app.engine.clock.now();
    let runs = runs_of(&call, &task_id).await?;
    let (run_id, run) = known_run(&call, &task_id, &runs)?;
    let piece = LogPiece {
        bytes,
        offset,
        is_last,
    };
    let limit = call.app.config.artifacts.max_log_bytes;
    let appended = append_to_log(
        &call.app.engine,
        (task_id, run_id),
        run,
        runs.expires,
        piece,
        (limit, now),
    );
    answer(&appended.await?, run.end.is_none())
}

pub(in crate::api) async fn read(call: Call) -> Result<Reply, ApiError> {
    let task_id = call.id("taskId")?;
    let runs = runs_of(&call, &task_id).await?;
    let (run_id, run) = known_run(&call, &task_id, &runs)?;
    let has_ended = run.end.is_some();
    read_run(&call, &task_id, run_id, has_ended).await
}

pub(in crate::api) async fn read_latest(call: Call) -> Result<Reply, ApiError> {
    let task_id = call.id("taskId")?;
    let runs = runs_of(&call, &task_id).await?;
    let run_id = latest(&runs)?;
    let has_ended = runs.run(run_id).is_none_or(|run| run.end.is_some());
    read_run(&call, &task_id, run_id, has_ended).await
}

async fn read_run(
    call: &Call,
    task_id: &TaskId,
    run_id: u32,
    has_ended: bool,
) -> Result<Reply, ApiError> {
    let offset = offset(call)?.unwrap_or(0);
    let follow = call.query("follow") == Some("true");
    let (engine, limit) = (&call.app.engine, call.app.config.artifacts.max_log_bytes);
    let has_log = log_state(engine, (task_id, run_id), limit).await?.is_some();
    if !has_log && (has_ended || is_log_external(engine, task_id.clone(), run_id, call.now).await?)
    {
        return made_otherwise(call, task_id, run_id).await;
    }
    log_stream::of_run(call, task_id, run_id, offset, follow && !has_ended).await
}

/// Workers that do not know this service link to the log while they write it, and upload it at the
/// end. A run that never started has only the uploaded log.
async fn made_otherwise(call: &Call, task_id: &TaskId, run_id: u32) -> Result<Reply, ApiError> {
    let missing = || ApiError::not_found(format!("Run {run_id} of task {task_id} has no log"));
    for name in [ArtifactName::LIVE_LOG, ArtifactName::LIVE_BACKING_LOG] {
        let name = name.parse().map_err(|_| missing())?;
        let Ok(artifact) = present(call, task_id, run_id, name).await else {
            continue;
        };
        match place_of(call, &artifact) {
            Ok(place) => return place.redirect(),
            // No other link is followed: reading it may need a scope that was not checked.
            Err(LinkTo(to)) if to == ArtifactName::LIVE_BACKING_LOG => {}
            Err(LinkTo(_)) => return Err(missing()),
        }
    }
    Err(missing())
}

fn offset(call: &Call) -> Result<Option<u64>, ApiError> {
    call.query("offset")
        .map(|digits| digits.parse())
        .transpose()
        .map_err(|_| ApiError::input("`offset` is larger than any log: give a smaller number"))
}

/// A worker that lost its run, for example by a cancellation, learns it here first.
fn answer(state: &LogState, is_running: bool) -> Result<Reply, ApiError> {
    Reply::json(&json!({
        "length": state.length,
        "finished": state.is_finished,
        "truncated": state.is_cut,
        "running": is_running,
    }))
}
