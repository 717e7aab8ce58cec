//! What only the machine can tell: the time, chance, and how long something took.

pub(crate) use api_client::pause;
use domain::time::{Clock as _, Timestamp};
use engine::clock::SystemClock;
pub(crate) use engine::measures::Stopwatch;
use rand::rngs::ThreadRng;

pub(crate) fn now() -> Timestamp {
    SystemClock.now()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place of this program that asks for randomness"
)]
pub(crate) fn chance() -> ThreadRng {
    rand::rng()
}
