//! The scopes that the endpoints of tasks need.

use http::Method;
use serde_json::json;

use crate::authorization::{Case, case, case_with};
use crate::world::World;

/// For every request but claims.
const ID: &str = "00000001QACAAAAAAAAAAA";
const NOW: &str = "2026-09-21T14:13:20.000Z";
const DEADLINE: &str = "2026-09-21T15:13:20.000Z";

/// Makes the tasks of the cases: one for each claim, because a claimed run cannot be claimed again.
pub(crate) async fn make_tasks(world: &World) {
    for number in 1..=3 {
        world
            .created(number, json!({"schedulerId": "s", "projectId": "p"}))
            .await;
    }
    // The first task is claimed here, so that runs can be reported.
    let body = json!({"workerGroup": "g", "workerId": "w"});
    let path = format!("queue:/task/{ID}/runs/0/claim");
    world.ask(Method::POST, &path).json(&body).await.expect(200);
}

fn read_cases() -> Vec<Case> {
    let both = json!({"taskIds": [ID]});
    vec![
        case(
            "task",
            "queue:/task/00000001QACAAAAAAAAAAA",
            &["queue:get-task:00000001QACAAAAAAAAAAA"],
        ),
        case_with(
            "tasks",
            "queue:/tasks",
            both.clone(),
            &["queue:get-task:00000001QACAAAAAAAAAAA"],
        ),
        case_with(
            "statuses",
            "queue:/tasks/status",
            both,
            &["queue:status:00000001QACAAAAAAAAAAA"],
        ),
        case(
            "status",
            "queue:/task/00000001QACAAAAAAAAAAA/status",
            &["queue:status:00000001QACAAAAAAAAAAA"],
        ),
        case(
            "listTaskGroup",
            "queue:/task-group/00000001QACAAAAAAAAAAA/list",
            &["queue:list-task-group:00000001QACAAAAAAAAAAA"],
        ),
        case(
            "getTaskGroup",
            "queue:/task-group/00000001QACAAAAAAAAAAA",
            &["queue:list-task-group:00000001QACAAAAAAAAAAA"],
        ),
        case(
            "listDependentTasks",
            "queue:/task/00000001QACAAAAAAAAAAA/dependents",
            &["queue:list-dependent-tasks:00000001QACAAAAAAAAAAA"],
        ),
        case(
            "pendingTasks",
            "queue:/pending/pp%2Fee",
            &["queue:pending-count:pp/ee"],
        ),
        case(
            "taskQueueCounts",
            "queue:/task-queues/pp%2Fee/counts",
            &["queue:pending-count:pp/ee", "queue:claimed-count:pp/ee"],
        ),
        case_with(
            "taskQueueCountsBatch",
            "queue:/task-queues/counts",
            json!({"taskQueueIds": ["pp/ee"]}),
            &["queue:pending-count:pp/ee", "queue:claimed-count:pp/ee"],
        ),
        case(
            "listPendingTasks",
            "queue:/task-queues/pp%2Fee/pending",
            &["queue:pending-list:pp/ee"],
        ),
        case(
            "listClaimedTasks",
            "queue:/task-queues/pp%2Fee/claimed",
            &["queue:claimed-list:pp/ee"],
        ),
    ]
}

fn change_cases() -> Vec<Case> {
    let task = json!({
        "taskQueueId": "pp/ee", "created": NOW, "deadline": DEADLINE, "payload": {},
        "schedulerId": "s", "projectId": "p", "scopes": ["x"], "routes": ["r"], "priority": "low",
        "metadata": {"name": "n", "description": "d", "owner": "o", "source": "https://x.example"},
    });
    let priority = json!({"newPriority": "high"});
    vec![
        case_with(
            "createTask",
            "queue:/task/00000009QACAAAAAAAAAAA",
            task,
            &[
                "x",
                "queue:route:r",
                "queue:create-task:project:p",
                "queue:scheduler-id:s",
                "queue:create-task:low:pp/ee",
            ],
        ),
        case(
            "scheduleTask",
            "queue:/task/00000001QACAAAAAAAAAAA/schedule",
            &["queue:schedule-task:s/00000001QACAAAAAAAAAAA/00000001QACAAAAAAAAAAA"],
        ),
        case(
            "scheduleTask",
            "queue:/task/00000001QACAAAAAAAAAAA/schedule",
            &[
                "queue:schedule-task",
                "assume:scheduler-id:s/00000001QACAAAAAAAAAAA",
            ],
        ),
        case(
            "rerunTask",
            "queue:/task/00000001QACAAAAAAAAAAA/rerun",
            &["queue:rerun-task-in-project:p"],
        ),
        case(
            "cancelTask",
            "queue:/task/00000003QACAAAAAAAAAAA/cancel",
            &["queue:cancel-task-in-project:p"],
        ),
        case_with(
            "changeTaskPriority",
            "queue:/task/00000001QACAAAAAAAAAAA/priority",
            priority.clone(),
            &["queue:change-task-priority:00000001QACAAAAAAAAAAA"],
        ),
        case_with(
            "changeTaskPriority",
            "queue:/task/00000001QACAAAAAAAAAAA/priority",
            priority.clone(),
            &["queue:change-task-priority-in-queue:pp/ee"],
        ),
    ]
}

fn group_cases() -> Vec<Case> {
    let priority = json!({"newPriority": "high"});
    vec![
        case_with(
            "changeTaskGroupPriority",
            "queue:/task-group/00000001QACAAAAAAAAAAA/priority",
            priority,
            &["queue:change-task-group-priority:s/00000001QACAAAAAAAAAAA"],
        ),
        case(
            "sealTaskGroup",
            "queue:/task-group/00000001QACAAAAAAAAAAA/seal",
            &["queue:seal-task-group:s/00000001QACAAAAAAAAAAA"],
        ),
        case(
            "cancelTaskGroup",
            "queue:/task-group/00000003QACAAAAAAAAAAA/cancel",
            &["queue:cancel-task-group:s/00000003QACAAAAAAAAAAA"],
        ),
    ]
}

fn worker_cases() -> Vec<Case> {
    let worker = json!({"workerGroup": "g", "workerId": "w"});
    let resolve: &[&str] = &["queue:resolve-task:00000001QACAAAAAAAAAAA/0"];
    vec![
        case_with(
            "claimWork",
            "queue:/claim-work/pp%2Fee",
            worker.clone(),
            &["queue:claim-work:pp/ee", "queue:worker-id:g/w"],
        ),
        case_with(
            "claimTask",
            "queue:/task/00000001QACAAAAAAAAAAA/runs/0/claim",
            worker,
            &["queue:claim-task:pp/ee", "queue:worker-id:g/w"],
        ),
        case(
            "reclaimTask",
            "queue:/task/00000001QACAAAAAAAAAAA/runs/0/reclaim",
            &["queue:reclaim-task:00000001QACAAAAAAAAAAA/0"],
        ),
        case(
            "reportCompleted",
            "queue:/task/00000001QACAAAAAAAAAAA/runs/0/completed",
            resolve,
        ),
        case(
            "reportFailed",
            "queue:/task/00000001QACAAAAAAAAAAA/runs/0/failed",
            resolve,
        ),
        case_with(
            "reportException",
            "queue:/task/00000001QACAAAAAAAAAAA/runs/0/exception",
            json!({"reason": "internal-error"}),
            resolve,
        ),
    ]
}

pub(crate) fn task_cases() -> Vec<Case> {
    [read_cases(), change_cases(), group_cases(), worker_cases()]
        .into_iter()
        .flatten()
        .collect()
}
