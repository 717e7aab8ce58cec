//! The endpoints of selections of workers, in the order in which they are published.

use access::scope::Template::{self, AllOf, AnyOf, If, Scope};
use contract::patterns::{CONFIGURATION_ID, GENERIC_ID, LAUNCH_CONFIG_ID_QUERY, WORKER_POOL_ID};

use super::super::on;
use crate::api::endpoint::Verb::{Get, Post};
use crate::api::endpoint::{Endpoint, LIMIT, Query, TOKEN, query};

const SELECTED: &str = "Selected Workers";
/// A name of a worker configuration's worker type, or a pool id.
const WORKER_TYPE: &str = r"^[a-zA-Z0-9-_]{1,38}(\/[a-z]([-a-z0-9]{0,36}[a-z0-9])?)?$";
/// A point in time, checked by its parser.
const MOMENT: &str = "^[0-9TZ:.+-]{1,40}$";

const POOL: Query = query("workerPoolId", WORKER_POOL_ID);
const TYPE: Query = query("workerType", WORKER_TYPE);
const CONFIG: Query = query("launchConfigId", LAUNCH_CONFIG_ID_QUERY);
const CONFIGURATION: Query = query("workerConfigurationId", CONFIGURATION_ID);
const PROVIDER: Query = query("providerId", GENERIC_ID);
const REGION: Query = query("region", GENERIC_ID);
const BEFORE: Query = query("createdBefore", MOMENT);

const SELECTION: &[Query] = &[
    TOKEN,
    LIMIT,
    POOL,
    TYPE,
    CONFIG,
    CONFIGURATION,
    PROVIDER,
    REGION,
];
const COUNTED: &[Query] = &[
    TOKEN,
    LIMIT,
    POOL,
    TYPE,
    CONFIG,
    CONFIGURATION,
    PROVIDER,
    REGION,
    BEFORE,
];

const READ: Template = If {
    condition: "ofWorkerPool",
    then: &Scope("worker-manager:list-workers:<workerPoolId>"),
    otherwise: &If {
        condition: "ofConfiguration",
        then: &Scope("worker-manager:get-worker-configuration:<workerConfigurationId>"),
        otherwise: &Scope("worker-manager:list-workers:*"),
    },
};

/// A caller that may end each of the workers, or change the worker configuration that made them.
const END: Template = If {
    condition: "ofWorkerPool",
    then: &If {
        condition: "ofWorkerType",
        then: &AnyOf(&[
            Scope("worker-manager:remove-worker:<workerPoolId>/*"),
            Scope("worker-manager:manage-worker-type:<workerType>"),
        ]),
        otherwise: &Scope("worker-manager:remove-worker:<workerPoolId>/*"),
    },
    otherwise: &If {
        condition: "ofConfiguration",
        then: &Scope("worker-manager:manage-worker-configuration:<workerConfigurationId>"),
        otherwise: &AllOf(&[
            Scope("worker-manager:provider:<providerId>"),
            Scope("worker-manager:remove-worker:*"),
        ]),
    },
};

pub(in crate::api) const ENDPOINTS: &[Endpoint] = &[
    on("listSelectedWorkers", Get, "/selected-workers")
        .runs(|call| Box::pin(super::list(call)))
        .query(SELECTION)
        .output("worker-list.json")
        .scopes(READ)
        .about(SELECTED, "List selected workers")
        .describe(
            "The workers of a worker pool, a worker type, a launch config, a worker configuration \
             or a provider that are not stopped, ordered by pool, group and id.",
        ),
    on("countSelectedWorkers", Get, "/selected-workers/counts")
        .runs(|call| Box::pin(super::count(call)))
        .query(COUNTED)
        .output("selected-worker-counts.json")
        .scopes(READ)
        .about(SELECTED, "Count selected workers")
        .describe(
            "The numbers of these workers by pool and state. It is the preview of \
             `endSelectedWorkers`: give its `createdBefore` to that call, which then spares \
             workers that were made later.",
        ),
    on("endSelectedWorkers", Post, "/selected-workers/end")
        .runs(|call| Box::pin(super::end(call)))
        .query(SELECTION)
        .input("end-selected-workers-request.json")
        .output("ended-workers.json")
        .scopes(END)
        .about(SELECTED, "End selected workers")
        .describe(
            "Ends these workers, whether they are busy or not, as `removeWorker` ends one. With \
             `drain` a running worker is asked to stop after its tasks instead, and no plan \
             withdraws this. One call ends at most 100 workers: repeat it with the \
             `continuationToken` of the reply. A call may be repeated.",
        ),
];
