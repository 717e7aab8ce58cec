//! Metrics of Taskcluster's services that have no other name here (`metrics.taskcluster_names`).

use domain::id::PoolId;
use domain::run_outcome::RunOutcome;
use domain::task::TaskState;
use metrics::counter;

pub const PENDING_TASKS: &str = "worker_manager_pending_tasks";
pub const CLAIMED_TASKS: &str = "worker_manager_claimed_tasks";
pub const DESIRED_CAPACITY: &str = "worker_manager_desired_capacity";
pub const ADJUSTED_PENDING_TASKS: &str = "worker_manager_adjusted_pending_tasks";
pub const TOTAL_IDLE_CAPACITY: &str = "worker_manager_total_idle_capacity";
pub const SCAN_SEEN: &str = "worker_manager_worker_pool_scan_seen_workers";
pub const SCAN_ERRORS: &str = "worker_manager_worker_pool_scan_errors";
pub const TERMINATING: &str = "worker_manager_workers_to_terminate";
pub const QUEUE_PENDING: &str = "queue_pending_tasks";
pub const QUEUE_CLAIMED: &str = "queue_claimed_tasks";
pub const QUEUE_COMPLETED: &str = "queue_completed_tasks";
pub const QUEUE_FAILED: &str = "queue_failed_tasks";
pub const QUEUE_EXCEPTION: &str = "queue_exception_tasks";
pub const QUEUE_WORKERS: &str = "queue_workers_total";
pub const QUEUE_RUNNING: &str = "queue_running_workers";
pub const QUEUE_IDLE: &str = "queue_idle_workers";
pub const QUEUE_QUARANTINED: &str = "queue_quarantined_workers";

/// The labels of a task queue.
pub fn of_queue(queue: &PoolId) -> Vec<(&'static str, String)> {
    let (provisioner, worker_type) = queue.as_str().split_once('/').unwrap_or_default();
    vec![
        ("provisionerId", provisioner.to_owned()),
        ("workerType", worker_type.to_owned()),
    ]
}

/// Counts a run that has ended.
pub fn count_outcome(outcome: &RunOutcome) {
    let mut labels = of_queue(&outcome.worker.pool_id);
    let name = match outcome.reason.state() {
        TaskState::Failed => QUEUE_FAILED,
        TaskState::Exception => QUEUE_EXCEPTION,
        TaskState::Completed | TaskState::Unscheduled | TaskState::Pending | TaskState::Running => {
            QUEUE_COMPLETED
        }
    };
    if name != QUEUE_COMPLETED {
        labels.push(("reasonResolved", outcome.reason.to_string()));
    }
    counter!(name, &labels).increment(1);
}
