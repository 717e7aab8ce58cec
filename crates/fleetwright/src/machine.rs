//! Access to the system's time, randomness and stopwatch.
//!
//! Other code takes these as parameters, or reads them here at the start of a command.

pub(crate) use api_client::pause;
use domain::time::{Clock as _, Timestamp};
use engine::clock::SystemClock;
pub(crate) use engine::measures::Stopwatch;
use rand::rngs::ThreadRng;

/// The current time. Read it once per command and pass the value down.
pub(crate) fn now() -> Timestamp {
    SystemClock.now()
}

/// The random source of the system, for nonces, tokens and keys.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place of the program that asks for randomness"
)]
pub(crate) fn random_source() -> ThreadRng {
    rand::rng()
}
