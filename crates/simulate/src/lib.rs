//! A simulated world that drives the production planner: loads, clouds, metrics. No I/O.
#![doc = include_str!("../README.md")]

pub mod canary;
pub mod fleet;
pub mod history;
pub mod metrics;
pub mod offering;
pub mod page;
pub mod planner;
pub mod recording;
pub mod scenario;
pub mod statistics;
pub mod strategy;
pub mod study;
pub mod trace;
pub mod trace_report;

mod draws;
mod units;
mod world;

pub use world::simulate;
