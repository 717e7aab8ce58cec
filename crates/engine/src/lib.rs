#![doc = include_str!("../README.md")]

pub mod access;
pub mod artifacts;
pub mod cache_purges;
pub mod change;
pub mod clock;
pub mod configurations;
pub mod demand;
mod engine;
pub mod fleet;
pub mod issuer;
pub mod listening;
pub mod measures;
pub mod overrides;
pub mod pools;
pub mod queue;
pub mod random;
pub mod rate_limit;
pub mod turns;
pub mod unheard;
pub mod wake;
pub mod wakeups;
pub mod workers;

pub use engine::Engine;
