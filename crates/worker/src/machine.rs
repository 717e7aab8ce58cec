//! What only the machine can tell: the time of day, chance, when it was started.
//!
//! Everything else takes it from here, so that a test can put a seed in place of chance.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use access::slugid;
pub(crate) use api_client::pause;
use domain::time::{Clock, SECOND_MS, Timestamp};
use rand::rngs::StdRng;
use rand::{Rng, RngExt as _};
use tokio::time::Instant;

/// A wait is lengthened by up to this share of itself, so that many workers do not call as one.
const JITTER: f64 = 0.5;

/// The clock and the random source of this worker.
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

    /// A text that no other request has.
    pub(crate) fn nonce(&self) -> String {
        self.with_chance(slugid::nice)
    }

    /// How long it is until a moment; nothing if it has passed.
    pub(crate) fn until(&self, moment: Timestamp) -> Duration {
        let millis = moment.millis_since(self.now());
        Duration::from_millis(u64::try_from(millis).unwrap_or(0))
    }

    fn with_chance<T>(&self, draw: impl FnOnce(&mut dyn Rng) -> T) -> T {
        // A panic elsewhere leaves a random source as random as it was.
        draw(&mut *self.chance.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Waits that double, up to a longest one.
pub(crate) struct Backoff {
    next: Duration,
    longest: Duration,
}

impl Backoff {
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Self {
            next: first,
            longest,
        }
    }

    /// The delay before the next attempt; `None` if it would end after `limit`.
    pub(crate) fn next(&mut self, machine: &Machine, limit: Instant) -> Option<Duration> {
        let extra = machine.with_chance(|rng| rng.random_range(0.0..JITTER));
        let delay = self.next.mul_f64(1.0 + extra);
        if Instant::now() + delay > limit {
            return None;
        }
        self.next = (self.next * 2).min(self.longest);
        Some(delay)
    }

    /// Waits before the next attempt; false, at once, if that would end after `limit`.
    pub(crate) async fn wait(&mut self, machine: &Machine, limit: Instant) -> bool {
        let Some(delay) = self.next(machine, limit) else {
            return false;
        };
        pause(delay).await;
        true
    }
}

/// When the system was started, if it says so.
pub(crate) fn boot_time() -> Option<Timestamp> {
    boot_time_in(&std::fs::read_to_string("/proc/stat").ok()?)
}

fn boot_time_in(stat: &str) -> Option<Timestamp> {
    let seconds: i64 = stat
        .lines()
        .find_map(|line| line.strip_prefix("btime "))?
        .trim()
        .parse()
        .ok()?;
    Some(Timestamp::from_millis(seconds.checked_mul(SECOND_MS)?))
}

#[cfg(test)]
pub(crate) mod tests {
    use rand::SeedableRng as _;

    use super::*;

    /// Stands still.
    struct Still(Timestamp);

    impl Clock for Still {
        fn now(&self) -> Timestamp {
            self.0
        }
    }

    /// A machine on which it is always this time.
    pub(crate) fn machine_at(now: Timestamp) -> Machine {
        Machine::new(Arc::new(Still(now)), StdRng::seed_from_u64(7))
    }

    #[tokio::test(start_paused = true)]
    async fn the_waits_double_up_to_the_longest_and_end_at_the_limit() {
        let machine = machine_at(Timestamp::from_millis(0));
        let start = Instant::now();
        let limit = start + Duration::from_secs(10);
        let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
        let mut waits = Vec::new();
        loop {
            let before = Instant::now();
            if !backoff.wait(&machine, limit).await {
                break;
            }
            waits.push(before.elapsed().as_secs_f64());
        }
        assert!(start.elapsed() <= Duration::from_secs(10));
        for (n, expected) in [(0, 0.02), (1, 0.04), (5, 0.64), (6, 1.0), (7, 1.0)] {
            let wait = waits[n];
            // The timer counts in milliseconds.
            let most = expected * (1.0 + JITTER) + 0.002;
            assert!((expected..=most).contains(&wait), "{n}: {wait}");
        }
    }

    #[test]
    fn the_boot_time_is_read_or_left_out() {
        let stat = "cpu 1 2 3\nintr 0\nbtime 1790000000\nprocesses 5\n";
        assert_eq!(
            boot_time_in(stat),
            Some(Timestamp::from_millis(1_790_000_000_000))
        );
        for damaged in ["", "btime\n", "btime x\n", "btime 9223372036854775807\n"] {
            assert_eq!(boot_time_in(damaged), None, "{damaged}");
        }
    }

    #[test]
    fn what_is_past_is_not_waited_for() {
        let machine = machine_at(Timestamp::from_millis(5_000));
        assert_eq!(
            machine.until(Timestamp::from_millis(7_000)),
            Duration::from_secs(2)
        );
        assert_eq!(machine.until(Timestamp::from_millis(1)), Duration::ZERO);
    }
}
