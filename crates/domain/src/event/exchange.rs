//! The table of exchanges, from which topics, routing keys and the published references are made.

/// One exchange of the contract.
#[derive(Debug, PartialEq, Eq)]
pub struct Exchange {
    /// `worker-manager`, `queue` or `auth`; `fleetwright` for events of our own, and second names.
    pub service: &'static str,
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
    /// Kind, image.
    Image,
    /// Kind, budget, step.
    Budget,
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
        match self.service {
            OWN_SERVICE => format!("exchange/fleetwright/v1/{}", self.exchange),
            service => format!("exchange/taskcluster-{service}/v1/{}", self.exchange),
        }
    }

    /// The name of the method with which clients bind to it: `worker-running` as `workerRunning`.
    pub fn method(&self) -> String {
        let mut words = self.exchange.split('-');
        let first = words.next().unwrap_or_default().to_owned();
        words.fold(first, |name, word| {
            let (initial, rest) = word.split_at(1);
            name + &initial.to_ascii_uppercase() + rest
        })
    }

    const fn title(mut self, title: &'static str) -> Self {
        self.title = title;
        self
    }

    const fn description(mut self, description: &'static str) -> Self {
        self.description = description;
        self
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
            Self::Image => vec![
                PRIMARY,
                word("imageId", "The image, with `_` in place of each dot.", true),
                RESERVED,
            ],
            Self::Budget => vec![
                PRIMARY,
                word(
                    "budgetId",
                    "The budget, with `_` in place of each dot.",
                    true,
                )
                .of_size(64),
                word("step", "The step: warned, lowered or spent.", true),
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

/// An exchange without its texts.
const fn exchange(
    service: &'static str,
    exchange: &'static str,
    schema: &'static str,
    key: RoutingKey,
) -> Exchange {
    Exchange {
        service,
        exchange,
        schema,
        key,
        title: "",
        description: "",
    }
}

const fn worker_manager(name: &'static str, schema: &'static str, always: bool) -> Exchange {
    let key = RoutingKey::Worker { always };
    exchange("worker-manager", name, schema, key)
}

const fn task(name: &'static str, schema: &'static str, key: RoutingKey) -> Exchange {
    exchange("queue", name, schema, key)
}

const fn task_group(name: &'static str, schema: &'static str) -> Exchange {
    exchange("queue", name, schema, RoutingKey::TaskGroup)
}

const fn auth(name: &'static str, schema: &'static str) -> Exchange {
    exchange("auth", name, schema, RoutingKey::Reserved)
}

const fn image(name: &'static str) -> Exchange {
    exchange(OWN_SERVICE, name, "image-message.json", RoutingKey::Image)
}

const OWN_SERVICE: &str = "fleetwright";

const TASK: RoutingKey = RoutingKey::Task {
    run: false,
    worker: false,
};
const RUN: RoutingKey = RoutingKey::Task {
    run: true,
    worker: false,
};
const CLAIMED: RoutingKey = RoutingKey::Task {
    run: true,
    worker: true,
};

const POOL: &str = "pulse-worker-pool-message.json";
const ERROR: &str = "pulse-worker-pool-error-message.json";
const WORKER: &str = "pulse-worker-message.json";
const REMOVED: &str = "pulse-worker-removed-message.json";
const LAUNCH_CONFIG: &str = "pulse-launch-config-message.json";
const PAUSE: &str = "pulse-launch-config-paused-message.json";
const GROUP: &str = "task-group-changed-message.json";
const CLIENT: &str = "client-message.json";
const ROLE: &str = "role-message.json";

/// Every exchange that we publish to.
pub static EXCHANGES: [Exchange; 35] = [
    worker_manager("worker-pool-created", POOL, false)
        .title("A pool was created")
        .description("Sent once, when a worker pool is created."),
    worker_manager("worker-pool-updated", POOL, false)
        .title("A pool was changed")
        .description(
            "Sent for every change of a pool's definition; a deleted pool changes to \
             `null-provider`.",
        ),
    worker_manager("worker-pool-error", ERROR, false)
        .title("Something went wrong in a pool")
        .description("Sent when a worker or a provider reports an error."),
    worker_manager("worker-requested", WORKER, true)
        .title("A worker was requested")
        .description("Sent when a new worker was requested from a provider."),
    worker_manager("worker-running", WORKER, true)
        .title("A worker registered")
        .description("Sent when a worker has registered and may claim work."),
    worker_manager("worker-stopped", WORKER, true)
        .title("A worker stopped")
        .description("Sent when a worker is known to have stopped."),
    worker_manager("worker-removed", REMOVED, true)
        .title("The removal of a worker began")
        .description("Sent when a worker's removal begins, with the reason."),
    worker_manager("launch-config-created", LAUNCH_CONFIG, false)
        .title("A launch config was created")
        .description("Sent when a pool gets a new launch config."),
    worker_manager("launch-config-updated", LAUNCH_CONFIG, false)
        .title("A launch config was kept")
        .description(
            "Sent for each launch config that an edit of its pool keeps or restores from \
             the archive.",
        ),
    worker_manager("launch-config-archived", LAUNCH_CONFIG, false)
        .title("A launch config was archived")
        .description("Sent when a pool no longer has a launch config; nothing new starts from it."),
    worker_manager("launch-config-paused", PAUSE, false)
        .title("Launch configs were paused")
        .description(
            "Sent when an override pauses a launch config, or those of a pool, a provider \
             or a region, and again when such an override changes.",
        ),
    worker_manager("launch-config-resumed", PAUSE, false)
        .title("Launch configs were resumed")
        .description("Sent when such a pause was removed or has expired."),
    task("task-defined", "task-defined-message.json", TASK)
        .title("A task was created")
        .description("Sent once, when a task is created."),
    task("task-pending", "task-pending-message.json", RUN)
        .title("A task is pending")
        .description("Sent when a run begins to wait for a worker."),
    task("task-running", "task-running-message.json", CLAIMED)
        .title("A task is running")
        .description("Sent when a worker has claimed a run."),
    task("artifact-created", "artifact-created-message.json", CLAIMED)
        .title("An artifact was created")
        .description("Sent when a run has created an artifact."),
    task("task-completed", "task-completed-message.json", CLAIMED)
        .title("A task was completed")
        .description("Sent when a run ended successfully."),
    task("task-failed", "task-failed-message.json", TASK)
        .title("A task failed")
        .description("Sent when the work of a run ended without success."),
    task("task-exception", "task-exception-message.json", TASK)
        .title("A task ended as exception")
        .description("Sent when a run ended before its work did."),
    task_group("task-group-resolved", GROUP)
        .title("A task group is resolved")
        .description(
            "Sent when the last unresolved task of a group is resolved. Sent again if \
             tasks are added or run again later.",
        ),
    task_group("task-group-sealed", GROUP)
        .title("A task group was sealed")
        .description("Sent when a group was sealed; it accepts no further tasks."),
    task(
        "task-priority-changed",
        "task-priority-changed-message.json",
        TASK,
    )
    .title("The priority of a task changed")
    .description("Sent when a task has got a new priority, alone or with its group."),
    task_group(
        "task-group-priority-changed",
        "task-group-priority-changed-message.json",
    )
    .title("The priority of a task group changed")
    .description("Sent when the unresolved tasks of a group have got a new priority."),
    auth("client-created", CLIENT)
        .title("A client was created")
        .description("Sent when a client was created."),
    auth("client-updated", CLIENT)
        .title("A client was changed")
        .description(
            "Sent when a client was changed, enabled, disabled or got a new access token.",
        ),
    auth("client-deleted", CLIENT)
        .title("A client was deleted")
        .description("Sent when a client was deleted."),
    auth("role-created", ROLE)
        .title("A role was created")
        .description("Sent when a role was created."),
    auth("role-updated", ROLE)
        .title("A role was changed")
        .description("Sent when a role was changed."),
    auth("role-deleted", ROLE)
        .title("A role was deleted")
        .description("Sent when a role was deleted."),
    image("image-canary-started")
        .title("A canary of an image started")
        .description("Sent when a share of the new machines begins to start from a new build."),
    image("image-canary-expired")
        .title("A canary of an image did not decide")
        .description("Sent when the time of a canary is over without a verdict: a person decides."),
    image("image-canary-ended")
        .title("A canary of an image ended")
        .description(
            "Sent when a canary ended without a verdict, as its build was deleted or replaced.",
        ),
    image("image-promoted")
        .title("A build of an image was promoted")
        .description("Sent when all new machines begin to start from a build, with the reason."),
    image("image-rolled-back")
        .title("A build of an image was rolled back")
        .description("Sent when no new machines start from a build any more, with the reason."),
    exchange(
        OWN_SERVICE,
        "budget-step",
        "budget-step-message.json",
        RoutingKey::Budget,
    )
    .title("A budget has reached a step")
    .description(
        "Sent once for each step in each period: `warned`, `lowered` when maxima are lowered, and \
         `spent` when nothing is launched any more.",
    ),
];
