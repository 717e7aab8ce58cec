//! The crate seen from outside: one module for each promise.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests are tests, but not known as such to the lints"
)]

mod defaults;
mod files;
mod messages;
mod reference;
mod samples;
