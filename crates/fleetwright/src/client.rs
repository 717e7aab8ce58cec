//! The command line's side of the HTTP API: who we are, what is tried again, paged and said of errors.

mod call;
mod config_file;
mod credentials;
mod pages;
mod problem;
mod retry;
mod send;

pub(crate) use call::{AUTH, Call, FLEETWRIGHT, QUEUE, WORKER_MANAGER};
pub(crate) use config_file::ConfigFile;
pub(crate) use credentials::{
    Flags, Settings, credentials_of_environment, from_environment, resolve,
};
pub(crate) use problem::NOT_OUR_SERVER;
pub(crate) use send::{Client, Opened};
