//! Signed calls of an HTTP API: ours, or that of a Taskcluster deployment.
#![doc = include_str!("../README.md")]

mod body;
mod call;
mod client;
mod credentials;
mod error;

pub use body::{BodyError, read_body};
pub use call::{AUTH, Body, Call, FLEETWRIGHT, JSON, QUEUE, SECRETS, WORKER_MANAGER};
pub use client::{
    BadRootUrl, Client, Observer, Options, Retry, Sent, is_loopback, parse_base_url,
    parse_root_url, pause,
};
pub use credentials::{Credentials, Stamp, authorization};
pub use error::{CallError, Refusal, message_of, root_cause, with_causes};
pub use reqwest::Method;
