//! The endpoints of tasks, in the order in which they are declared.

use access::scope::Template::{self, AllOf, AnyOf, For, Scope};

use super::super::endpoint::Verb::{Get, Post, Put};
use super::super::endpoint::{Endpoint, Handler, Query, Service, Verb};
use super::super::worker_manager::{LIMIT, MONITORING, TOKEN, monitoring};
use super::{changes, claims, counts, create, groups, reports, tasks};

const TASK: &str = "Tasks";
const GROUPS: &str = "Task Groups";
const INTERFACE: &str = "Worker Interface";
const METADATA: &str = "Worker Metadata";
const PAGING: &[Query] = &[TOKEN, LIMIT];
const STATUS: &str = "task-status-response.json";
const GROUP: &str = "task-group-response.json";

const fn on(name: &'static str, method: Verb, route: &'static str, handler: Handler) -> Endpoint {
    Endpoint::new(Service::Queue, name, method, route, handler)
}

const CREATE: &[Template] = &[
    For {
        variable: "scope",
        list: "scopes",
        each: "<scope>",
    },
    For {
        variable: "route",
        list: "routes",
        each: "queue:route:<route>",
    },
    Scope("queue:create-task:project:<projectId>"),
    Scope("queue:scheduler-id:<schedulerId>"),
    AnyOf(&[For {
        variable: "priority",
        list: "priorities",
        each: "queue:create-task:<priority>:<provisionerId>/<workerType>",
    }]),
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
    For {
        variable: "taskQueueId",
        list: "taskQueueIds",
        each: "queue:pending-count:<taskQueueId>",
    },
    For {
        variable: "taskQueueId",
        list: "taskQueueIds",
        each: "queue:claimed-count:<taskQueueId>",
    },
];

/// From creating tasks to the reports of workers.
pub(super) const TASKS: &[Endpoint] = &[
    on("ping", Get, "/ping", |call| {
        Box::pin(monitoring::ping(call))
    })
    .about(
        MONITORING,
        "Ping the service",
        "Answers at once if the service is alive, with its uptime in seconds.",
    ),
    on("lbheartbeat", Get, "/__lbheartbeat__", |call| {
        Box::pin(monitoring::heartbeat(call))
    })
    .about(
        MONITORING,
        "Heartbeat for load balancers",
        "Answers 200 while the service serves requests.",
    ),
    on("version", Get, "/__version__", |call| {
        Box::pin(monitoring::version(call))
    })
    .about(
        MONITORING,
        "Version of the service",
        "The running version and the commit that it was built from.",
    ),
    on("task", Get, "/task/<taskId>", |call| {
        Box::pin(tasks::task(call))
    })
    .output("task.json")
    .scopes(Scope("queue:get-task:<taskId>"))
    .about(
        TASK,
        "Show a task",
        "The definition of a task, with defaults filled in and with its current priority.",
    ),
    on("tasks", Post, "/tasks", |call| Box::pin(tasks::tasks(call)))
        .query(PAGING)
        .input("tasks-request.json")
        .output("tasks-response.json")
        .scopes(AllOf(&[For {
            variable: "taskId",
            list: "taskIds",
            each: "queue:get-task:<taskId>",
        }]))
        .experimental()
        .about(
            TASK,
            "Show several tasks",
            "The definitions of the tasks. Tasks that do not exist are omitted.",
        ),
    on("statuses", Post, "/tasks/status", |call| {
        Box::pin(tasks::statuses(call))
    })
    .query(PAGING)
    .input("tasks-request.json")
    .output("tasks-statuses-response.json")
    .scopes(AllOf(&[For {
        variable: "taskId",
        list: "taskIds",
        each: "queue:status:<taskId>",
    }]))
    .experimental()
    .about(
        TASK,
        "Show the status of several tasks",
        "The statuses of the tasks. Tasks that do not exist are omitted.",
    ),
    on("status", Get, "/task/<taskId>/status", |call| {
        Box::pin(tasks::status(call))
    })
    .output(STATUS)
    .scopes(Scope("queue:status:<taskId>"))
    .about(
        TASK,
        "Show the status of a task",
        "The state of a task and of each of its runs.",
    ),
    on(
        "listTaskGroup",
        Get,
        "/task-group/<taskGroupId>/list",
        |call| Box::pin(groups::list(call)),
    )
    .query(PAGING)
    .output("list-task-group-response.json")
    .scopes(Scope("queue:list-task-group:<taskGroupId>"))
    .about(
        GROUPS,
        "List the tasks of a group",
        "Every task of the group with its status, by id.",
    ),
    on(
        "cancelTaskGroup",
        Post,
        "/task-group/<taskGroupId>/cancel",
        |call| Box::pin(groups::cancel(call)),
    )
    .output("cancel-task-group-response.json")
    .scopes(Scope("queue:cancel-task-group:<schedulerId>/<taskGroupId>"))
    .experimental()
    .about(
        TASK,
        "Cancel a group",
        "Cancels all unresolved tasks of the group. The group must be sealed, because others \
         could add tasks meanwhile.",
    ),
    on("getTaskGroup", Get, "/task-group/<taskGroupId>", |call| {
        Box::pin(groups::show(call))
    })
    .output(GROUP)
    .scopes(Scope("queue:list-task-group:<taskGroupId>"))
    .about(
        GROUPS,
        "Show a group",
        "The group's scheduler, and whether the group is sealed.",
    ),
    on(
        "sealTaskGroup",
        Post,
        "/task-group/<taskGroupId>/seal",
        |call| Box::pin(groups::seal(call)),
    )
    .output(GROUP)
    .scopes(Scope("queue:seal-task-group:<schedulerId>/<taskGroupId>"))
    .experimental()
    .about(
        GROUPS,
        "Seal a group",
        "From then on, no task can be added to the group. A group cannot be opened again. Sealing \
         it again changes nothing.",
    ),
    on(
        "listDependentTasks",
        Get,
        "/task/<taskId>/dependents",
        |call| Box::pin(tasks::dependents(call)),
    )
    .query(PAGING)
    .output("list-dependent-tasks-response.json")
    .scopes(Scope("queue:list-dependent-tasks:<taskId>"))
    .about(
        TASK,
        "List the dependents of a task",
        "The tasks that depend on this task, with their statuses, by id.",
    ),
    on("createTask", Put, "/task/<taskId>", |call| {
        Box::pin(create::create(call))
    })
    .input("create-task-request.json")
    .output(STATUS)
    .scopes(AllOf(CREATE))
    .about(
        TASK,
        "Create a task",
        "Creates a task under an id that the caller chose. It is pending at once, or as soon \
             as its dependencies are resolved. The same request again gets the same answer; \
             another task of this id is a conflict.",
    ),
    on("scheduleTask", Post, "/task/<taskId>/schedule", |call| {
        Box::pin(changes::schedule(call))
    })
    .output(STATUS)
    .scopes(AnyOf(SCHEDULE))
    .about(
        TASK,
        "Schedule a task",
        "Makes an unscheduled task pending, whatever its dependencies. A task that was scheduled \
         before does not change.",
    ),
    on("rerunTask", Post, "/task/<taskId>/rerun", |call| {
        Box::pin(changes::rerun(call))
    })
    .output(STATUS)
    .scopes(AnyOf(RERUN))
    .about(
        TASK,
        "Rerun a task",
        "Adds a run to a resolved task, even if it was completed, and restores its retries. \
             An unresolved task does not change.",
    ),
    on("cancelTask", Post, "/task/<taskId>/cancel", |call| {
        Box::pin(changes::cancel(call))
    })
    .output(STATUS)
    .scopes(AnyOf(CANCEL))
    .about(
        TASK,
        "Cancel a task",
        "Resolves a pending or running task as an exception. Its worker learns it when it \
             reclaims the run. A resolved task does not change.",
    ),
    on(
        "changeTaskPriority",
        Post,
        "/task/<taskId>/priority",
        |call| Box::pin(changes::change_priority(call)),
    )
    .input("change-task-priority-request.json")
    .output(STATUS)
    .scopes(AnyOf(PRIORITY))
    .experimental()
    .about(
        TASK,
        "Change the priority of a task",
        "Moves an unresolved task before or behind others. Among tasks of equal priority it keeps \
         its place.",
    ),
    on(
        "changeTaskGroupPriority",
        Post,
        "/task-group/<taskGroupId>/priority",
        |call| Box::pin(groups::change_priority(call)),
    )
    .input("change-task-priority-request.json")
    .output("task-group-priority-change-response.json")
    .scopes(Scope(
        "queue:change-task-group-priority:<schedulerId>/<taskGroupId>",
    ))
    .experimental()
    .about(
        "Task-Groups",
        "Change the priority of a group",
        "Gives every unresolved task of the group a new priority.",
    ),
    on("claimWork", Post, "/claim-work/<taskQueueId>", |call| {
        Box::pin(claims::claim_work(call))
    })
    .wildcard("taskQueueId")
    .input("claim-work-request.json")
    .output("claim-work-response.json")
    .scopes(AllOf(&[Scope("queue:claim-work:<taskQueueId>"), WORKER]))
    .about(
        INTERFACE,
        "Claim tasks",
        "Answers as soon as at least one task is available for the worker, or after 20 \
             seconds with none. Each claim lasts until `takenUntil`. A worker that needs longer \
             reclaims the run before then.",
    ),
    on(
        "claimTask",
        Post,
        "/task/<taskId>/runs/<runId>/claim",
        |call| Box::pin(claims::claim_task(call)),
    )
    .input("task-claim-request.json")
    .output("task-claim-response.json")
    .scopes(AllOf(&[
        Scope("queue:claim-task:<provisionerId>/<workerType>"),
        WORKER,
    ]))
    .deprecated()
    .about(
        INTERFACE,
        "Claim one task",
        "Claims a run that the worker names. Workers usually call `claimWork`.",
    ),
    on(
        "reclaimTask",
        Post,
        "/task/<taskId>/runs/<runId>/reclaim",
        |call| Box::pin(claims::reclaim(call)),
    )
    .output("task-reclaim-response.json")
    .scopes(Scope("queue:reclaim-task:<taskId>/<runId>"))
    .about(
        INTERFACE,
        "Keep a claim",
        "Extends the worker's claim and returns new credentials. A conflict means that the claim \
         has ended: the task was cancelled, the claim expired, or the deadline passed.",
    ),
    on(
        "reportCompleted",
        Post,
        "/task/<taskId>/runs/<runId>/completed",
        |call| Box::pin(reports::completed(call)),
    )
    .output(STATUS)
    .scopes(Scope("queue:resolve-task:<taskId>/<runId>"))
    .about(
        INTERFACE,
        "Report success",
        "The run completed the task successfully.",
    ),
    on(
        "reportFailed",
        Post,
        "/task/<taskId>/runs/<runId>/failed",
        |call| Box::pin(reports::failed(call)),
    )
    .output(STATUS)
    .scopes(Scope("queue:resolve-task:<taskId>/<runId>"))
    .about(
        INTERFACE,
        "Report failure",
        "The run completed, and its result is a failure.",
    ),
    on(
        "reportException",
        Post,
        "/task/<taskId>/runs/<runId>/exception",
        |call| Box::pin(reports::exception(call)),
    )
    .input("task-exception-request.json")
    .output(STATUS)
    .scopes(Scope("queue:resolve-task:<taskId>/<runId>"))
    .about(
        INTERFACE,
        "Report an exception",
        "The run could not be completed. After `worker-shutdown` and `intermittent-task` the task \
         is retried while it has retries.",
    ),
];

/// Counts and lists of pending and claimed runs.
pub(super) const COUNTS: &[Endpoint] = &[
    on("pendingTasks", Get, "/pending/<taskQueueId>", |call| {
        Box::pin(counts::pending(call))
    })
    .wildcard("taskQueueId")
    .output("pending-tasks-response.json")
    .scopes(Scope("queue:pending-count:<taskQueueId>"))
    .deprecated()
    .about(
        METADATA,
        "Count pending tasks",
        "How many tasks of the queue wait for a worker; `taskQueueCounts` returns more.",
    ),
    on(
        "taskQueueCounts",
        Get,
        "/task-queues/<taskQueueId>/counts",
        |call| Box::pin(counts::counts(call)),
    )
    .wildcard("taskQueueId")
    .output("task-queue-counts-response.json")
    .scopes(AllOf(BOTH_COUNTS))
    .about(
        METADATA,
        "Count the tasks of a queue",
        "How many tasks wait for a worker, and how many are claimed.",
    ),
    on(
        "taskQueueCountsBatch",
        Post,
        "/task-queues/counts",
        |call| Box::pin(counts::batch(call)),
    )
    .input("task-queue-counts-request.json")
    .output("task-queue-counts-list-response.json")
    .scopes(AllOf(ALL_COUNTS))
    .experimental()
    .about(
        METADATA,
        "Count the tasks of several queues",
        "Counts for up to 1,000 queues. The caller needs the scopes for all of them.",
    ),
    on(
        "listPendingTasks",
        Get,
        "/task-queues/<taskQueueId>/pending",
        |call| Box::pin(counts::list_pending(call)),
    )
    .wildcard("taskQueueId")
    .query(PAGING)
    .output("list-pending-tasks-response.json")
    .scopes(Scope("queue:pending-list:<taskQueueId>"))
    .experimental()
    .about(
        METADATA,
        "List pending tasks",
        "The pending runs, in the order in which they will be claimed.",
    ),
    on(
        "listClaimedTasks",
        Get,
        "/task-queues/<taskQueueId>/claimed",
        |call| Box::pin(counts::list_claimed(call)),
    )
    .wildcard("taskQueueId")
    .query(PAGING)
    .output("list-claimed-tasks-response.json")
    .scopes(Scope("queue:claimed-list:<taskQueueId>"))
    .experimental()
    .about(
        METADATA,
        "List claimed tasks",
        "The claimed runs, the earliest claim first.",
    ),
];

pub(super) const HEARTBEAT: &[Endpoint] = &[on("heartbeat", Get, "/__heartbeat__", |call| {
    Box::pin(monitoring::heartbeat(call))
})
.about(MONITORING, "Heartbeat", "Answers 200 if the service works.")];
