//! The clock and the randomness of the relay, which its caller chooses.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use access::slugid;
use domain::time::{Clock, Timestamp};
use rand::RngExt as _;
use rand::rngs::StdRng;

/// Delays are extended by a random share up to this.
const JITTER: f64 = 0.5;

pub struct Machine {
    clock: Arc<dyn Clock>,
    chance: Mutex<StdRng>,
}

impl Machine {
    pub fn new(clock: Arc<dyn Clock>, chance: StdRng) -> Self {
        Self {
            clock,
            chance: Mutex::new(chance),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// A text that no other request uses.
    pub(crate) fn nonce(&self) -> String {
        // A panic elsewhere leaves the generator as random as before.
        slugid::nice(&mut *self.chance.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn jittered(&self, delay: Duration) -> Duration {
        let mut chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner);
        delay.mul_f64(1.0 + chance.random_range(0.0..JITTER))
    }
}
