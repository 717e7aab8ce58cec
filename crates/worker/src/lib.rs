//! The reference worker: registers, claims tasks, runs them, and reports their outcomes.
#![doc = include_str!("../README.md")]

mod api;
mod artifacts;
pub mod aws;
mod client;
mod credentials;
mod folders;
mod guardian;
mod identity;
mod log;
mod machine;
mod payload;
mod process;
mod registration;
mod registration_state;
pub mod relay;
mod run;
mod settings;
mod state;
mod stop;
mod stragglers;
mod tenure;
mod text;
mod worker;

pub use client::{CallError, NoClient};
pub use folders::UnusableFolder;
pub use identity::{BadIdentity, Identity, Kind, Names, Proof};
pub use machine::Machine;
pub use registration::RegistrationError;
pub use registration_state::RegistrationState;
pub use settings::BadSettings;

pub use stop::{Stop, Stops};
pub use worker::{Worker, WorkerError, keep_to_itself};
