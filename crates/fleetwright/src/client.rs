//! The HTTP client of the command line: credentials, retries, pages and error messages.

mod call;
mod config_file;
mod credentials;
mod owner_hint;
mod pages;
mod refusal;
mod retry;
mod send;
mod up_server;

pub(crate) use call::{AUTH, Call, FLEETWRIGHT, QUEUE, SECRETS, WORKER_MANAGER};
pub(crate) use config_file::ConfigFile;
#[cfg(feature = "import")]
pub(crate) use credentials::credentials_of_environment;
pub(crate) use credentials::{Flags, Settings, from_environment, resolve};
pub(crate) use refusal::NOT_OUR_SERVER;
pub(crate) use send::{Client, OpenOutcome, RedirectError};
pub(crate) use up_server::of_default_folder;
