//! The commands: one file for each group.

pub(crate) mod audit;
mod body;
pub(crate) mod budget;
pub(crate) mod builder;
pub(crate) mod client;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod cost;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod documentation;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod explain;
pub(crate) mod first_pool;
mod first_role;
pub(crate) mod health;
pub(crate) mod image;
pub(crate) mod keys;
pub(crate) mod launch_config;
#[cfg(not(all(feature = "import", feature = "simulate")))]
pub(crate) mod left_out;
pub(crate) mod migrate;
mod name;
pub(crate) mod named_workers;
pub(crate) mod open;
pub(crate) mod overrides;
pub(crate) mod pool;
pub(crate) mod process;
pub(crate) mod provider;
mod provider_test;
pub(crate) mod queue;
pub(crate) mod relay;
mod remaining_workers;
pub(crate) mod role;
pub(crate) mod rules;
pub(crate) mod run_worker;
mod runs;
pub(crate) mod scope;
pub(crate) mod secret;
mod selected_workers;
pub(crate) mod series;
pub(crate) mod serve;
#[cfg(feature = "simulate")]
pub(crate) mod simulate;
pub(crate) mod startup;
pub(crate) mod status;
pub(crate) mod task;
pub(crate) mod tree;
pub(crate) mod up;
pub(crate) mod version;
pub(crate) mod wait;
pub(crate) mod worker;

use crate::session::{Confirmed, Consent, Limit, Session};
