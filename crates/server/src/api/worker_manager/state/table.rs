//! The endpoints of the state of workers, in the order in which they are published.

use access::scope::Template::Scope;

use super::super::super::endpoint::Verb::Get;
use super::super::super::endpoint::{Endpoint, Handler, Service, Verb};
use super::super::table::PAGING;

const STATE: &str = "Worker State";

const fn on(name: &'static str, method: Verb, route: &'static str, handler: Handler) -> Endpoint {
    Endpoint::new(Service::WorkerManager, name, method, route, handler)
}

pub(in crate::api) const ENDPOINTS: &[Endpoint] = &[
    on(
        "workerState",
        Get,
        "/worker-state/<workerPoolId>/<workerGroup>/<workerId>",
        |call| Box::pin(super::of_worker(call)),
    )
    .query(PAGING)
    .output("worker-state.json")
    .scopes(Scope("worker-manager:get-worker-state:<workerPoolId>"))
    .about(
        STATE,
        "List a worker's last task runs",
        "The results of a worker's last task runs, newest first: up to 20 of the runs that are \
         kept for its pool, with counts by result.",
    ),
    on(
        "workerPoolState",
        Get,
        "/worker-state/pool/<workerPoolId>",
        |call| Box::pin(super::of_pool(call)),
    )
    .query(PAGING)
    .output("worker-pool-state.json")
    .scopes(Scope("worker-manager:get-worker-state:<workerPoolId>"))
    .about(
        STATE,
        "List the last task runs in a pool",
        "The results of the last task runs on the workers of a pool, newest first, with counts by \
         result over an hour, a day and a week.",
    ),
    on(
        "workerTypeState",
        Get,
        "/worker-state/worker-type/<workerType>",
        |call| Box::pin(super::of_worker_type(call)),
    )
    .query(PAGING)
    .output("worker-pool-state.json")
    .scopes(Scope(
        "worker-manager:get-worker-state:worker-manager/<workerType>",
    ))
    .about(
        STATE,
        "List the last task runs of a worker type",
        "The same as `workerPoolState` of the pool `worker-manager/<workerType>`.",
    ),
    on(
        "workerConfigurationState",
        Get,
        "/worker-state/configuration/<workerConfigurationId>",
        |call| Box::pin(super::of_configuration(call)),
    )
    .query(PAGING)
    .output("worker-configuration-state.json")
    .scopes(Scope(
        "worker-manager:get-worker-configuration:<workerConfigurationId>",
    ))
    .about(
        STATE,
        "List the last task runs of a worker configuration",
        "The results of the last task runs on the workers of all pools of a worker configuration, \
         newest first, with counts by result over an hour, a day and a week.",
    ),
];
