//! The worker manager's endpoints, in the order in which they are declared.

use access::scope::Template::{AllOf, If, Scope};
use contract::patterns::{DIGITS, ERROR_ID_QUERY, LAUNCH_CONFIG_ID_QUERY};

use super::super::endpoint::Verb::{Delete, Get, Post, Put};
use super::super::endpoint::{Endpoint, Handler, Payload, Query, Service, Verb};
use super::{
    error_reports, launch_configs, metadata, monitoring, overrides, pools, providers, registration,
    stats, workers,
};

const POOLS: &str = "Worker Pools";
const WORKERS: &str = "Workers";
const INTERFACE: &str = "Worker Interface";
const METADATA: &str = "Worker Metadata";
pub(in crate::api) const MONITORING: &str = "Monitoring";

pub(in crate::api) const TOKEN: Query = Query {
    name: "continuationToken",
    pattern: ".",
};
pub(in crate::api) const LIMIT: Query = Query {
    name: "limit",
    pattern: DIGITS,
};
pub(super) const PAGING: &[Query] = &[TOKEN, LIMIT];
const LAUNCH_CONFIG: Query = Query {
    name: "launchConfigId",
    pattern: LAUNCH_CONFIG_ID_QUERY,
};
const WORKER_STATE: &str = "^(requested|running|stopping|stopped)$";
const POOL_WORKER_STATE: &str = "^(requested|running|stopping|stopped|standalone)$";
const YES_NO: &str = "^(true|false)$";
/// Nothing, or what a pool's id may look like.
const ANY_POOL: &str = "^([a-zA-Z0-9_/-]+)?$";

const MANAGE: &[access::scope::Template] = &[
    Scope("worker-manager:manage-worker-pool:<workerPoolId>"),
    Scope("worker-manager:provider:<providerId>"),
];
/// Whoever may change the target for good may do so for a time.
const OVERRIDE: &[access::scope::Template] = &[
    Scope("worker-manager:manage-override:<overrideId>"),
    If {
        condition: "ofWorkerPool",
        then: &Scope("worker-manager:manage-worker-pool:<workerPoolId>"),
        otherwise: &If {
            condition: "ofProvider",
            then: &Scope("worker-manager:provider:<providerId>"),
            otherwise: &Scope("worker-manager:region:<region>"),
        },
    },
];
const REPORT: &[access::scope::Template] = &[
    Scope("assume:worker-pool:<workerPoolId>"),
    Scope("assume:worker-id:<workerGroup>/<workerId>"),
];

const OVERRIDES: &str = "Overrides";
const ONE_OVERRIDE: &str = "/override/<overrideId>";
const POOL: &str = "/worker-pool/<workerPoolId>";
const WORKER: &str = "/workers/<workerPoolId>/<workerGroup>/<workerId>";
const WORKER_COLON: &str = "/workers/<workerPoolId>:/<workerGroup>/<workerId>";
const GROUP: &str = "/workers/<workerPoolId>/<workerGroup>";
const GROUP_COLON: &str = "/workers/<workerPoolId>:/<workerGroup>";
const METADATA_LIST: &str = "/provisioners/<provisionerId>/worker-types/<workerType>/workers";
const METADATA_ONE: &str =
    "/provisioners/<provisionerId>/worker-types/<workerType>/workers/<workerGroup>/<workerId>";

const fn on(name: &'static str, method: Verb, route: &'static str, handler: Handler) -> Endpoint {
    Endpoint::new(Service::WorkerManager, name, method, route, handler)
}

pub const ENDPOINTS: &[Endpoint] = &[
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
    on("listProviders", Get, "/providers", |call| Box::pin(providers::list(call)))
        .query(&[Query { name: "continuationToken", pattern: DIGITS }, LIMIT])
        .output("provider-list.json")
        .scopes(Scope("worker-manager:list-providers"))
        .about(
            "Providers",
            "List providers",
            "All configured providers, in the order of the configuration, also those whose set-up \
             has failed. The built-in null provider is not among them.",
        ),
    on("createWorkerPool", Put, POOL, |call| Box::pin(pools::create(call)))
        .wildcard("workerPoolId")
        .input("create-worker-pool-request.json")
        .output("worker-pool-full.json")
        .scopes(AllOf(MANAGE))
        .about(
            POOLS,
            "Create a worker pool",
            "Makes a pool. Its config is checked by its provider, and its launch configs get their \
             ids. The same request again is answered as the first was; a pool of this name with \
             another definition is a conflict.",
        ),
    on("updateWorkerPool", Post, POOL, |call| Box::pin(pools::update(call)))
        .wildcard("workerPoolId")
        .input("update-worker-pool-request.json")
        .output("worker-pool-full.json")
        .scopes(AllOf(MANAGE))
        .experimental()
        .about(
            POOLS,
            "Update a worker pool",
            "Replaces the definition of a pool. Launch configs that are no longer in it are \
             archived; those that are keep their ids. `created` and `lastModified` may be given and \
             are ignored, so that what was read can be sent back.",
        ),
    on("deleteWorkerPool", Delete, POOL, |call| Box::pin(pools::delete(call)))
        .wildcard("workerPoolId")
        .output("worker-pool-full.json")
        .scopes(Scope("worker-manager:manage-worker-pool:<workerPoolId>"))
        .about(
            POOLS,
            "Delete a worker pool",
            "Takes the pool's provider and launch configs away. It is removed some minutes after its last worker \
             has gone; until then an update brings it back.",
        ),
    on(
        "listWorkerPoolLaunchConfigs",
        Get,
        "/worker-pool/<workerPoolId>/launch-configs",
        |call| Box::pin(launch_configs::list(call)),
    )
    .query(&[TOKEN, LIMIT, Query { name: "includeArchived", pattern: YES_NO }])
    .output("worker-pool-launch-config-list.json")
    .scopes(Scope("worker-manager:get-worker-pool:<workerPoolId>"))
    .experimental()
    .about(
        "Worker Pool Launch Configs",
        "List a pool's launch configs",
        "The ways in which workers of this pool are started; with `includeArchived=true` also those \
         that are no longer used.",
    ),
    on("workerPoolStats", Get, "/worker-pool/<workerPoolId>/stats", |call| {
        Box::pin(stats::of_launch_configs(call))
    })
    .wildcard("workerPoolId")
    .output("worker-pool-stats.json")
    .scopes(Scope("worker-manager:get-worker-pool:<workerPoolId>"))
    .experimental()
    .about(
        POOLS,
        "Count a pool's workers by launch config",
        "Numbers and capacities of workers by state, for each launch config that has any; workers \
         without one count as `unknown`.",
    ),
    on("workerPool", Get, POOL, |call| Box::pin(pools::show(call)))
        .wildcard("workerPoolId")
        .output("worker-pool-full.json")
        .scopes(Scope("worker-manager:get-worker-pool:<workerPoolId>"))
        .about(
            POOLS,
            "Show a worker pool",
            "A pool's definition with its active launch configs, and how many workers it has.",
        ),
    on("listWorkerPools", Get, "/worker-pools", |call| Box::pin(pools::list(call)))
        .query(PAGING)
        .output("worker-pool-list.json")
        .scopes(Scope("worker-manager:list-worker-pools"))
        .about(POOLS, "List worker pools", "All worker pools, ordered by their ids."),
    on("listWorkerPoolsStats", Get, "/worker-pools/stats", |call| Box::pin(stats::of_pools(call)))
        .query(PAGING)
        .output("worker-pool-list-stats.json")
        .scopes(Scope("worker-manager:list-worker-pools"))
        .experimental()
        .about(
            POOLS,
            "Count the workers of all pools",
            "Numbers and capacities of workers by state, for each pool, ordered by their ids.",
        ),
    on("reportWorkerError", Post, "/worker-pool-errors/<workerPoolId>", |call| {
        Box::pin(error_reports::report(call))
    })
    .wildcard("workerPoolId")
    .input("report-worker-error-request.json")
    .output("worker-pool-error.json")
    .scopes(AllOf(REPORT))
    .about(
        INTERFACE,
        "Report an error from a worker",
        "For workers: tells those who look after the pool that something is wrong. Do not report \
         secrets: whoever may list the errors of the pool can read this.",
    ),
    on("workerPoolErrorStats", Get, "/worker-pool-errors/stats", |call| {
        Box::pin(error_reports::stats(call))
    })
    .query(&[Query { name: "workerPoolId", pattern: ANY_POOL }])
    .output("worker-pool-error-stats.json")
    .scopes(Scope("worker-manager:list-worker-pool-errors:<workerPoolId>"))
    .experimental()
    .about(
        POOLS,
        "Count errors",
        "How often errors were reported, by day, hour, title, code, pool and launch config; of one \
         pool, or of all of them if none is named.",
    ),
    on("listWorkerPoolErrors", Get, "/worker-pool-errors/<workerPoolId>", |call| {
        Box::pin(error_reports::list(call))
    })
    .wildcard("workerPoolId")
    .query(&[TOKEN, LIMIT, LAUNCH_CONFIG, Query { name: "errorId", pattern: ERROR_ID_QUERY }])
    .output("worker-pool-error-list.json")
    .scopes(Scope("worker-manager:list-worker-pool-errors:<workerPoolId>"))
    .about(
        POOLS,
        "List a pool's errors",
        "What providers and workers have reported, newest first.",
    ),
    on("listWorkersForWorkerGroup", Get, GROUP, |call| Box::pin(workers::list_group(call)))
        .alias("listWorkersForWorkerGroupWithColon", GROUP_COLON)
        .query(PAGING)
        .output("worker-list.json")
        .scopes(Scope("worker-manager:list-workers:<workerPoolId>/<workerGroup>"))
        .about(
            WORKERS,
            "List the workers of a group",
            "The workers of one group of a pool, newest first, also stopped ones.",
        ),
    on("worker", Get, WORKER, |call| Box::pin(workers::show(call)))
        .alias("workerWithColon", WORKER_COLON)
        .output("worker-full.json")
        .scopes(Scope("worker-manager:get-worker:<workerPoolId>/<workerGroup>/<workerId>"))
        .about(WORKERS, "Show a worker", "What we know of one worker."),
    on("createWorker", Put, WORKER, |call| Box::pin(workers::create(call)))
        .alias("createWorkerWithColon", WORKER_COLON)
        .input("create-worker-request.json")
        .output("worker-full.json")
        .payload(Payload::WithoutSecret)
        .scopes(Scope("worker-manager:create-worker:<workerPoolId>/<workerGroup>/<workerId>"))
        .about(
            WORKERS,
            "Declare a worker",
            "Tells us of a worker that was not launched by us, if the pool's provider has such \
             workers. A worker's id cannot be used again until its row has expired, also when it \
             has been removed. Use `updateWorker` to change one.",
        ),
    on("updateWorker", Post, WORKER, |call| Box::pin(workers::update(call)))
        .alias("updateWorkerWithColon", WORKER_COLON)
        .input("create-worker-request.json")
        .output("worker-full.json")
        .payload(Payload::WithoutSecret)
        .scopes(Scope("worker-manager:update-worker:<workerPoolId>/<workerGroup>/<workerId>"))
        .about(
            WORKERS,
            "Change a declared worker",
            "Changes when a worker expires, its capacity and its secret. What is not given stays as \
             it is.",
        ),
    on("removeWorker", Delete, WORKER, |call| Box::pin(workers::remove(call)))
        .scopes(Scope("worker-manager:remove-worker:<workerPoolId>/<workerGroup>/<workerId>"))
        .about(
            WORKERS,
            "Remove a worker",
            "Ends a worker, whether it is busy or not. May be repeated.",
        ),
    on(
        "shouldWorkerTerminate",
        Get,
        "/workers/<workerPoolId>/<workerGroup>/<workerId>/should-terminate",
        |call| Box::pin(workers::should_terminate(call)),
    )
    .output("should-worker-terminate-response.json")
    .scopes(Scope("worker-manager:should-worker-terminate:<workerPoolId>/<workerGroup>/<workerId>"))
    .experimental()
    .about(
        WORKERS,
        "Should this worker end itself?",
        "For workers: asked before work is claimed. Tells the last decision about the worker and \
         the reason for it.",
    ),
    on("listWorkersForWorkerPool", Get, "/workers/<workerPoolId>", |call| {
        Box::pin(workers::list_pool(call))
    })
    .wildcard("workerPoolId")
    .query(&[TOKEN, LIMIT, LAUNCH_CONFIG, Query { name: "state", pattern: POOL_WORKER_STATE }])
    .output("worker-list.json")
    .scopes(Scope("worker-manager:list-workers:<workerPoolId>"))
    .about(
        WORKERS,
        "List the workers of a pool",
        "All workers of a pool, newest first, also stopped ones.",
    ),
    on("registerWorker", Post, "/worker/register", |call| Box::pin(registration::register(call)))
        .input("register-worker-request.json")
        .output("register-worker-response.json")
        .payload(Payload::Omitted)
        .about(
            INTERFACE,
            "Register a worker",
            "For workers: proves who the worker is, and gives it credentials, its configuration and \
             a secret for the next time. Open to everybody; the proof is what counts.",
        ),
    on("reregisterWorker", Post, "/worker/reregister", |call| {
        Box::pin(registration::reregister(call))
    })
    .input("reregister-worker-request.json")
    .output("reregister-worker-response.json")
    .payload(Payload::Omitted)
    .scopes(Scope("worker-manager:reregister-worker:<workerPoolId>/<workerGroup>/<workerId>"))
    .experimental()
    .about(
        INTERFACE,
        "Renew a worker's credentials",
        "For workers: exchanges the secret of the last registration for new credentials and a new \
         secret. Refused if the worker's launch config has been archived.",
    ),
    on("listWorkers", Get, METADATA_LIST, |call| Box::pin(metadata::list(call)))
        .query(&[
            TOKEN,
            LIMIT,
            LAUNCH_CONFIG,
            Query { name: "quarantined", pattern: YES_NO },
            Query { name: "workerState", pattern: WORKER_STATE },
        ])
        .output("list-workers-response.json")
        .scopes(Scope("worker-manager:list-workers:<provisionerId>/<workerType>"))
        .experimental()
        .about(
            METADATA,
            "List workers as the queue knows them",
            "The workers that have asked the queue for work, with what we know of each; workers that \
             are not ours are `standalone`.",
        ),
    on("getWorker", Get, METADATA_ONE, |call| Box::pin(metadata::show(call)))
        .output("worker-response.json")
        .scopes(Scope(
            "worker-manager:get-worker:<provisionerId>/<workerType>/<workerGroup>/<workerId>",
        ))
        .experimental()
        .about(
            METADATA,
            "Show a worker as the queue knows it",
            "What a worker has run lately, whether it is quarantined, and what we know of it.",
        ),
    on("setOverride", Put, ONE_OVERRIDE, |call| Box::pin(overrides::set(call)))
        .input("set-override-request.json")
        .output("override-full.json")
        .scopes(AllOf(OVERRIDE))
        .about(
            OVERRIDES,
            "Set an override",
            "For a time, launches nothing from a worker pool, a launch config, a provider or a region, \
             or gives a worker pool other limits. It has a reason and an end, and ends by itself. The \
             same again changes nothing; another reason, effect or end changes it. What it is about \
             cannot be changed.",
        ),
    on("override", Get, ONE_OVERRIDE, |call| Box::pin(overrides::show(call)))
        .output("override-full.json")
        .scopes(Scope("worker-manager:get-override:<overrideId>"))
        .about(OVERRIDES, "Show an override", "What it does, for how long, and why."),
    on("listOverrides", Get, "/overrides", |call| Box::pin(overrides::list(call)))
        .query(&[TOKEN, LIMIT, Query { name: "includeEnded", pattern: YES_NO }])
        .output("override-list.json")
        .scopes(Scope("worker-manager:list-overrides"))
        .about(
            OVERRIDES,
            "List overrides",
            "The overrides in force, ordered by their ids; with `includeEnded=true` also those that \
             have ended in the last 30 days.",
        ),
    on("removeOverride", Delete, ONE_OVERRIDE, |call| Box::pin(overrides::remove(call)))
        .scopes(AllOf(OVERRIDE))
        .about(
            OVERRIDES,
            "Remove an override",
            "Ends an override before its time, and forgets it.",
        ),
    on(
        "pauseLaunchConfig",
        Post,
        "/launch-config/<workerPoolId>/<launchConfigId>/pause",
        |call| Box::pin(overrides::pause_launch_config(call)),
    )
    .input("pause-launch-config-request.json")
    .output("override-full.json")
    .scopes(AllOf(OVERRIDE))
    .about(
        OVERRIDES,
        "Pause a launch config",
        "As RFC 191 has it: an override of the name \
         `pause.<provisioner>.<worker type>.<launch config>`, by which nothing is launched from it \
         for a time.",
    ),
    on(
        "resumeLaunchConfig",
        Post,
        "/launch-config/<workerPoolId>/<launchConfigId>/resume",
        |call| Box::pin(overrides::resume_launch_config(call)),
    )
    .scopes(AllOf(OVERRIDE))
    .about(
        OVERRIDES,
        "Resume a launch config",
        "Ends such a pause before its time. Other overrides that pause it go on.",
    ),
    on("heartbeat", Get, "/__heartbeat__", |call| Box::pin(monitoring::heartbeat(call))).about(
        MONITORING,
        "Heartbeat",
        "Answers 200 if the service works.",
    ),
];
