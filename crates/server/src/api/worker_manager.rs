//! The worker manager: pools, launch configs, workers, registration, errors.

mod configurations;
mod documentation;
mod documentation_table;
mod error_reports;
mod launch_configs;
mod list_workers;
pub(in crate::api) mod monitoring;
mod overrides;
mod pool_plan;
mod pools;
mod providers;
mod registration;
mod state;
mod stats;
mod table;
mod wire;
mod workers;

pub(in crate::api) use configurations::CONFIGURATIONS;
pub use documentation_table::DOCUMENTATION;
pub(in crate::api) use pool_plan::ENDPOINTS as POOL_PLANS;
pub(in crate::api) use state::STATES;
pub use table::ENDPOINTS;
pub(in crate::api) use table::{LIMIT, MONITORING, TOKEN};
