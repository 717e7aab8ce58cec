//! The HTTP API: one table of endpoints, and the steps of every request.

pub mod auth;
pub mod body;
mod body_chunk;
pub mod call;
mod client_address;
mod documents;
pub mod endpoint;
pub mod error;
pub mod fleetwright;
mod json_memory;
pub mod listener;
pub mod openapi;
pub mod pages;
pub mod paging;
pub mod purge_cache;
mod query;
pub mod queue;
pub mod raw_body;
mod read_body;
pub mod references;
pub mod reply;
pub mod request;
pub mod request_head;
pub mod response;
pub mod route;
pub mod worker_manager;
mod write_timeout;

use std::sync::OnceLock;

use endpoint::{Endpoint, Service};

/// Every endpoint of every service, in the order of the published references.
pub fn endpoints() -> &'static [Endpoint] {
    static ALL: OnceLock<Vec<Endpoint>> = OnceLock::new();
    ALL.get_or_init(|| {
        [
            worker_manager::ENDPOINTS,
            worker_manager::CONFIGURATIONS,
            worker_manager::POOL_PLANS,
            worker_manager::STATES,
            worker_manager::DOCUMENTATION,
            &queue::endpoints(),
            auth::ENDPOINTS,
            purge_cache::ENDPOINTS,
            fleetwright::ENDPOINTS,
            queue::FILES,
        ]
        .concat()
    })
}

/// The endpoints of one service.
pub fn endpoints_of(service: Service) -> impl Iterator<Item = &'static Endpoint> {
    endpoints()
        .iter()
        .filter(move |endpoint| endpoint.service == service)
}
