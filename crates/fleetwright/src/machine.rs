//! What only the machine can tell: the time, chance, and how long something took.
//!
//! Everything else takes these as parameters, or gets them here at the start of a command.

pub(crate) use api_client::pause;
use domain::time::{Clock as _, Timestamp};
use engine::clock::SystemClock;
pub(crate) use engine::measures::Stopwatch;
use rand::rngs::ThreadRng;

/// The time of day. Read it once per command and pass the value down.
pub(crate) fn now() -> Timestamp {
    SystemClock.now()
}

/// The random source of the system, for nonces, tokens and keys.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place of the program that asks for randomness"
)]
pub(crate) fn chance() -> ThreadRng {
    rand::rng()
}
