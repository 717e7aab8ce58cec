//! The rules of Fleetwright as plain values and functions: pools, workers, plans, tasks. No I/O.
#![doc = include_str!("../README.md")]

pub mod access;
pub mod artifact;
pub mod audit;
pub mod configuration;
pub mod counts;
pub mod demand;
pub mod documentation;
pub mod error_report;
pub mod event;
pub mod facts;
pub mod id;
pub mod image;
pub mod json_text;
pub mod judge;
pub mod launch;
pub mod launch_config;
pub mod launch_config_state;
pub mod launch_failures;
pub mod lifecycle;
pub mod market;
pub mod overrides;
pub mod plan;
pub mod pool;
pub mod provider_list;
pub mod queue_worker;
pub mod recording;
pub mod run_outcome;
pub mod supply;
pub mod task;
pub mod time;
pub mod version;
pub mod worker;
pub mod worker_credentials;

pub use version::Version;
