//! The log of a run: its worker appends, everybody who may reads, also while it grows.

use domain::artifact::{Artifact, ArtifactName, Content};
use domain::id::TaskId;
use domain::time::Timestamp;
use engine::artifacts::{self, AppendRefused, LogState};
use serde_json::json;
use store::StoreError;

use super::super::call::Call;
use super::super::error::ApiError;
use super::super::reply::Reply;
use super::artifact_content::{LinkTo, place, present};
use super::log_stream::{self, TEXT};
use super::runs::{check_author, folder, known_run, latest, runs_of, task_id};

/// A piece of a log is no larger: it is held in memory.
const MAX_PIECE_BYTES: u64 = 1024 * 1024;

pub(in crate::api) async fn append(mut call: Call) -> Result<Reply, ApiError> {
    let task_id = task_id(&call)?;
    let Some(offset) = offset(&call)? else {
        let text = "`offset` is needed: how many bytes of the log precede this piece";
        return Err(ApiError::input(text));
    };
    let is_last = call.query("finished") == Some("true");
    // Read first: the run may end while the piece is on its way.
    let piece = call.raw_body(MAX_PIECE_BYTES)?.whole().await?;
    let runs = runs_of(&call, &task_id).await?;
    let (run_id, run) = known_run(&call, &task_id, &runs)?;
    check_author(&call, run)?;
    let is_running = run.end.is_none();
    let path = folder(&call.app)?.log(&task_id, run_id);
    let limit = call.app.config.artifacts.max_log_bytes;
    let known = {
        let path = path.clone();
        blocking(move || artifacts::state(&path, limit)).await??
    };
    if known.is_none() {
        // Before the file, so that there is never a file that nobody knows of.
        announce(&call, &task_id, run_id, runs.expires).await?;
    }
    let appended =
        blocking(move || artifacts::append(&path, offset, &piece, is_last, limit)).await?;
    let state = appended.map_err(|refused| match refused {
        AppendRefused::Gap { .. } | AppendRefused::Finished => {
            ApiError::conflict(refused.to_string())
        }
        AppendRefused::Io(problem) => problem.into(),
    })?;
    call.app
        .engine
        .artifacts
        .grown
        .wake(&(task_id.clone(), run_id));
    answer(&state, is_running)
}

pub(in crate::api) async fn read(call: Call) -> Result<Reply, ApiError> {
    let task_id = task_id(&call)?;
    let runs = runs_of(&call, &task_id).await?;
    let (run_id, run) = known_run(&call, &task_id, &runs)?;
    let has_ended = run.end.is_some();
    read_run(&call, &task_id, run_id, has_ended).await
}

pub(in crate::api) async fn read_latest(call: Call) -> Result<Reply, ApiError> {
    let task_id = task_id(&call)?;
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
    let path = folder(&call.app)?.log(task_id, run_id);
    let limit = call.app.config.artifacts.max_log_bytes;
    let state = blocking(move || artifacts::state(&path, limit)).await??;
    if state.is_none() && (has_ended || is_elsewhere(call, task_id, run_id).await?) {
        return made_otherwise(call, task_id, run_id).await;
    }
    log_stream::of_run(call, task_id, run_id, offset, follow && !has_ended).await
}

/// Whether a worker that does not know this service shows the log of its run elsewhere.
async fn is_elsewhere(call: &Call, task_id: &TaskId, run_id: u32) -> Result<bool, ApiError> {
    let (task_id, now) = (task_id.clone(), call.now);
    let read = call.app.engine.store.read("artifact_get", move |tx| {
        log_stream::is_elsewhere(tx, &task_id, run_id, now)
    });
    let is_elsewhere: Result<bool, StoreError> = read.await;
    Ok(is_elsewhere?)
}

/// Workers that do not know this service refer to the log while they write it, and upload it in the end. Of a run that
/// did not begin there is the uploaded one alone.
async fn made_otherwise(call: &Call, task_id: &TaskId, run_id: u32) -> Result<Reply, ApiError> {
    let missing = || ApiError::not_found(format!("Run {run_id} of task {task_id} has no log"));
    for name in [ArtifactName::LIVE_LOG, ArtifactName::LIVE_BACKING_LOG] {
        let name = name.parse().map_err(|_| missing())?;
        let Ok(artifact) = present(call, task_id, run_id, name).await else {
            continue;
        };
        match place(call, &artifact) {
            Ok(place) => return place.lead(),
            // No other link: reading it may need a scope that was not asked for.
            Err(LinkTo(to)) if to == ArtifactName::LIVE_BACKING_LOG => {}
            Err(LinkTo(_)) => return Err(missing()),
        }
    }
    Err(missing())
}

/// The log is also two artifacts of its run, unless the worker has made others of these names.
async fn announce(
    call: &Call,
    task_id: &TaskId,
    run_id: u32,
    expires: Timestamp,
) -> Result<(), ApiError> {
    let names = [ArtifactName::LIVE_LOG, ArtifactName::LIVE_BACKING_LOG];
    let artifacts: Vec<Artifact> = names
        .into_iter()
        .filter_map(|name| {
            Some(Artifact {
                task_id: task_id.clone(),
                run_id,
                name: name.parse().ok()?,
                content_type: TEXT.to_owned(),
                expires,
                created: call.now,
                content: Content::Log,
            })
        })
        .collect();
    let written = call.change("log_create", move |change| {
        for artifact in &artifacts {
            store::artifacts::insert(change.tx, artifact)?;
        }
        Ok::<_, StoreError>(())
    });
    Ok(written.await?)
}

fn offset(call: &Call) -> Result<Option<u64>, ApiError> {
    call.query("offset")
        .map(|digits| digits.parse())
        .transpose()
        .map_err(|_| ApiError::input("`offset` is larger than any log"))
}

/// Files block, so a thread that may be blocked looks at them.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    Ok(done.map_err(std::io::Error::other)?)
}

/// A worker whose run was taken from it (cancelled, say) learns it here first.
fn answer(state: &LogState, is_running: bool) -> Result<Reply, ApiError> {
    Reply::json(&json!({
        "length": state.length,
        "finished": state.is_finished,
        "truncated": state.is_cut,
        "running": is_running,
    }))
}
