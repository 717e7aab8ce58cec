//! Worker configurations, their worker types and their documentation.

pub mod configuration_versions;
pub mod configurations;
pub mod documentation;
pub mod worker_types;
