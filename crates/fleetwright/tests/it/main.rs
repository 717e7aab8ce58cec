//! The built program, as people and scripts use it.
#![expect(
    clippy::unwrap_used,
    reason = "a test says what is wrong by failing there"
)]

mod bench;
mod client;
mod import;
mod network;
mod offline;
mod serve;
mod up;
mod world;
