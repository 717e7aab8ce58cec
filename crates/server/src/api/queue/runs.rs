//! Which run a request about files means, and whether it may still leave something behind.

use domain::artifact::{ArtifactName, TakesNothing, author};
use domain::id::TaskId;
use domain::task::Run;
use engine::artifacts::Folder;
use store::tasks::TaskRuns;

use super::super::call::Call;
use super::super::error::ApiError;
use crate::app::App;

const ENDED: &str = "Artifacts cannot be created for a run after it has ended, unless it ended as \
     exception, and then for 25 minutes: what depends on the task may rely on its artifacts being \
     complete";
const NEVER_CLAIMED: &str = "No worker has claimed the run, so it cannot have artifacts";

pub(super) fn task_id(call: &Call) -> Result<TaskId, ApiError> {
    Ok(call.parameter("taskId").parse()?)
}

/// The run of the route. The pattern allows numbers that no run has.
pub(super) fn run_id(call: &Call) -> Option<u32> {
    call.parameter("runId").parse().ok()
}

pub(super) fn name(call: &Call) -> Result<ArtifactName, ApiError> {
    let name = call.parameter("name").parse();
    name.map_err(|bad: domain::artifact::BadArtifactName| ApiError::input(format!("{bad}")))
}

pub(super) async fn runs_of(call: &Call, task_id: &TaskId) -> Result<TaskRuns, ApiError> {
    let id = task_id.clone();
    let read = call
        .app
        .engine
        .store
        .read("task_runs", move |tx| store::tasks::get_runs(tx, &id));
    read.await?
        .ok_or_else(|| ApiError::not_found("Task not found"))
}

/// The number of the last run.
pub(super) fn latest(runs: &TaskRuns) -> Result<u32, ApiError> {
    runs.latest()
        .ok_or_else(|| ApiError::not_found("Task doesn't have any runs"))
}

/// The run that the route names, which must be there.
pub(super) fn known_run<'a>(
    call: &Call,
    task_id: &TaskId,
    runs: &'a TaskRuns,
) -> Result<(u32, &'a Run), ApiError> {
    let found = run_id(call).and_then(|run_id| Some((run_id, runs.run(run_id)?)));
    found.ok_or_else(|| {
        let run_id = call.parameter("runId");
        ApiError::not_found(format!("Task `{task_id}` has no run `{run_id}`"))
    })
}

/// Refuses what comes too late or too early.
pub(super) fn check_author(call: &Call, run: &Run) -> Result<(), ApiError> {
    author(run, call.now).map(drop).map_err(takes_nothing)
}

pub(super) fn takes_nothing(why: TakesNothing) -> ApiError {
    ApiError::conflict(match why {
        TakesNothing::NeverClaimed => NEVER_CLAIMED,
        TakesNothing::Ended => ENDED,
    })
}

pub(super) fn folder(app: &App) -> Result<&Folder, ApiError> {
    app.engine.artifacts.folder.as_ref().ok_or_else(|| {
        ApiError::input(
            "This server keeps no files of tasks: its configuration names no folder for them \
             (`data`, or `artifacts.folder`)",
        )
    })
}
