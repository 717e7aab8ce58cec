//! Tests through the public interface, one module for each promise.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "lints do not know that test helpers are tests"
)]

mod defaults;
mod files;
mod messages;
mod reference;
mod samples;
