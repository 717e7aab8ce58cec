#![doc = include_str!("../README.md")]

pub mod access;
pub mod artifacts;
pub mod availability;
pub mod budgets;
pub mod cache_purges;
pub mod change;
pub mod clock;
pub mod configurations;
pub mod costs;
pub mod database_clock;
pub mod demand;
mod engine;
mod fair_limiter;
pub mod fleet;
pub mod image_references;
pub mod images;
pub mod issuer;
pub mod keyed_wakeups;
pub mod measures;
pub mod overrides;
pub mod phase_measures;
pub mod pools;
pub mod queue;
pub mod random;
pub mod rate_limit;
pub mod relays;
pub mod series;
pub mod status;
pub mod strategy_services;
pub mod taskcluster_records;
pub mod tree;
pub mod undo_guard;
pub mod wakeups;
pub mod work_limiter;
pub mod workers;

pub use engine::Engine;
