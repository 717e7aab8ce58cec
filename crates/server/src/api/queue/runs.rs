//! Finds the run that a request about files means.

use domain::artifact::ArtifactName;
use domain::id::TaskId;
use domain::task::Run;
use engine::artifacts::ArtifactError;
use store::tasks::TaskRuns;

use crate::api::{call::Call, error::ApiError};

/// The run in the route. The pattern allows numbers that no run has.
pub(super) fn run_id(call: &Call) -> Option<u32> {
    call.parameter("runId").parse().ok()
}

pub(super) fn name(call: &Call) -> Result<ArtifactName, ApiError> {
    let name = call.parameter("name").parse();
    name.map_err(|bad: domain::artifact::BadArtifactName| ApiError::input(format!("{bad}")))
}

pub(super) async fn runs_of(call: &Call, task_id: &TaskId) -> Result<TaskRuns, ApiError> {
    let id = task_id.clone();
    let read = call.read("task_runs", move |tx| store::tasks::get_runs(tx, &id));
    Ok(read.await?.ok_or(ArtifactError::NoSuchTask)?)
}

/// The number of the last run.
pub(super) fn latest(runs: &TaskRuns) -> Result<u32, ApiError> {
    runs.latest()
        .ok_or_else(|| ApiError::not_found("Task doesn't have any runs"))
}

/// The run in the route, which must exist.
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
