//! Tests of the worker with a simulated server, and with tasks as real processes.
#![expect(clippy::unwrap_used, reason = "a test reports its error by failing")]

mod failures;
mod fleet;
mod http;
mod instance;
mod leaving;
mod registration;
mod tasks;

mod world;
