//! The endpoints of the state of workers, in the order in which they are published.

use super::super::on;
use crate::api::endpoint::Verb::Get;
use crate::api::endpoint::{Endpoint, PAGING};

const STATE: &str = "Worker State";

pub(in crate::api) const ENDPOINTS: &[Endpoint] = &[
    on(
        "workerState",
        Get,
        "/worker-state/<workerPoolId>/<workerGroup>/<workerId>",
    )
    .runs(|call| Box::pin(super::of_worker(call)))
    .query(PAGING)
    .output("worker-state.json")
    .scope("worker-manager:get-worker-state:<workerPoolId>")
    .about(STATE, "List a worker's last task runs")
    .describe(
        "The results of a worker's last task runs, newest first: up to 20 of the runs that are \
             kept for its pool, with counts by result.",
    ),
    on("workerPoolState", Get, "/worker-state/pool/<workerPoolId>")
        .runs(|call| Box::pin(super::of_pool(call)))
        .query(PAGING)
        .output("worker-pool-state.json")
        .scope("worker-manager:get-worker-state:<workerPoolId>")
        .about(STATE, "List the last task runs in a pool")
        .describe(
            "The results of the last task runs on the workers of a pool, newest first, with counts \
             by result over an hour, a day and a week.",
        ),
    on(
        "workerTypeState",
        Get,
        "/worker-state/worker-type/<workerTypeId>",
    )
    .runs(|call| Box::pin(super::of_worker_type(call)))
    .wildcard("workerTypeId")
    .query(PAGING)
    .output("worker-pool-state.json")
    .scope("worker-manager:get-worker-state:<workerPoolId>")
    .about(STATE, "List the last task runs of a worker type")
    .describe(
        "The same as `workerPoolState` of the worker type's pool: `worker-manager/<name>` for a \
             name of a worker configuration, or else the pool with this id.",
    ),
    on(
        "workerConfigurationState",
        Get,
        "/worker-state/configuration/<workerConfigurationId>",
    )
    .runs(|call| Box::pin(super::of_configuration(call)))
    .query(PAGING)
    .output("worker-configuration-state.json")
    .scope("worker-manager:get-worker-configuration:<workerConfigurationId>")
    .about(STATE, "List the last task runs of a worker configuration")
    .describe(
        "The results of the last task runs on the workers of all pools of a worker \
             configuration, newest first, with counts by result over an hour, a day and a week.",
    ),
];
