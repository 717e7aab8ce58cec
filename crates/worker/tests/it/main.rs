//! The worker against a fleet in miniature, and its tasks as real processes.
#![expect(
    clippy::unwrap_used,
    reason = "a test says what is wrong by failing there"
)]

mod fleet;
mod http;
mod instance;
mod leaving;
mod registration;
mod tasks;
mod trouble;
mod world;
