//! Since when workers can ask for work and are heard, as far as this process knows.
//!
//! After a start, a stop of the world, an outage of the database or a step of the clock, all workers look silent until
//! they ask again. So silence counts only after there was time to be heard.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::time::{MINUTE_MS, Timestamp};

/// Every process looks at the database this often, whatever its roles are.
pub const LOOK_EVERY: Duration = Duration::from_secs(20);
/// A longer time without a look is a gap: nothing is known of what happened in it.
const MAX_GAP_MS: i64 = MINUTE_MS;

pub struct Listening(Mutex<State>);

struct State {
    since: Timestamp,
    /// When the last gap was noticed.
    gap: Option<Timestamp>,
    /// When the database last answered.
    last: Timestamp,
}

impl Listening {
    pub fn new(started: Timestamp) -> Self {
        Self(Mutex::new(State {
            since: started,
            gap: None,
            last: started,
        }))
    }

    /// Since when there was no gap.
    pub fn since(&self, now: Timestamp) -> Timestamp {
        self.state_at(now).since
    }

    /// When the last gap was noticed: what seemed to be long ago then may have been just before.
    pub fn gap(&self, now: Timestamp) -> Option<Timestamp> {
        self.state_at(now).gap
    }

    /// The database answered.
    pub fn note(&self, now: Timestamp) {
        let mut state = self.state_at(now);
        state.last = state.last.max(now);
    }

    fn state_at(&self, now: Timestamp) -> MutexGuard<'_, State> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now.millis_since(state.last).saturating_abs() > MAX_GAP_MS {
            *state = State {
                since: now,
                gap: Some(now),
                last: now,
            };
        }
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    #[test]
    fn it_counts_from_the_start_or_from_the_last_gap() {
        let listening = Listening::new(at(0));
        for seconds in [10, 70, 69, 130] {
            listening.note(at(seconds));
            assert_eq!(listening.since(at(seconds)), at(0));
        }
        assert_eq!(listening.since(at(190)), at(0));
        assert_eq!(listening.gap(at(190)), None);
        assert_eq!(listening.since(at(191)), at(191));
        listening.note(at(200));
        assert_eq!(listening.since(at(200)), at(191));
        assert_eq!(listening.gap(at(200)), Some(at(191)));
    }

    #[test]
    fn a_step_of_the_clock_is_a_gap() {
        let listening = Listening::new(at(10_000));
        assert_eq!(listening.gap(at(10_010)), None);
        assert_eq!(listening.gap(at(2_800)), Some(at(2_800)));
        assert_eq!(listening.since(at(2_800)), at(2_800));
        listening.note(at(2_810));
        assert_eq!(listening.since(at(2_810)), at(2_800));
        assert_eq!(listening.gap(at(2_870)), Some(at(2_800)));
    }

    #[test]
    fn looks_may_be_missed_before_it_is_a_gap() {
        let missed = LOOK_EVERY.saturating_mul(3).as_millis();
        assert!(missed <= u128::from(MAX_GAP_MS.unsigned_abs()));
    }
}
