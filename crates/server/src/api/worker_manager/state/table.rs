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
        "What became of the last task runs of a worker, newest first: up to 20 of those that are \
         kept of its pool, and how many of them ended how.",
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
        "What became of the last task runs on the workers of a pool, newest first, and how many \
         ended how over an hour, a day and a week.",
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
        "What `workerPoolState` tells of the pool `worker-manager/<workerType>`.",
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
        "What became of the last task runs on the workers of all pools that are made of a worker \
         configuration, newest first, and how many ended how over an hour, a day and a week.",
    ),
];
