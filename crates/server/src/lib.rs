//! The HTTP API, the background tasks, the configuration, and how they are wired together.
#![doc = include_str!("../README.md")]

pub mod api;
pub mod app;
pub mod authentication;
pub mod background;
mod build_logs;
pub mod builder;
pub mod config;
mod configured_providers;
pub mod doctor;
pub mod events;
pub mod exposure;
mod finding;
mod fleet_status;
pub mod health;
pub mod hosts;
mod image_secrets;
pub mod limits;
mod log_repeats;
pub mod notify;
mod open_files;
pub mod openid;
mod pool_replies;
pub mod run;
pub mod service;
pub mod start;
pub mod telemetry;
pub mod tree;
mod what_if;

pub use run::{RunError, run, run_with};
