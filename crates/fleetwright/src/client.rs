//! The client's side of the HTTP API: who we are, how a call is signed, sent, retried and paged.

mod call;
mod config_file;
mod credentials;
mod pages;
mod problem;
mod retry;
mod send;

pub(crate) use call::{AUTH, Call, FLEETWRIGHT, QUEUE, WORKER_MANAGER};
pub(crate) use config_file::ConfigFile;
pub(crate) use credentials::{Credentials, Flags, Settings, from_environment, resolve};
pub(crate) use problem::NOT_OUR_SERVER;
pub(crate) use send::{Client, JSON, Opened, is_loopback, signature};
