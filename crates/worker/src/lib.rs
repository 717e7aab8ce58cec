//! The reference worker: registers, claims tasks, runs them, and reports their outcomes.
#![doc = include_str!("../README.md")]

mod api;
mod artifacts;
mod aws;
mod azure;
mod client;
mod credentials;
mod folders;
mod google;
mod guardian;
mod identity;
mod instance;
mod log;
mod machine;
mod metadata;
mod mounts;
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
pub use instance::{Cloud, Instance};
pub use machine::Machine;
pub use metadata::{METADATA_URL, MetadataError};
pub use registration::RegistrationError;
pub use registration_state::RegistrationState;
pub use settings::BadSettings;

pub use stop::{Stop, Stops};
pub use worker::{Worker, WorkerError, keep_to_itself};
