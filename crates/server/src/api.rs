//! The HTTP API: one table of endpoints, and the steps of every request.

mod advice;
mod artifact_origin;
pub mod auth;
pub mod body;
mod body_chunk;
pub mod call;
mod client_address;
mod client_stream;
mod compression;
pub mod conditions;
mod documents;
pub mod endpoint;
pub mod error;
pub mod fleetwright;
mod head_timer;
mod json_memory;
pub mod listener;
pub mod openapi;
pub mod pages;
pub mod paging;
pub mod purge_cache;
mod query;
pub mod queue;
pub mod raw_body;
pub mod read_body;
pub mod references;
pub mod reply;
pub mod request;
pub mod request_head;
pub mod response;
pub mod route;
pub mod secrets;
mod store_error;
mod unserved;
mod web;
pub mod worker_manager;
mod write_timeout;

use std::sync::OnceLock;

use endpoint::{Endpoint, Service};

/// Every endpoint of every service, in the order of the published references.
pub fn endpoints() -> &'static [Endpoint] {
    static ALL: OnceLock<Vec<Endpoint>> = OnceLock::new();
    ALL.get_or_init(|| {
        use worker_manager::{
            CONFIGURATIONS, DOCUMENTATION, POOL_PLANS, PROVIDER_TESTS, RELAYS, SELECTED_WORKERS,
            STATES, TAKE_OVER,
        };
        // The contract mixes tasks and views.
        let queue = [
            queue::TASKS,
            queue::ARTIFACTS,
            queue::PROVISIONERS,
            queue::COUNTS,
            queue::VIEWS,
        ];
        [
            monitored(Service::WorkerManager, worker_manager::ENDPOINTS),
            [
                CONFIGURATIONS,
                POOL_PLANS,
                SELECTED_WORKERS,
                STATES,
                RELAYS,
                TAKE_OVER,
                PROVIDER_TESTS,
                DOCUMENTATION,
            ]
            .concat(),
            monitored(Service::Queue, &queue.concat()),
            monitored(Service::Auth, auth::ENDPOINTS),
            monitored(Service::PurgeCache, purge_cache::ENDPOINTS),
            monitored(Service::Secrets, secrets::ENDPOINTS),
            [
                fleetwright::ENDPOINTS,
                fleetwright::LISTS,
                fleetwright::IMAGES,
                queue::FILES,
            ]
            .concat(),
        ]
        .concat()
    })
}

/// A service's endpoints, between those that all of Taskcluster's services have.
fn monitored(service: Service, endpoints: &[Endpoint]) -> Vec<Endpoint> {
    let (first, last) = worker_manager::monitoring::endpoints(service);
    [&first, endpoints, &[last]].concat()
}

/// The endpoints of one service.
pub fn endpoints_of(service: Service) -> impl Iterator<Item = &'static Endpoint> {
    endpoints()
        .iter()
        .filter(move |endpoint| endpoint.service == service)
}
