//! Pools, launch configs, workers, registration, errors.

mod budgets;
mod configurations;
mod documentation;
mod documentation_table;
mod error_reports;
mod image_use;
mod kept_replies;
mod launch_config_status;
mod launch_configs;
mod list_workers;
pub(super) mod monitoring;
mod overrides;
mod pool_plan;
mod pools;
mod provider_test;
mod providers;
mod registration;
mod relays;
mod selected_workers;
mod state;
mod stats;
mod table;
mod take_over;
mod wire;
mod workers;

pub(super) use budgets::budgets_json;
pub(super) use configurations::CONFIGURATIONS;
pub(super) use documentation_table::DOCUMENTATION;
pub(super) use pool_plan::ENDPOINTS as POOL_PLANS;
pub(super) use provider_test::ENDPOINTS as PROVIDER_TESTS;
pub(super) use relays::ENDPOINTS as RELAYS;
pub(super) use selected_workers::SELECTED_WORKERS;
pub(super) use state::STATES;
pub(super) use table::ENDPOINTS;
pub(super) use take_over::ENDPOINTS as TAKE_OVER;

use super::endpoint::{NewEndpoint, Service, Verb};

const fn on(name: &'static str, method: Verb, route: &'static str) -> NewEndpoint {
    NewEndpoint::new(Service::WorkerManager, name, method, route)
}
