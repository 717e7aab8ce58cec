//! Workers report the results of runs.

use domain::id::TaskId;
use domain::task::{EndReason, ExceptionReason, Task, Transition, TransitionError};
use domain::time::Timestamp;
use serde::Deserialize;

use super::changes::moved;
use super::{run_id, status_reply};
use crate::api::{call::Call, error::ApiError, reply::Reply};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExceptionBody {
    reason: EndReason,
}

/// A body `{"success": false}` means that the run failed; old workers send it.
pub(super) async fn completed(call: Call) -> Result<Reply, ApiError> {
    let success = call.body["success"] != false;
    report(call, move |task, run_id, now| {
        task.report(run_id, success, now)
    })
    .await
}

pub(super) async fn failed(call: Call) -> Result<Reply, ApiError> {
    report(call, |task, run_id, now| task.report(run_id, false, now)).await
}

pub(super) async fn exception(call: Call) -> Result<Reply, ApiError> {
    let ExceptionBody { reason } = call.body()?;
    let reason = reason_of_worker(reason)?;
    report(call, move |task, run_id, now| {
        task.report_exception(run_id, reason, now)
    })
    .await
}

async fn report(
    call: Call,
    step: impl Fn(Task, u32, Timestamp) -> Result<Transition, TransitionError> + Send + 'static,
) -> Result<Reply, ApiError> {
    let (id, run_id) = (call.id::<TaskId>("taskId")?, run_id(&call)?);
    let step = move |task: Task, now| step(task, run_id, now);
    status_reply(&moved(&call, id, step).await?)
}

/// The other reasons are set by the queue only.
fn reason_of_worker(reason: EndReason) -> Result<ExceptionReason, ApiError> {
    match reason {
        EndReason::WorkerShutdown => Ok(ExceptionReason::WorkerShutdown),
        EndReason::MalformedPayload => Ok(ExceptionReason::MalformedPayload),
        EndReason::ResourceUnavailable => Ok(ExceptionReason::ResourceUnavailable),
        EndReason::InternalError => Ok(ExceptionReason::InternalError),
        EndReason::IntermittentTask => Ok(ExceptionReason::IntermittentTask),
        EndReason::Completed
        | EndReason::Failed
        | EndReason::DeadlineExceeded
        | EndReason::Canceled
        | EndReason::ClaimExpired
        | EndReason::Superseded => Err(ApiError::input(
            "`reason` must be a reason that workers may report, such as `malformed-payload`",
        )),
    }
}
