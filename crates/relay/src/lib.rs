//! The relay of a datacentre: gives credentials to hosts that it identifies by DNS.
#![doc = include_str!("../README.md")]

mod answer;
mod cache;
mod config;
mod host_name;
mod host_rule;
mod identify;
mod listener;
mod machine;
mod records;
mod refusal_log;
mod request_rates;
mod resolver;
mod sightings;
mod worker_manager;

pub use config::{BadConfig, Config};
pub use host_name::HostName;
pub use identify::{Refusal, identify};
pub use listener::{RelayError, Surroundings, run};
pub use machine::Machine;
pub use resolver::{LookupError, Resolver};
