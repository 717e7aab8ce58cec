//! The table of exchanges, from which topics, routing keys and the published references are made.

/// One exchange of the contract.
#[derive(Debug, PartialEq, Eq)]
pub struct Exchange {
    /// `worker-manager`, `queue` or `auth`.
    pub service: &'static str,
    /// The name of the method with which clients bind to it.
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
    /// Kind, provider, pool, worker, launch config. With `always`, all but the last are always
    /// present.
    Worker { always: bool },
    /// Kind, task, run, worker, queue, group. The flags say whether the run and the worker are
    /// always present.
    Task { run: bool, worker: bool },
    /// Kind, group, scheduler.
    TaskGroup,
    /// Only the reserved word.
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
                word("workerGroup", "The group of the worker.", worker),
                word("workerId", "The worker that claimed the run.", worker),
                word(
                    "provisionerId",
                    "The first half of the task queue id.",
                    true,
                ),
                word("workerType", "The second half of the task queue id.", true),
                word("schedulerId", "The scheduler of the task group.", true),
                word("taskGroupId", "The group of the task.", true).of_size(22),
                RESERVED,
            ],
            Self::TaskGroup => vec![
                PRIMARY,
                word("taskGroupId", "The group.", true).of_size(22),
                word("schedulerId", "The scheduler of the task group.", true),
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
                word("workerGroup", "The group of the worker.", always),
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
        "Reserved for future words; match it with `#`.",
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
        "A pool was created",
        "Sent once, when a worker pool is created.",
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
        "A worker was requested",
        "Sent when a new worker was requested from a provider.",
    ),
    worker_manager(
        "workerRunning",
        "worker-running",
        WORKER,
        true,
        "A worker registered",
        "Sent when a worker has registered and may claim work.",
    ),
    worker_manager(
        "workerStopped",
        "worker-stopped",
        WORKER,
        true,
        "A worker stopped",
        "Sent when a worker is known to have stopped.",
    ),
    worker_manager(
        "workerRemoved",
        "worker-removed",
        REMOVED,
        true,
        "The removal of a worker began",
        "Sent when a worker's removal begins, with the reason.",
    ),
    worker_manager(
        "launchConfigCreated",
        "launch-config-created",
        LAUNCH_CONFIG,
        false,
        "A launch config was created",
        "Sent when a pool gets a new launch config.",
    ),
    worker_manager(
        "launchConfigUpdated",
        "launch-config-updated",
        LAUNCH_CONFIG,
        false,
        "A launch config was kept",
        "Sent for each launch config that an edit of its pool keeps or restores from the archive.",
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
        "Sent when such a pause was removed or has expired.",
    ),
    task(
        "taskDefined",
        "task-defined",
        "task-defined-message.json",
        (false, false),
        "A task was created",
        "Sent once, when a task is created.",
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
        "An artifact was created",
        "Sent when a run has created an artifact.",
    ),
    task(
        "taskCompleted",
        "task-completed",
        "task-completed-message.json",
        (true, true),
        "A task was completed",
        "Sent when a run ended successfully.",
    ),
    task(
        "taskFailed",
        "task-failed",
        "task-failed-message.json",
        (false, false),
        "A task failed",
        "Sent when the work of a run ended without success.",
    ),
    task(
        "taskException",
        "task-exception",
        "task-exception-message.json",
        (false, false),
        "A task ended as exception",
        "Sent when a run ended before its work did.",
    ),
    task_group(
        "taskGroupResolved",
        "task-group-resolved",
        "task-group-changed-message.json",
        "A task group is resolved",
        "Sent when the last unresolved task of a group is resolved. Sent again if tasks are added or run again later.",
    ),
    task_group(
        "taskGroupSealed",
        "task-group-sealed",
        "task-group-changed-message.json",
        "A task group was sealed",
        "Sent when a group was sealed; it accepts no further tasks.",
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
        "A client was created",
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
        "A role was created",
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
