//! The endpoints of tasks, in the order in which they are declared.

use access::scope::Template::{self, AllOf, AnyOf, Scope};

use super::{changes, claims, counts, create, groups, on, reports, tasks};
use crate::api::endpoint::Verb::{Get, Post, Put};
use crate::api::endpoint::{Endpoint, PAGING, each};

const TASK: &str = "Tasks";
const GROUPS: &str = "Task Groups";
const INTERFACE: &str = "Worker Interface";
const METADATA: &str = "Worker Metadata";
const STATUS: &str = "task-status-response.json";
const GROUP: &str = "task-group-response.json";

const CREATE: &[Template] = &[
    each("scope", "scopes", "<scope>"),
    each("route", "routes", "queue:route:<route>"),
    Scope("queue:create-task:project:<projectId>"),
    Scope("queue:scheduler-id:<schedulerId>"),
    AnyOf(&[each(
        "priority",
        "priorities",
        "queue:create-task:<priority>:<provisionerId>/<workerType>",
    )]),
];
const OF_SCHEDULER: Template = Scope("assume:scheduler-id:<schedulerId>/<taskGroupId>");
const SCHEDULE: &[Template] = &[
    Scope("queue:schedule-task:<schedulerId>/<taskGroupId>/<taskId>"),
    Scope("queue:schedule-task-in-project:<projectId>"),
    AllOf(&[Scope("queue:schedule-task"), OF_SCHEDULER]),
];
const RERUN: &[Template] = &[
    Scope("queue:rerun-task:<schedulerId>/<taskGroupId>/<taskId>"),
    Scope("queue:rerun-task-in-project:<projectId>"),
    AllOf(&[Scope("queue:rerun-task"), OF_SCHEDULER]),
];
const CANCEL: &[Template] = &[
    Scope("queue:cancel-task:<schedulerId>/<taskGroupId>/<taskId>"),
    Scope("queue:cancel-task-in-project:<projectId>"),
    AllOf(&[Scope("queue:cancel-task"), OF_SCHEDULER]),
];
const PRIORITY: &[Template] = &[
    Scope("queue:change-task-priority:<taskId>"),
    Scope("queue:change-task-priority-in-queue:<taskQueueId>"),
];
const WORKER: Template = Scope("queue:worker-id:<workerGroup>/<workerId>");
const BOTH_COUNTS: &[Template] = &[
    Scope("queue:pending-count:<taskQueueId>"),
    Scope("queue:claimed-count:<taskQueueId>"),
];
const ALL_COUNTS: &[Template] = &[
    each(
        "taskQueueId",
        "taskQueueIds",
        "queue:pending-count:<taskQueueId>",
    ),
    each(
        "taskQueueId",
        "taskQueueIds",
        "queue:claimed-count:<taskQueueId>",
    ),
];

/// From creating tasks to the reports of workers.
pub(in crate::api) const TASKS: &[Endpoint] = &[
    on("task", Get, "/task/<taskId>")
        .runs(|call| Box::pin(tasks::task(call)))
        .output("task.json")
        .scope("queue:get-task:<taskId>")
        .about(TASK, "Show a task")
        .describe(
            "The definition of a task, with defaults filled in and with its current priority.",
        ),
    on("tasks", Post, "/tasks")
        .runs(|call| Box::pin(tasks::tasks(call)))
        .query(PAGING)
        .input("tasks-request.json")
        .output("tasks-response.json")
        .scopes(AllOf(&[each(
            "taskId",
            "taskIds",
            "queue:get-task:<taskId>",
        )]))
        .experimental()
        .about(TASK, "Show several tasks")
        .describe("The definitions of the tasks. Tasks that do not exist are omitted."),
    on("statuses", Post, "/tasks/status")
        .runs(|call| Box::pin(tasks::statuses(call)))
        .query(PAGING)
        .input("tasks-request.json")
        .output("tasks-statuses-response.json")
        .scopes(AllOf(&[each("taskId", "taskIds", "queue:status:<taskId>")]))
        .experimental()
        .about(TASK, "Show the status of several tasks")
        .describe("The statuses of the tasks. Tasks that do not exist are omitted."),
    on("status", Get, "/task/<taskId>/status")
        .runs(|call| Box::pin(tasks::status(call)))
        .output(STATUS)
        .scope("queue:status:<taskId>")
        .about(TASK, "Show the status of a task")
        .describe("The state of a task and of each of its runs."),
    on("listTaskGroup", Get, "/task-group/<taskGroupId>/list")
        .runs(|call| Box::pin(groups::list(call)))
        .query(PAGING)
        .output("list-task-group-response.json")
        .scope("queue:list-task-group:<taskGroupId>")
        .about(GROUPS, "List the tasks of a group")
        .describe("Every task of the group with its status, by id."),
    on("cancelTaskGroup", Post, "/task-group/<taskGroupId>/cancel")
        .runs(|call| Box::pin(groups::cancel(call)))
        .output("cancel-task-group-response.json")
        .scope("queue:cancel-task-group:<schedulerId>/<taskGroupId>")
        .experimental()
        .about(TASK, "Cancel a group")
        .describe(
            "Cancels all unresolved tasks of the group. The group must be sealed, because others \
             could add tasks meanwhile.",
        ),
    on("getTaskGroup", Get, "/task-group/<taskGroupId>")
        .runs(|call| Box::pin(groups::show(call)))
        .output(GROUP)
        .scope("queue:list-task-group:<taskGroupId>")
        .about(GROUPS, "Show a group")
        .describe("The group's scheduler, and whether the group is sealed."),
    on("sealTaskGroup", Post, "/task-group/<taskGroupId>/seal")
        .runs(|call| Box::pin(groups::seal(call)))
        .output(GROUP)
        .scope("queue:seal-task-group:<schedulerId>/<taskGroupId>")
        .experimental()
        .about(GROUPS, "Seal a group")
        .describe(
            "From then on, no task can be added to the group. A group cannot be opened again. \
             Sealing it again changes nothing.",
        ),
    on("listDependentTasks", Get, "/task/<taskId>/dependents")
        .runs(|call| Box::pin(tasks::dependents(call)))
        .query(PAGING)
        .output("list-dependent-tasks-response.json")
        .scope("queue:list-dependent-tasks:<taskId>")
        .about(TASK, "List the dependents of a task")
        .describe("The tasks that depend on this task, with their statuses, by id."),
    on("createTask", Put, "/task/<taskId>")
        .runs(|call| Box::pin(create::create(call)))
        .input("create-task-request.json")
        .output(STATUS)
        .scopes(AllOf(CREATE))
        .about(TASK, "Create a task")
        .describe(
            "Creates a task under an id that the caller chose. It is pending at once, or as soon \
             as its dependencies are resolved. The same request again gets the same answer; \
             another task of this id is a conflict.",
        ),
    on("scheduleTask", Post, "/task/<taskId>/schedule")
        .runs(|call| Box::pin(changes::schedule(call)))
        .output(STATUS)
        .scopes(AnyOf(SCHEDULE))
        .about(TASK, "Schedule a task")
        .describe(
            "Makes an unscheduled task pending, whatever its dependencies. A task that was \
             scheduled before does not change.",
        ),
    on("rerunTask", Post, "/task/<taskId>/rerun")
        .runs(|call| Box::pin(changes::rerun(call)))
        .output(STATUS)
        .scopes(AnyOf(RERUN))
        .about(TASK, "Rerun a task")
        .describe(
            "Adds a run to a resolved task, even if it was completed, and restores its retries. An \
             unresolved task does not change.",
        ),
    on("cancelTask", Post, "/task/<taskId>/cancel")
        .runs(|call| Box::pin(changes::cancel(call)))
        .output(STATUS)
        .scopes(AnyOf(CANCEL))
        .about(TASK, "Cancel a task")
        .describe(
            "Resolves a pending or running task as an exception. Its worker learns it when it \
             reclaims the run. A resolved task does not change.",
        ),
    on("changeTaskPriority", Post, "/task/<taskId>/priority")
        .runs(|call| Box::pin(changes::change_priority(call)))
        .input("change-task-priority-request.json")
        .output(STATUS)
        .scopes(AnyOf(PRIORITY))
        .experimental()
        .about(TASK, "Change the priority of a task")
        .describe(
            "Moves an unresolved task before or behind others. Among tasks of equal priority it \
             keeps its place.",
        ),
    on(
        "changeTaskGroupPriority",
        Post,
        "/task-group/<taskGroupId>/priority",
    )
    .runs(|call| Box::pin(groups::change_priority(call)))
    .input("change-task-priority-request.json")
    .output("task-group-priority-change-response.json")
    .scope("queue:change-task-group-priority:<schedulerId>/<taskGroupId>")
    .experimental()
    .about("Task-Groups", "Change the priority of a group")
    .describe("Gives every unresolved task of the group a new priority."),
    on("claimWork", Post, "/claim-work/<taskQueueId>")
        .runs(|call| Box::pin(claims::claim_work(call)))
        .wildcard("taskQueueId")
        .input("claim-work-request.json")
        .output("claim-work-response.json")
        .scopes(AllOf(&[Scope("queue:claim-work:<taskQueueId>"), WORKER]))
        .about(INTERFACE, "Claim tasks")
        .describe(
            "Answers as soon as at least one task is available for the worker, or after 20 seconds \
             with none. Each claim lasts until `takenUntil`. A worker that needs longer reclaims \
             the run before then.",
        ),
    on("claimTask", Post, "/task/<taskId>/runs/<runId>/claim")
        .runs(|call| Box::pin(claims::claim_task(call)))
        .input("task-claim-request.json")
        .output("task-claim-response.json")
        .scopes(AllOf(&[
            Scope("queue:claim-task:<provisionerId>/<workerType>"),
            WORKER,
        ]))
        .deprecated()
        .about(INTERFACE, "Claim one task")
        .describe("Claims a run that the worker names. Workers usually call `claimWork`."),
    on("reclaimTask", Post, "/task/<taskId>/runs/<runId>/reclaim")
        .runs(|call| Box::pin(claims::reclaim(call)))
        .output("task-reclaim-response.json")
        .scope("queue:reclaim-task:<taskId>/<runId>")
        .about(INTERFACE, "Keep a claim")
        .describe(
            "Extends the worker's claim and returns new credentials. A conflict means that the \
             claim has ended: the task was cancelled, the claim expired, or the deadline passed.",
        ),
    on(
        "reportCompleted",
        Post,
        "/task/<taskId>/runs/<runId>/completed",
    )
    .runs(|call| Box::pin(reports::completed(call)))
    .output(STATUS)
    .scope("queue:resolve-task:<taskId>/<runId>")
    .about(INTERFACE, "Report success")
    .describe("The run completed the task successfully."),
    on("reportFailed", Post, "/task/<taskId>/runs/<runId>/failed")
        .runs(|call| Box::pin(reports::failed(call)))
        .output(STATUS)
        .scope("queue:resolve-task:<taskId>/<runId>")
        .about(INTERFACE, "Report failure")
        .describe("The run completed, and its result is a failure."),
    on(
        "reportException",
        Post,
        "/task/<taskId>/runs/<runId>/exception",
    )
    .runs(|call| Box::pin(reports::exception(call)))
    .input("task-exception-request.json")
    .output(STATUS)
    .scope("queue:resolve-task:<taskId>/<runId>")
    .about(INTERFACE, "Report an exception")
    .describe(
        "The run could not be completed. After `worker-shutdown` and `intermittent-task` the \
             task is retried while it has retries.",
    ),
];

/// Counts and lists of pending and claimed runs.
pub(in crate::api) const COUNTS: &[Endpoint] = &[
    on("pendingTasks", Get, "/pending/<taskQueueId>")
        .runs(|call| Box::pin(counts::pending(call)))
        .wildcard("taskQueueId")
        .output("pending-tasks-response.json")
        .scope("queue:pending-count:<taskQueueId>")
        .deprecated()
        .about(METADATA, "Count pending tasks")
        .describe("How many tasks of the queue wait for a worker; `taskQueueCounts` returns more."),
    on("taskQueueCounts", Get, "/task-queues/<taskQueueId>/counts")
        .runs(|call| Box::pin(counts::counts(call)))
        .wildcard("taskQueueId")
        .output("task-queue-counts-response.json")
        .scopes(AllOf(BOTH_COUNTS))
        .about(METADATA, "Count the tasks of a queue")
        .describe("How many tasks wait for a worker, and how many are claimed."),
    on("taskQueueCountsBatch", Post, "/task-queues/counts")
        .runs(|call| Box::pin(counts::batch(call)))
        .input("task-queue-counts-request.json")
        .output("task-queue-counts-list-response.json")
        .scopes(AllOf(ALL_COUNTS))
        .experimental()
        .about(METADATA, "Count the tasks of several queues")
        .describe("Counts for up to 1,000 queues. The caller needs the scopes for all of them."),
    on(
        "listPendingTasks",
        Get,
        "/task-queues/<taskQueueId>/pending",
    )
    .runs(|call| Box::pin(counts::list_pending(call)))
    .wildcard("taskQueueId")
    .query(PAGING)
    .output("list-pending-tasks-response.json")
    .scope("queue:pending-list:<taskQueueId>")
    .experimental()
    .about(METADATA, "List pending tasks")
    .describe("The pending runs, in the order in which they will be claimed."),
    on(
        "listClaimedTasks",
        Get,
        "/task-queues/<taskQueueId>/claimed",
    )
    .runs(|call| Box::pin(counts::list_claimed(call)))
    .wildcard("taskQueueId")
    .query(PAGING)
    .output("list-claimed-tasks-response.json")
    .scope("queue:claimed-list:<taskQueueId>")
    .experimental()
    .about(METADATA, "List claimed tasks")
    .describe("The claimed runs, the earliest claim first."),
];
