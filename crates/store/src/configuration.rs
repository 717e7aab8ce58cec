//! Worker configurations with worker types and documentation; images.

pub mod canary_trials;
pub mod configuration_versions;
pub mod configurations;
pub mod documentation;
pub mod image_rollouts;
pub mod image_users;
pub mod image_versions;
pub mod images;
pub mod worker_types;
