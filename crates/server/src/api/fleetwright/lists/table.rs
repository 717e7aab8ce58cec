//! The endpoints of fleet-wide lists, in the order in which they are published.

use contract::patterns::{GENERIC_ID, LAUNCH_CONFIG_ID_QUERY, WORKER_POOL_ID};

use super::super::{MOMENT, on};
use super::{all_workers, audit, error_causes, named_workers, processes, providers, startup};
use crate::api::endpoint::Verb::{Get, Post};
use crate::api::endpoint::{Endpoint, LIMIT, PAGING, Query, TOKEN, query};

const WORKERS: &str = "Workers";
const AUDIT: &str = "Audit";
const HISTORY: &str = "History";
const ERRORS: &str = "Errors";
const DEPLOYMENT: &str = "Deployment";

const POOL: Query = query("workerPoolId", WORKER_POOL_ID);

const ALL_WORKERS: &[Query] = &[
    POOL,
    query("providerId", GENERIC_ID),
    query("launchConfigId", LAUNCH_CONFIG_ID_QUERY),
    query("state", "^(requested|running|stopping|stopped)$"),
    query("presence", "^(busy|idle|quarantined|draining|silent)$"),
    query("search", r"^[a-zA-Z0-9/_-]{1,80}$"),
    TOKEN,
    LIMIT,
];

const ENTRIES: &[Query] = &[
    query("entityType", "^[a-z-]{1,40}$"),
    query("entityId", "^.{1,1000}$"),
    query("clientId", "^.{1,1000}$"),
    query("since", MOMENT),
    query("until", MOMENT),
    TOKEN,
    LIMIT,
];

pub(in crate::api) const ENDPOINTS: &[Endpoint] = &[
    on("listAllWorkers", Get, "/workers")
        .runs(|call| Box::pin(all_workers::list(call)))
        .query(ALL_WORKERS)
        .output("all-workers.json")
        .scope("fleetwright:list-workers")
        .about(WORKERS, "List the workers of all pools")
        .describe(
            "The workers of all pools, newest first, with what they do now. Stopped workers are \
             only listed with `state=stopped`. Workers of pools that the caller may not list \
             (`worker-manager:list-workers:<workerPoolId>`) are left out: a page may be short, or \
             empty, and still have a `continuationToken`. `presence` says what a running worker \
             does: `busy`, `quarantined`, `draining`, `silent` (it has not asked for a task for \
             some minutes) or `idle`, the first that applies; as a filter, `quarantined` and \
             `draining` also find busy workers. It is only known with the built-in queue. `search` \
             is a part of the worker's id, group or pool.",
        ),
    on("endWorkers", Post, "/workers/end")
        .runs(|call| Box::pin(named_workers::end(call)))
        .input("end-workers-request.json")
        .output("worker-results.json")
        .scope("fleetwright:end-workers")
        .about(WORKERS, "End some workers")
        .describe(
            "Ends up to 500 workers, whether they are busy or not, as `removeWorker` ends one. With \
             `drain` a running worker is asked to stop after its tasks instead, and no plan \
             withdraws this. The caller needs \
             `worker-manager:remove-worker:<workerPoolId>/<workerGroup>/<workerId>` for each \
             worker; others are `forbidden` and stay. The reply has a result for each worker. A \
             call may be repeated.",
        ),
    on("quarantineWorkers", Post, "/workers/quarantine")
        .runs(|call| Box::pin(named_workers::quarantine(call)))
        .input("quarantine-workers-request.json")
        .output("worker-results.json")
        .scope("fleetwright:quarantine-workers")
        .about(WORKERS, "Quarantine some workers")
        .describe(
            "Gives up to 500 workers no tasks until `quarantineUntil`, as the queue's \
             `quarantineWorker` does for one; a moment in the past ends their quarantine. The \
             caller needs \
             `queue:quarantine-worker:<provisionerId>/<workerType>/<workerGroup>/<workerId>` for \
             each worker; others are `forbidden`. Only with the built-in queue.",
        ),
    on("listAudit", Get, "/audit")
        .runs(|call| Box::pin(audit::list(call)))
        .query(ENTRIES)
        .output("audit.json")
        .scope("fleetwright:read-audit")
        .about(AUDIT, "List the audit log")
        .describe(
            "The changes of all objects, newest first, with the address and the request of each \
             change: of one type (`entityType`), of one object (`entityId`, with its type), or by \
             one client, from `since` up to `until`.",
        ),
    on("readStartup", Get, "/startup")
        .runs(|call| Box::pin(startup::read(call)))
        .query(&[POOL, query("since", MOMENT)])
        .output("startup.json")
        .scope("fleetwright:read-startup")
        .about(HISTORY, "Read how long machines take to start")
        .describe(
            "How long machines took to start that were made since `since` (by default a day ago), \
             by region of a provider and by launch config: from the decision to the request, to \
             the answer of the provider, to the registration, and to the first request for work. \
             At most 10,000 machines are measured, the newest; `since` in the reply says from when \
             on. Only pools that the caller may explain count.",
        ),
    on("listErrorCauses", Get, "/error-causes")
        .runs(|call| Box::pin(error_causes::list(call)))
        .query(&[
            POOL,
            query("since", MOMENT),
            query("order", "^(newest|most)$"),
            TOKEN,
            LIMIT,
        ])
        .output("error-causes.json")
        .scope("fleetwright:list-error-causes")
        .about(ERRORS, "List the causes of errors")
        .describe(
            "The errors that providers and workers reported since `since` (by default a day ago), \
             over all pools, grouped by cause: errors with the same kind, title and code, and with \
             the same description apart from numbers, ids and names of machines. Each cause has \
             its number of errors, the first and the last, the numbers of the last 24 hours, one \
             of the newest errors as an example, and the 10 pools and launch configs with the most \
             errors. `order` is `newest` (the default) or `most`. Only pools whose errors the \
             caller may list count. A page has at most 100 causes.",
        ),
    on("listProviderStates", Get, "/providers")
        .runs(|call| Box::pin(providers::list(call)))
        .output("provider-states.json")
        .scope("fleetwright:list-provider-states")
        .about(DEPLOYMENT, "List providers with their state")
        .describe(
            "Each configured provider: whether it is in service, why not, and when it is set up \
             again; its workers by state and place, with the agreed prices of the machines that \
             run; the machines that failed to start in the last hour, by cause; how many machines \
             it takes; and how often its regions may be called now, with the share that is used \
             and the end of a pause after the cloud throttled calls. State and call budgets are \
             those of the process that answers.",
        ),
    on("listProcesses", Get, "/processes")
        .runs(|call| Box::pin(processes::list(call)))
        .query(PAGING)
        .output("processes.json")
        .scope("fleetwright:list-processes")
        .about(DEPLOYMENT, "List the processes of the deployment")
        .describe(
            "The processes that share this database, with their roles, version, the difference \
             between their clock and the database's, and the leases that they hold. Each announces \
             itself every 30 seconds; one that does not is silent, and is forgotten after a day. A \
             process that stops in order is forgotten at once.",
        ),
];
