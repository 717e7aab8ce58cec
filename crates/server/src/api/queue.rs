//! The endpoints of the queue: tasks, claims, artifacts, logs and workers.

mod artifact_content;
mod artifact_paths;
mod artifacts;
mod changes;
mod claims;
mod counts;
mod create;
mod file_headers;
mod file_reply;
mod files;
mod files_table;
mod groups;
mod log;
mod log_stream;
mod provisioners;
mod public_artifacts;
mod quarantine;
mod reports;
mod runs;
mod signed_url;
mod task_queues;
mod tasks;
mod tasks_table;
mod views_table;
mod worker_views;

use domain::id::TaskId;
use domain::task::Task;
use engine::queue::TaskError;
use serde_json::json;

use super::call::Call;
use super::endpoint::{NewEndpoint, Service, Verb};
use super::error::ApiError;
use super::reply::Reply;

pub(super) use files_table::FILES;
pub(super) use public_artifacts::PUBLIC_ARTIFACT;
pub(super) use tasks_table::{COUNTS, TASKS};
pub(super) use views_table::{ARTIFACTS, PROVISIONERS, VIEWS};

const fn on(name: &'static str, method: Verb, route: &'static str) -> NewEndpoint {
    NewEndpoint::new(Service::Queue, name, method, route)
}

/// The task in the route.
async fn load(call: &Call) -> Result<Task, ApiError> {
    let id: TaskId = call.id("taskId")?;
    let named = id.clone();
    let read = call.read("task_get", move |tx| store::tasks::get(tx, &id));
    Ok(read.await?.ok_or(TaskError::NoSuchTask(named))?)
}

/// The run in the route. It may be any number.
fn run_id(call: &Call) -> Result<u32, ApiError> {
    let digits = call.parameter("runId");
    digits
        .parse()
        .map_err(|_| ApiError::not_found(format!("No task has a run {digits}")))
}

fn status_reply(task: &Task) -> Result<Reply, ApiError> {
    Reply::json(&json!({ "status": task.status() }))
}
