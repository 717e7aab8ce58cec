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

/// From the making of tasks to the reports of workers.
pub(super) const TASKS: &[Endpoint] = &[
    on("ping", Get, "/ping", |call| Box::pin(monitoring::ping(call))).about(
        MONITORING,
        "Ping the service",
        "Answers at once if the service is alive, with the seconds it has been up.",
    ),
    on("lbheartbeat", Get, "/__lbheartbeat__", |call| Box::pin(monitoring::heartbeat(call))).about(
        MONITORING,
        "Heartbeat for load balancers",
        "Answers 200 as long as requests are being served.",
    ),
    on("version", Get, "/__version__", |call| Box::pin(monitoring::version(call))).about(
        MONITORING,
        "Version of the service",
        "Which version is running, built from which commit.",
    ),
    on("task", Get, "/task/<taskId>", |call| Box::pin(tasks::task(call)))
        .output("task.json")
        .scopes(Scope("queue:get-task:<taskId>"))
        .about(
            TASK,
            "Show a task",
            "What a task is. What its author left out is filled in; the priority is that of now.",
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
            "What each of the tasks is. Those that do not exist are left out.",
        ),
    on("statuses", Post, "/tasks/status", |call| Box::pin(tasks::statuses(call)))
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
            "Show where several tasks stand",
            "Where each of the tasks stands. Those that do not exist are left out.",
        ),
    on("status", Get, "/task/<taskId>/status", |call| Box::pin(tasks::status(call)))
        .output(STATUS)
        .scopes(Scope("queue:status:<taskId>"))
        .about(TASK, "Show where a task stands", "The state of a task and of each of its runs."),
    on("listTaskGroup", Get, "/task-group/<taskGroupId>/list", |call| {
        Box::pin(groups::list(call))
    })
    .query(PAGING)
    .output("list-task-group-response.json")
    .scopes(Scope("queue:list-task-group:<taskGroupId>"))
    .about(GROUPS, "List the tasks of a group", "Every task of the group with its status, by id."),
    on("cancelTaskGroup", Post, "/task-group/<taskGroupId>/cancel", |call| {
        Box::pin(groups::cancel(call))
    })
    .output("cancel-task-group-response.json")
    .scopes(Scope("queue:cancel-task-group:<schedulerId>/<taskGroupId>"))
    .experimental()
    .about(
        TASK,
        "Cancel what is left of a group",
        "Cancels every task of the group that is not resolved. The group must be sealed, or others \
         could be added meanwhile.",
    ),
    on("getTaskGroup", Get, "/task-group/<taskGroupId>", |call| Box::pin(groups::show(call)))
        .output(GROUP)
        .scopes(Scope("queue:list-task-group:<taskGroupId>"))
        .about(GROUPS, "Show a group", "Who answers for the group, and whether it is sealed."),
    on("sealTaskGroup", Post, "/task-group/<taskGroupId>/seal", |call| {
        Box::pin(groups::seal(call))
    })
    .output(GROUP)
    .scopes(Scope("queue:seal-task-group:<schedulerId>/<taskGroupId>"))
    .experimental()
    .about(
        GROUPS,
        "Seal a group",
        "From now on the group takes no further tasks. There is no way back; sealing again changes \
         nothing.",
    ),
    on("listDependentTasks", Get, "/task/<taskId>/dependents", |call| {
        Box::pin(tasks::dependents(call))
    })
    .query(PAGING)
    .output("list-dependent-tasks-response.json")
    .scopes(Scope("queue:list-dependent-tasks:<taskId>"))
    .about(
        TASK,
        "List who waits for a task",
        "Every task that waits, or waited, for this one, with its status, by id.",
    ),
    on("createTask", Put, "/task/<taskId>", |call| Box::pin(create::create(call)))
        .input("create-task-request.json")
        .output(STATUS)
        .scopes(AllOf(CREATE))
        .about(
            TASK,
            "Create a task",
            "Makes a task under an id that the caller chose. It is pending at once, or as soon as \
             what it depends on is done. The same request again is answered as the first was; \
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
        "Makes an unscheduled task pending, whatever it still depends on. A task that has been \
         scheduled stays as it is.",
    ),
    on("rerunTask", Post, "/task/<taskId>/rerun", |call| Box::pin(changes::rerun(call)))
        .output(STATUS)
        .scopes(AnyOf(RERUN))
        .about(
            TASK,
            "Run a task again",
            "Makes another run of a resolved task, also of one that was completed, with all its \
             retries. A task that is not resolved stays as it is.",
        ),
    on("cancelTask", Post, "/task/<taskId>/cancel", |call| Box::pin(changes::cancel(call)))
        .output(STATUS)
        .scopes(AnyOf(CANCEL))
        .about(
            TASK,
            "Cancel a task",
            "Ends a task as an exception, whether it waits or runs; its worker hears of it when it \
             reclaims the run. A resolved task stays as it is.",
        ),
    on("changeTaskPriority", Post, "/task/<taskId>/priority", |call| {
        Box::pin(changes::change_priority(call))
    })
    .input("change-task-priority-request.json")
    .output(STATUS)
    .scopes(AnyOf(PRIORITY))
    .experimental()
    .about(
        TASK,
        "Change the priority of a task",
        "Puts a task that is not resolved before or behind others. Among equals it keeps its place.",
    ),
    on("changeTaskGroupPriority", Post, "/task-group/<taskGroupId>/priority", |call| {
        Box::pin(groups::change_priority(call))
    })
    .input("change-task-priority-request.json")
    .output("task-group-priority-change-response.json")
    .scopes(Scope("queue:change-task-group-priority:<schedulerId>/<taskGroupId>"))
    .experimental()
    .about(
        "Task-Groups",
        "Change the priority of a group",
        "Gives every task of the group that is not resolved a new priority.",
    ),
    on("claimWork", Post, "/claim-work/<taskQueueId>", |call| Box::pin(claims::claim_work(call)))
        .wildcard("taskQueueId")
        .input("claim-work-request.json")
        .output("claim-work-response.json")
        .scopes(AllOf(&[Scope("queue:claim-work:<taskQueueId>"), WORKER]))
        .about(
            INTERFACE,
            "Claim tasks",
            "Answers as soon as there is at least one task for the worker, and after 20 seconds \
             with none. Each claim lasts until `takenUntil`; a worker that needs longer reclaims \
             the run before.",
        ),
    on("claimTask", Post, "/task/<taskId>/runs/<runId>/claim", |call| {
        Box::pin(claims::claim_task(call))
    })
    .input("task-claim-request.json")
    .output("task-claim-response.json")
    .scopes(AllOf(&[Scope("queue:claim-task:<provisionerId>/<workerType>"), WORKER]))
    .deprecated()
    .about(
        INTERFACE,
        "Claim one task",
        "Claims a run that the worker knows by name. Workers ask with `claimWork`.",
    ),
    on("reclaimTask", Post, "/task/<taskId>/runs/<runId>/reclaim", |call| {
        Box::pin(claims::reclaim(call))
    })
    .output("task-reclaim-response.json")
    .scopes(Scope("queue:reclaim-task:<taskId>/<runId>"))
    .about(
        INTERFACE,
        "Keep a claim",
        "The worker keeps the run for longer, and gets new credentials for it. A conflict means \
         that the run is not its own any more: it was cancelled, its claim ran out, or its deadline \
         has passed.",
    ),
    on("reportCompleted", Post, "/task/<taskId>/runs/<runId>/completed", |call| {
        Box::pin(reports::completed(call))
    })
    .output(STATUS)
    .scopes(Scope("queue:resolve-task:<taskId>/<runId>"))
    .about(INTERFACE, "Report success", "The run did what the task asked for."),
    on("reportFailed", Post, "/task/<taskId>/runs/<runId>/failed", |call| {
        Box::pin(reports::failed(call))
    })
    .output(STATUS)
    .scopes(Scope("queue:resolve-task:<taskId>/<runId>"))
    .about(INTERFACE, "Report failure", "The run did what it could, and the result is bad."),
    on("reportException", Post, "/task/<taskId>/runs/<runId>/exception", |call| {
        Box::pin(reports::exception(call))
    })
    .input("task-exception-request.json")
    .output(STATUS)
    .scopes(Scope("queue:resolve-task:<taskId>/<runId>"))
    .about(
        INTERFACE,
        "Report an exception",
        "The run could not be carried out. After `worker-shutdown` and `intermittent-task` the task \
         is tried again while it has retries.",
    ),
];

/// How much work waits and runs.
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
        "How many tasks of the queue wait for a worker; `taskQueueCounts` tells more.",
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
        "How many tasks wait for a worker, and how many are being worked on.",
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
        "The same for up to 1,000 queues. The caller must be allowed to count all of them.",
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
        "The runs that wait for a worker, in the order in which they will be claimed.",
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
        "The runs that workers are busy with, those that were claimed first in front.",
    ),
];

pub(super) const HEARTBEAT: &[Endpoint] = &[on("heartbeat", Get, "/__heartbeat__", |call| {
    Box::pin(monitoring::heartbeat(call))
})
.about(MONITORING, "Heartbeat", "Answers 200 if the service works.")];
