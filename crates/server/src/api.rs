//! The HTTP API: one table of endpoints, and the steps that every request takes.

pub mod auth;
pub mod body;
pub mod call;
mod documents;
pub mod endpoint;
pub mod error;
pub mod fleetwright;
pub mod head;
mod impatient;
mod json_weight;
pub mod listener;
pub mod openapi;
pub mod pages;
pub mod paging;
mod piece;
pub mod purge_cache;
mod query;
pub mod queue;
pub mod raw_body;
mod read_body;
pub mod references;
pub mod reply;
pub mod request;
pub mod response;
pub mod route;
mod sender;
pub mod worker_manager;

use std::sync::OnceLock;

use endpoint::{Endpoint, Service};

/// Every endpoint of every service, in the order in which they are published.
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
