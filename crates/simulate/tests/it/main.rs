//! Tests of the simulated world.
#![expect(
    clippy::unwrap_used,
    reason = "a test says what is wrong by failing there"
)]

mod canary;
mod clouds;
mod common;
mod comparison;
mod conservation;
mod gates;
mod metrics;
mod page;
mod production;
mod recording;
mod traces;
mod what_if;
mod world;
