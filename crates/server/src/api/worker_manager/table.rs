//! The worker manager's endpoints, in the order in which they are declared.

use access::scope::Template::{self, AllOf, AnyOf, If, Scope};
use contract::patterns::{DIGITS, ERROR_ID_QUERY, LAUNCH_CONFIG_ID_QUERY};

use super::{
    budgets, error_reports, launch_config_status, launch_configs, list_workers, on, overrides,
    pools, providers, registration, stats, workers,
};
use crate::api::endpoint::Verb::{Delete, Get, Post, Put};
use crate::api::endpoint::{Endpoint, LIMIT, PAGING, Payload, Query, TOKEN, YES_NO, query};

const POOLS: &str = "Worker Pools";
const WORKERS: &str = "Workers";
const INTERFACE: &str = "Worker Interface";
const METADATA: &str = "Worker Metadata";
const LAUNCH_CONFIGS: &str = "Launch Configs";

const LAUNCH_CONFIG: Query = query("launchConfigId", LAUNCH_CONFIG_ID_QUERY);
const WORKER_STATE: &str = "^(requested|running|stopping|stopped)$";
const POOL_WORKER_STATE: &str = "^(requested|running|stopping|stopped|standalone)$";
/// Empty, or a possible pool id.
const ANY_POOL: &str = "^([a-zA-Z0-9_/-]+)?$";

/// A point in time, checked by its parser.
const MOMENT: &str = "^[0-9TZ:.+-]{1,40}$";

const MANAGE: &[Template] = &[
    Scope("worker-manager:manage-worker-pool:<workerPoolId>"),
    Scope("worker-manager:provider:<providerId>"),
];
/// A caller that may change the target permanently may override it for a time.
const OVERRIDE: &[Template] = &[
    Scope("worker-manager:manage-override:<overrideId>"),
    If {
        condition: "ofWorkerPool",
        then: &If {
            condition: "ofWorkerType",
            then: &AnyOf(&[
                Scope("worker-manager:manage-worker-pool:<workerPoolId>"),
                Scope("worker-manager:manage-worker-type:<workerType>"),
            ]),
            otherwise: &Scope("worker-manager:manage-worker-pool:<workerPoolId>"),
        },
        otherwise: &If {
            condition: "ofConfiguration",
            then: &Scope("worker-manager:manage-worker-configuration:<workerConfigurationId>"),
            otherwise: &If {
                condition: "ofProvider",
                then: &Scope("worker-manager:provider:<providerId>"),
                otherwise: &Scope("worker-manager:region:<region>"),
            },
        },
    },
];
/// A caller that may change the pools or the provider may limit what is spent on them.
const BUDGET: &[Template] = &[
    Scope("worker-manager:manage-budget:<budgetId>"),
    If {
        condition: "ofWorkerPools",
        then: &Scope("worker-manager:manage-worker-pool:<workerPools>"),
        otherwise: &If {
            condition: "ofProvider",
            then: &Scope("worker-manager:provider:<providerId>"),
            otherwise: &Scope("worker-manager:budget-of-owner:<owner>"),
        },
    },
];
const REPORT: &[Template] = &[
    Scope("assume:worker-pool:<workerPoolId>"),
    Scope("assume:worker-id:<workerGroup>/<workerId>"),
];

const OVERRIDES: &str = "Overrides";
const ONE_OVERRIDE: &str = "/override/<overrideId>";
const BUDGETS: &str = "Budgets";
const ONE_BUDGET: &str = "/budget/<budgetId>";
const POOL: &str = "/worker-pool/<workerPoolId>";
const WORKER: &str = "/workers/<workerPoolId>/<workerGroup>/<workerId>";
const WORKER_COLON: &str = "/workers/<workerPoolId>:/<workerGroup>/<workerId>";
const GROUP: &str = "/workers/<workerPoolId>/<workerGroup>";
const GROUP_COLON: &str = "/workers/<workerPoolId>:/<workerGroup>";
const WORKER_LAUNCH_CONFIG: &str = "/workers/<workerPoolId>/<workerGroup>/<workerId>/launch-config";
const METADATA_LIST: &str = "/provisioners/<provisionerId>/worker-types/<workerType>/workers";
const METADATA_ONE: &str =
    "/provisioners/<provisionerId>/worker-types/<workerType>/workers/<workerGroup>/<workerId>";

pub(in crate::api) const ENDPOINTS: &[Endpoint] = &[
    on("listProviders", Get, "/providers")
        .runs(|call| Box::pin(providers::list(call)))
        .query(&[query("continuationToken", DIGITS), LIMIT])
        .output("provider-list.json")
        .scope("worker-manager:list-providers")
        .about("Providers", "List providers")
        .describe(
            "All configured providers, in the order of the configuration, including those that \
             failed to start. The built-in null provider is not among them.",
        ),
    on("createWorkerPool", Put, POOL)
        .runs(|call| Box::pin(pools::create(call)))
        .wildcard("workerPoolId")
        .input("create-worker-pool-request.json")
        .output("worker-pool-full.json")
        .scopes(AllOf(MANAGE))
        .about(POOLS, "Create a worker pool")
        .describe(
            "Creates a pool. Its providers check its config, and its launch configs get their ids. \
             The same request again gets the same answer; another definition under this name is a \
             conflict.",
        ),
    on("updateWorkerPool", Post, POOL)
        .runs(|call| Box::pin(pools::update(call)))
        .wildcard("workerPoolId")
        .input("update-worker-pool-request.json")
        .output("worker-pool-full.json")
        .scopes(AllOf(MANAGE))
        .experimental()
        .about(POOLS, "Update a worker pool")
        .describe(
            "Replaces the definition of a pool. Launch configs that are removed from it are \
             archived; the others keep their ids. `created` and `lastModified` are ignored, so \
             that clients can send back a definition that they read.",
        ),
    on("deleteWorkerPool", Delete, POOL)
        .runs(|call| Box::pin(pools::delete(call)))
        .wildcard("workerPoolId")
        .output("worker-pool-full.json")
        .scope("worker-manager:manage-worker-pool:<workerPoolId>")
        .about(POOLS, "Delete a worker pool")
        .describe(
            "Removes the pool's provider and launch configs. The pool is deleted some minutes \
             after its last worker has stopped; until then an update restores it.",
        ),
    on(
        "listWorkerPoolLaunchConfigs",
        Get,
        "/worker-pool/<workerPoolId>/launch-configs",
    )
    .runs(|call| Box::pin(launch_configs::list(call)))
    .query(&[TOKEN, LIMIT, query("includeArchived", YES_NO)])
    .output("worker-pool-launch-config-list.json")
    .scope("worker-manager:get-worker-pool:<workerPoolId>")
    .experimental()
    .about("Worker Pool Launch Configs", "List a pool's launch configs")
    .describe(
        "The launch configs of the pool; with `includeArchived=true` including archived ones.",
    ),
    on("getLaunchConfigs", Get, "/launch-configs/<workerPoolId>")
        .runs(|call| Box::pin(launch_config_status::list(call)))
        .wildcard("workerPoolId")
        .query(&[TOKEN, LIMIT, query("includeArchived", YES_NO)])
        .output("launch-config-list.json")
        .scope("worker-manager:get-worker-pool:<workerPoolId>")
        .experimental()
        .about(
            LAUNCH_CONFIGS,
            "Show a pool's launch configs with their states",
        )
        .describe(
            "As in RFC 191: the launch configs of the pool, ordered by their ids, each with its \
             state and the numbers behind its weight in the last hour; with \
             `includeArchived=true` including archived ones. Texts of errors are shown to \
             callers that may list the errors of the pool.",
        ),
    on(
        "getLaunchConfig",
        Get,
        "/launch-config/<workerPoolId>/<launchConfigId>",
    )
    .runs(|call| Box::pin(launch_config_status::show(call)))
    .output("launch-config-full.json")
    .scope("worker-manager:get-worker-pool:<workerPoolId>")
    .experimental()
    .about(LAUNCH_CONFIGS, "Show a launch config with its state")
    .describe(
        "As in RFC 191: a launch config, archived or not, with its state and the numbers behind \
         its weight in the last hour.",
    ),
    on("launchConfigHealth", Get, "/launch-config-health")
        .runs(|call| Box::pin(launch_config_status::health(call)))
        .query(&[TOKEN, LIMIT, query("since", MOMENT)])
        .output("launch-config-list.json")
        .scope("worker-manager:list-worker-pools")
        .experimental()
        .about(LAUNCH_CONFIGS, "Show the health of all launch configs")
        .describe(
            "The active launch configs of all pools, ordered by pool and id, without their \
             configurations. Launches are counted from `since` on: a time within the last day, \
             or an hour ago. The weights always count the last hour.",
        ),
    on("workerPoolStats", Get, "/worker-pool/<workerPoolId>/stats")
        .runs(|call| Box::pin(stats::of_launch_configs(call)))
        .wildcard("workerPoolId")
        .output("worker-pool-stats.json")
        .scope("worker-manager:get-worker-pool:<workerPoolId>")
        .experimental()
        .about(POOLS, "Count a pool's workers by launch config")
        .describe(
            "Numbers and capacities of workers by state, for each launch config with workers. \
             Workers without a launch config count as `unknown`.",
        ),
    on("workerPool", Get, POOL)
        .runs(|call| Box::pin(pools::show(call)))
        .wildcard("workerPoolId")
        .output("worker-pool-full.json")
        .scope("worker-manager:get-worker-pool:<workerPoolId>")
        .about(POOLS, "Show a worker pool")
        .describe(
            "A pool's definition with its active launch configs, and the number of its workers.",
        ),
    on("listWorkerPools", Get, "/worker-pools")
        .runs(|call| Box::pin(pools::list(call)))
        .query(PAGING)
        .output("worker-pool-list.json")
        .scope("worker-manager:list-worker-pools")
        .about(POOLS, "List worker pools")
        .describe("All worker pools, ordered by their ids."),
    on("listWorkerPoolsStats", Get, "/worker-pools/stats")
        .runs(|call| Box::pin(stats::of_pools(call)))
        .query(PAGING)
        .output("worker-pool-list-stats.json")
        .scope("worker-manager:list-worker-pools")
        .experimental()
        .about(POOLS, "Count the workers of all pools")
        .describe(
            "Numbers and capacities of workers by state, for each pool, ordered by their ids.",
        ),
    on(
        "reportWorkerError",
        Post,
        "/worker-pool-errors/<workerPoolId>",
    )
    .runs(|call| Box::pin(error_reports::report(call)))
    .wildcard("workerPoolId")
    .input("report-worker-error-request.json")
    .output("worker-pool-error.json")
    .scopes(AllOf(REPORT))
    .about(INTERFACE, "Report an error from a worker")
    .describe(
        "For workers: reports a problem to the owners of the pool. Do not report secrets: \
             everybody who may list the errors of the pool can read the report.",
    ),
    on("workerPoolErrorStats", Get, "/worker-pool-errors/stats")
        .runs(|call| Box::pin(error_reports::stats(call)))
        .query(&[query("workerPoolId", ANY_POOL)])
        .output("worker-pool-error-stats.json")
        .scope("worker-manager:list-worker-pool-errors:<workerPoolId>")
        .experimental()
        .about(POOLS, "Count errors")
        .describe(
            "How often errors were reported, by day, hour, title, code, pool and launch config; of \
             one pool, or of all pools if none is named.",
        ),
    on(
        "listWorkerPoolErrors",
        Get,
        "/worker-pool-errors/<workerPoolId>",
    )
    .runs(|call| Box::pin(error_reports::list(call)))
    .wildcard("workerPoolId")
    .query(&[
        TOKEN,
        LIMIT,
        LAUNCH_CONFIG,
        query("errorId", ERROR_ID_QUERY),
    ])
    .output("worker-pool-error-list.json")
    .scope("worker-manager:list-worker-pool-errors:<workerPoolId>")
    .about(POOLS, "List a pool's errors")
    .describe("Errors reported by providers and workers, newest first."),
    on("listWorkersForWorkerGroup", Get, GROUP)
        .runs(|call| Box::pin(workers::list_group(call)))
        .alias("listWorkersForWorkerGroupWithColon", GROUP_COLON)
        .query(PAGING)
        .output("worker-list.json")
        .scope("worker-manager:list-workers:<workerPoolId>/<workerGroup>")
        .about(WORKERS, "List the workers of a group")
        .describe("The workers of one group of a pool, newest first, including stopped ones."),
    on("worker", Get, WORKER)
        .runs(|call| Box::pin(workers::show(call)))
        .alias("workerWithColon", WORKER_COLON)
        .output("worker-full.json")
        .scope("worker-manager:get-worker:<workerPoolId>/<workerGroup>/<workerId>")
        .about(WORKERS, "Show a worker")
        .describe("A worker, as the worker manager knows it."),
    on("createWorker", Put, WORKER)
        .runs(|call| Box::pin(workers::create(call)))
        .alias("createWorkerWithColon", WORKER_COLON)
        .input("create-worker-request.json")
        .output("worker-full.json")
        .payload(Payload::WithoutSecret)
        .scope("worker-manager:create-worker:<workerPoolId>/<workerGroup>/<workerId>")
        .about(WORKERS, "Declare a worker")
        .describe(
            "Declares a worker that was not launched by the worker manager, if the pool's provider \
             has such workers. The id of a worker cannot be used again until its row has expired, \
             even after the worker was removed. To change a worker, use `updateWorker`.",
        ),
    on("updateWorker", Post, WORKER)
        .runs(|call| Box::pin(workers::update(call)))
        .alias("updateWorkerWithColon", WORKER_COLON)
        .input("create-worker-request.json")
        .output("worker-full.json")
        .payload(Payload::WithoutSecret)
        .scope("worker-manager:update-worker:<workerPoolId>/<workerGroup>/<workerId>")
        .about(WORKERS, "Change a declared worker")
        .describe(
            "Changes a worker's expiration, capacity and secret. Omitted fields do not change.",
        ),
    on("removeWorker", Delete, WORKER)
        .runs(|call| Box::pin(workers::remove(call)))
        .scope("worker-manager:remove-worker:<workerPoolId>/<workerGroup>/<workerId>")
        .about(WORKERS, "Remove a worker")
        .describe("Ends a worker, whether it is busy or not. May be repeated."),
    on(
        "shouldWorkerTerminate",
        Get,
        "/workers/<workerPoolId>/<workerGroup>/<workerId>/should-terminate",
    )
    .runs(|call| Box::pin(workers::should_terminate(call)))
    .output("should-worker-terminate-response.json")
    .scope("worker-manager:should-worker-terminate:<workerPoolId>/<workerGroup>/<workerId>")
    .experimental()
    .about(WORKERS, "Ask whether a worker should stop")
    .describe(
        "For workers, before they claim work: returns the last decision about the worker and \
             its reason.",
    ),
    on("workerLaunchConfig", Get, WORKER_LAUNCH_CONFIG)
        .runs(|call| Box::pin(launch_config_status::of_worker(call)))
        .output("worker-launch-config-response.json")
        .scope("worker-manager:should-worker-terminate:<workerPoolId>/<workerGroup>/<workerId>")
        .experimental()
        .about(
            LAUNCH_CONFIGS,
            "Ask whether a worker's launch config is active",
        )
        .describe(
            "For workers of every kind, between two tasks: returns whether the launch config of \
             the worker is `active`, `paused` or `archived`. A worker whose launch config is \
             archived finishes its tasks and stops; a pause concerns new workers only. For a \
             worker without a launch config, such as a declared one, the config of its pool \
             counts: it is `active` while the pool has the provider of the worker.",
        ),
    on("listWorkersForWorkerPool", Get, "/workers/<workerPoolId>")
        .runs(|call| Box::pin(workers::list_pool(call)))
        .wildcard("workerPoolId")
        .query(&[
            TOKEN,
            LIMIT,
            LAUNCH_CONFIG,
            query("state", POOL_WORKER_STATE),
        ])
        .output("worker-list.json")
        .scope("worker-manager:list-workers:<workerPoolId>")
        .about(WORKERS, "List the workers of a pool")
        .describe("All workers of a pool, newest first, including stopped ones."),
    on("registerWorker", Post, "/worker/register")
        .runs(|call| Box::pin(registration::register(call)))
        .input("register-worker-request.json")
        .output("register-worker-response.json")
        .payload(Payload::Omitted)
        .about(INTERFACE, "Register a worker")
        .describe(
            "For workers: verifies the worker's identity and returns credentials, its \
             configuration and a secret for the next registration. Needs no credentials, only the \
             proof of identity.",
        ),
    on("reregisterWorker", Post, "/worker/reregister")
        .runs(|call| Box::pin(registration::reregister(call)))
        .input("reregister-worker-request.json")
        .output("reregister-worker-response.json")
        .payload(Payload::Omitted)
        .scope("worker-manager:reregister-worker:<workerPoolId>/<workerGroup>/<workerId>")
        .experimental()
        .about(INTERFACE, "Renew a worker's credentials")
        .describe(
            "For workers: exchanges the secret of the last registration for new credentials and a \
             new secret. Refused if the worker's launch config is archived.",
        ),
    on("listWorkers", Get, METADATA_LIST)
        .runs(|call| Box::pin(list_workers::list(call)))
        .query(&[
            TOKEN,
            LIMIT,
            LAUNCH_CONFIG,
            query("quarantined", YES_NO),
            query("workerState", WORKER_STATE),
        ])
        .output("list-workers-response.json")
        .scope("worker-manager:list-workers:<provisionerId>/<workerType>")
        .experimental()
        .about(METADATA, "List workers with the queue's data")
        .describe(
            "The workers that have asked the queue for work, with the worker manager's data. \
             Workers of no provider are `standalone`.",
        ),
    on("getWorker", Get, METADATA_ONE)
        .runs(|call| Box::pin(list_workers::show(call)))
        .output("worker-response.json")
        .scope("worker-manager:get-worker:<provisionerId>/<workerType>/<workerGroup>/<workerId>")
        .experimental()
        .about(METADATA, "Show a worker with the queue's data")
        .describe("The recent tasks of a worker, its quarantine, and the worker manager's data."),
    on("setBudget", Put, ONE_BUDGET)
        .runs(|call| Box::pin(budgets::set(call)))
        .input("set-budget-request.json")
        .output("budget-full.json")
        .scopes(AllOf(BUDGET))
        .about(BUDGETS, "Set a budget")
        .describe(
            "Limits what is spent on machines of pools, of the pools of an owner, or of a \
             provider, in each hour, day or month (UTC). At shares of the limit a warning is sent \
             and the maximum of the pools is lowered; when it is spent, nothing is launched. \
             Machines that run go on. The same request again changes nothing.",
        ),
    on("budget", Get, ONE_BUDGET)
        .runs(|call| Box::pin(budgets::show(call)))
        .output("budget-full.json")
        .scope("worker-manager:get-budget:<budgetId>")
        .about(BUDGETS, "Show a budget")
        .describe("The limit of a budget, and what is spent and left in the present period."),
    on("listBudgets", Get, "/budgets")
        .runs(|call| Box::pin(budgets::list(call)))
        .query(PAGING)
        .output("budget-list.json")
        .scope("worker-manager:list-budgets")
        .about(BUDGETS, "List budgets")
        .describe("All budgets, ordered by their ids."),
    on("removeBudget", Delete, ONE_BUDGET)
        .runs(|call| Box::pin(budgets::remove(call)))
        .scopes(AllOf(BUDGET))
        .about(BUDGETS, "Remove a budget")
        .describe("Nothing is limited by it any more."),
    on("setOverride", Put, ONE_OVERRIDE)
        .runs(|call| Box::pin(overrides::set(call)))
        .input("set-override-request.json")
        .output("override-full.json")
        .scopes(AllOf(OVERRIDE))
        .about(OVERRIDES, "Set an override")
        .describe(
            "Pauses launches of a worker pool (also named by its worker type), a launch config, a \
             worker configuration, a provider or a region for a time, or gives a worker pool other \
             limits. An override has a reason and an end, and ends by \
             itself. The same request again changes nothing; another reason, effect or end changes \
             the override. Its target cannot be changed.",
        ),
    on("override", Get, ONE_OVERRIDE)
        .runs(|call| Box::pin(overrides::show(call)))
        .output("override-full.json")
        .scope("worker-manager:get-override:<overrideId>")
        .about(OVERRIDES, "Show an override")
        .describe("The effect, the end and the reason of an override."),
    on("listOverrides", Get, "/overrides")
        .runs(|call| Box::pin(overrides::list(call)))
        .query(&[TOKEN, LIMIT, query("includeEnded", YES_NO)])
        .output("override-list.json")
        .scope("worker-manager:list-overrides")
        .about(OVERRIDES, "List overrides")
        .describe(
            "The overrides in force, ordered by their ids; with `includeEnded=true` also those \
             that have ended in the last 30 days.",
        ),
    on("removeOverride", Delete, ONE_OVERRIDE)
        .runs(|call| Box::pin(overrides::remove(call)))
        .scopes(AllOf(OVERRIDE))
        .about(OVERRIDES, "Remove an override")
        .describe("Ends an override early and deletes it."),
    on(
        "pauseLaunchConfig",
        Post,
        "/launch-config/<workerPoolId>/<launchConfigId>/pause",
    )
    .runs(|call| Box::pin(overrides::pause_launch_config(call)))
    .input("pause-launch-config-request.json")
    .output("override-full.json")
    .scopes(AllOf(OVERRIDE))
    .about(OVERRIDES, "Pause a launch config")
    .describe(
        "As in RFC 191: an override with the name `pause.<provisioner>.<worker type>.<launch \
             config>` that pauses launches from the launch config for a time.",
    ),
    on(
        "resumeLaunchConfig",
        Post,
        "/launch-config/<workerPoolId>/<launchConfigId>/resume",
    )
    .runs(|call| Box::pin(overrides::resume_launch_config(call)))
    .scopes(AllOf(OVERRIDE))
    .about(OVERRIDES, "Resume a launch config")
    .describe(
        "Ends such a pause early. Other overrides that pause the launch config stay in force.",
    ),
];
