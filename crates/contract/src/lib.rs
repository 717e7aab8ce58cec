//! The wire contract as data: the JSON Schemas of the services, and validation by them.
#![doc = include_str!("../README.md")]

mod defaults;
mod files;
mod formats;
mod measured_value;
pub mod numbers;
pub mod patterns;
mod payload_schema;
mod problems;
mod schemas;
mod wording;

pub use payload_schema::{BadSchema, MAX_SCHEMA_BYTES, PayloadSchema};
pub use problems::{Invalid, MAX_PROBLEMS, Problem};
pub use schemas::Schemas;
