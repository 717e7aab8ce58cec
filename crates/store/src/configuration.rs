//! Worker configurations, their worker types and their documentation.

pub(crate) mod configuration_versions;
pub(crate) mod configurations;
pub(crate) mod documentation;
pub(crate) mod worker_types;
