//! The HTTP API, the background tasks, the configuration, and how they are wired together.
#![doc = include_str!("../README.md")]

pub mod api;
pub mod app;
pub mod artifacts;
pub mod change;
pub mod clock;
pub mod config;
pub mod demand;
pub mod doctor;
pub mod events;
pub mod fleet;
pub mod gate;
mod issuer;
pub mod listening;
pub mod notify;
mod open_files;
pub mod queue;
pub mod random;
pub mod rate_limit;
pub mod run;
pub mod service;
pub mod start;
pub mod tasks;
pub mod telemetry;
pub mod tls;
mod unheard;
pub mod vitals;
pub mod wake;
pub mod wakeups;

pub use run::{RunError, run};
