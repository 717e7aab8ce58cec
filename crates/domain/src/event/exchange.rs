//! The table of exchanges: from it come topics, routing keys and the published references.

/// One exchange of the contract.
#[derive(Debug, PartialEq, Eq)]
pub struct Exchange {
    /// `worker-manager`, `queue` or `auth`.
    pub service: &'static str,
    /// The method by which clients bind to it.
    pub name: &'static str,
    /// The last part of the exchange's name.
    pub exchange: &'static str,
    /// The file of the message's schema.
    pub schema: &'static str,
    pub key: RoutingKey,
    pub title: &'static str,
    pub description: &'static str,
}

/// The layouts of routing keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoutingKey {
    /// Kind, provider, pool, worker, launch config; `worker` says whether all but the last are sure.
    Worker { always: bool },
    /// Kind, task, run, worker, queue, group; says whether the run and the worker are sure.
    Task { run: bool, worker: bool },
    /// Kind, group, scheduler.
    TaskGroup,
    /// Nothing but the reserved word.
    Reserved,
}

/// One word of a routing key.
#[derive(Debug, PartialEq, Eq)]
pub struct KeyWord {
    pub name: &'static str,
    pub summary: &'static str,
    pub constant: Option<&'static str>,
    pub required: bool,
    pub multiple_words: bool,
    pub max_size: u32,
}

impl Exchange {
    /// The name on the broker.
    pub fn topic(&self) -> String {
        format!("exchange/taskcluster-{}/v1/{}", self.service, self.exchange)
    }
}

impl RoutingKey {
    pub fn words(self) -> Vec<KeyWord> {
        match self {
            Self::Reserved => vec![RESERVED],
            Self::Task { run, worker } => vec![
                PRIMARY,
                word("taskId", "The task.", true).of_size(22),
                word("runId", "The run, if the message is about one.", run).of_size(3),
                word("workerGroup", "Where the worker is.", worker),
                word("workerId", "The worker that claimed the run.", worker),
                word(
                    "provisionerId",
                    "The first half of the task queue id.",
                    true,
                ),
                word("workerType", "The second half of the task queue id.", true),
                word("schedulerId", "Who answers for the task group.", true),
                word("taskGroupId", "The group of the task.", true).of_size(22),
                RESERVED,
            ],
            Self::TaskGroup => vec![
                PRIMARY,
                word("taskGroupId", "The group.", true).of_size(22),
                word("schedulerId", "Who answers for the task group.", true),
                RESERVED,
            ],
            Self::Worker { always } => vec![
                PRIMARY,
                word("providerId", "The provider.", always),
                word(
                    "provisionerId",
                    "The first half of the worker pool id.",
                    always,
                ),
                word(
                    "workerType",
                    "The second half of the worker pool id.",
                    always,
                ),
                word("workerGroup", "Where the worker is.", always),
                word("workerId", "The worker.", always),
                word(
                    "launchConfigId",
                    "The launch config, if there is one.",
                    false,
                ),
                RESERVED,
            ],
        }
    }
}

const PRIMARY: KeyWord = KeyWord {
    constant: Some("primary"),
    ..word("routingKeyKind", "Always `primary`.", true)
};

const RESERVED: KeyWord = KeyWord {
    multiple_words: true,
    max_size: 1,
    ..word(
        "reserved",
        "Room for words that may come; match it with `#`.",
        false,
    )
};

const fn word(name: &'static str, summary: &'static str, required: bool) -> KeyWord {
    KeyWord {
        name,
        summary,
        constant: None,
        required,
        multiple_words: false,
        max_size: 38,
    }
}

impl KeyWord {
    const fn of_size(mut self, max_size: u32) -> Self {
        self.max_size = max_size;
        self
    }
}

const fn worker_manager(
    name: &'static str,
    exchange: &'static str,
    schema: &'static str,
    always: bool,
    title: &'static str,
    description: &'static str,
) -> Exchange {
    let key = RoutingKey::Worker { always };
    Exchange {
        service: "worker-manager",
        name,
        exchange,
        schema,
        key,
        title,
        description,
    }
}

const fn task(
    name: &'static str,
    exchange: &'static str,
    schema: &'static str,
    (run, worker): (bool, bool),
    title: &'static str,
    description: &'static str,
) -> Exchange {
    let key = RoutingKey::Task { run, worker };
    Exchange {
        service: "queue",
        name,
        exchange,
        schema,
        key,
        title,
        description,
    }
}

const fn task_group(
    name: &'static str,
    exchange: &'static str,
    schema: &'static str,
    title: &'static str,
    description: &'static str,
) -> Exchange {
    Exchange {
        service: "queue",
        name,
        exchange,
        schema,
        key: RoutingKey::TaskGroup,
        title,
        description,
    }
}

const fn auth(
    name: &'static str,
    exchange: &'static str,
    schema: &'static str,
    title: &'static str,
    description: &'static str,
) -> Exchange {
    Exchange {
        service: "auth",
        name,
        exchange,
        schema,
        key: RoutingKey::Reserved,
        title,
        description,
    }
}

const POOL: &str = "pulse-worker-pool-message.json";
const ERROR: &str = "pulse-worker-pool-error-message.json";
const WORKER: &str = "pulse-worker-message.json";
const REMOVED: &str = "pulse-worker-removed-message.json";
const LAUNCH_CONFIG: &str = "pulse-launch-config-message.json";
const PAUSE: &str = "pulse-launch-config-paused-message.json";
const CLIENT: &str = "client-message.json";
const ROLE: &str = "role-message.json";

/// Every exchange that we publish to.
pub static EXCHANGES: [Exchange; 29] = [
    worker_manager(
        "workerPoolCreated",
        "worker-pool-created",
        POOL,
        false,
        "A pool was made",
        "Sent once, when a worker pool first exists.",
    ),
    worker_manager(
        "workerPoolUpdated",
        "worker-pool-updated",
        POOL,
        false,
        "A pool was changed",
        "Sent for every change of a pool's definition; a deleted pool changes to `null-provider`.",
    ),
    worker_manager(
        "workerPoolError",
        "worker-pool-error",
        ERROR,
        false,
        "Something went wrong in a pool",
        "Sent when a worker or a provider reports an error.",
    ),
    worker_manager(
        "workerRequested",
        "worker-requested",
        WORKER,
        true,
        "A worker was asked for",
        "Sent when a provider has been asked for a new worker.",
    ),
    worker_manager(
        "workerRunning",
        "worker-running",
        WORKER,
        true,
        "A worker proved itself",
        "Sent when a worker has registered and may claim work.",
    ),
    worker_manager(
        "workerStopped",
        "worker-stopped",
        WORKER,
        true,
        "A worker is gone",
        "Sent when a worker is known to be gone.",
    ),
    worker_manager(
        "workerRemoved",
        "worker-removed",
        REMOVED,
        true,
        "A worker was told to go",
        "Sent when a worker's removal begins, with the reason.",
    ),
    worker_manager(
        "launchConfigCreated",
        "launch-config-created",
        LAUNCH_CONFIG,
        false,
        "A launch config was made",
        "Sent when a pool gets a launch config that it never had.",
    ),
    worker_manager(
        "launchConfigUpdated",
        "launch-config-updated",
        LAUNCH_CONFIG,
        false,
        "A launch config was kept",
        "Sent for each launch config that an edit of its pool keeps or takes back from the archive.",
    ),
    worker_manager(
        "launchConfigArchived",
        "launch-config-archived",
        LAUNCH_CONFIG,
        false,
        "A launch config was archived",
        "Sent when a pool no longer has a launch config; nothing new starts from it.",
    ),
    worker_manager(
        "launchConfigPaused",
        "launch-config-paused",
        PAUSE,
        false,
        "Launch configs were paused",
        "Sent when an override pauses a launch config, or those of a pool, a provider or a region, and again when such an override changes.",
    ),
    worker_manager(
        "launchConfigResumed",
        "launch-config-resumed",
        PAUSE,
        false,
        "Launch configs were resumed",
        "Sent when such a pause was taken back, or has ended by itself.",
    ),
    task(
        "taskDefined",
        "task-defined",
        "task-defined-message.json",
        (false, false),
        "A task was defined",
        "Sent once, when a task first exists.",
    ),
    task(
        "taskPending",
        "task-pending",
        "task-pending-message.json",
        (true, false),
        "A task is pending",
        "Sent when a run begins to wait for a worker.",
    ),
    task(
        "taskRunning",
        "task-running",
        "task-running-message.json",
        (true, true),
        "A task is running",
        "Sent when a worker has claimed a run.",
    ),
    task(
        "artifactCreated",
        "artifact-created",
        "artifact-created-message.json",
        (true, true),
        "An artifact was made",
        "Sent when a run has made an artifact.",
    ),
    task(
        "taskCompleted",
        "task-completed",
        "task-completed-message.json",
        (true, true),
        "A task was completed",
        "Sent when a run ended well.",
    ),
    task(
        "taskFailed",
        "task-failed",
        "task-failed-message.json",
        (false, false),
        "A task failed",
        "Sent when a run did its work and did not succeed.",
    ),
    task(
        "taskException",
        "task-exception",
        "task-exception-message.json",
        (false, false),
        "A task met an exception",
        "Sent when a run ended for another reason than that its work ended.",
    ),
    task_group(
        "taskGroupResolved",
        "task-group-resolved",
        "task-group-changed-message.json",
        "A task group is resolved",
        "Sent when the last unresolved task of a group is resolved: again, if tasks are added or run again.",
    ),
    task_group(
        "taskGroupSealed",
        "task-group-sealed",
        "task-group-changed-message.json",
        "A task group was sealed",
        "Sent when a group was sealed, so that it takes no further tasks.",
    ),
    task(
        "taskPriorityChanged",
        "task-priority-changed",
        "task-priority-changed-message.json",
        (false, false),
        "The priority of a task changed",
        "Sent when a task has got a new priority, alone or with its group.",
    ),
    task_group(
        "taskGroupPriorityChanged",
        "task-group-priority-changed",
        "task-group-priority-changed-message.json",
        "The priority of a task group changed",
        "Sent when the unresolved tasks of a group have got a new priority.",
    ),
    auth(
        "clientCreated",
        "client-created",
        CLIENT,
        "A client was made",
        "Sent when a client was created.",
    ),
    auth(
        "clientUpdated",
        "client-updated",
        CLIENT,
        "A client was changed",
        "Sent when a client was changed, enabled, disabled or got a new access token.",
    ),
    auth(
        "clientDeleted",
        "client-deleted",
        CLIENT,
        "A client was deleted",
        "Sent when a client was deleted.",
    ),
    auth(
        "roleCreated",
        "role-created",
        ROLE,
        "A role was made",
        "Sent when a role was created.",
    ),
    auth(
        "roleUpdated",
        "role-updated",
        ROLE,
        "A role was changed",
        "Sent when a role was changed.",
    ),
    auth(
        "roleDeleted",
        "role-deleted",
        ROLE,
        "A role was deleted",
        "Sent when a role was deleted.",
    ),
];
