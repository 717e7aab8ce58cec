//! The HTTP API, the background tasks, the configuration, and how they are wired together.

pub mod api;
pub mod app;
pub mod clock;
pub mod config;
pub mod doctor;
pub mod gate;
pub mod run;
pub mod start;
pub mod tasks;
pub mod telemetry;
pub mod wake;

pub use run::{RunError, run};
