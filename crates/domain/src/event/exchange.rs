//! The table of exchanges: from it come topics, routing keys and the published references.

/// One exchange of the contract.
#[derive(Debug, PartialEq, Eq)]
pub struct Exchange {
    /// `worker-manager` or `auth`.
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

/// The two layouts of routing keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoutingKey {
    /// Kind, provider, pool, worker, launch config; `worker` says whether all but the last are sure.
    Worker { always: bool },
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
        let word = |name, summary, required| KeyWord {
            name,
            summary,
            constant: None,
            required,
            multiple_words: false,
            max_size: 38,
        };
        let reserved = KeyWord {
            multiple_words: true,
            max_size: 1,
            ..word(
                "reserved",
                "Room for words that may come; match it with `#`.",
                false,
            )
        };
        match self {
            Self::Reserved => vec![reserved],
            Self::Worker { always } => vec![
                KeyWord {
                    constant: Some("primary"),
                    ..word("routingKeyKind", "Always `primary`.", true)
                },
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
                reserved,
            ],
        }
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
const CLIENT: &str = "client-message.json";
const ROLE: &str = "role-message.json";

/// Every exchange that we publish to.
pub static EXCHANGES: [Exchange; 16] = [
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
