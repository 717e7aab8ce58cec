//! Since when requests of workers could reach the database, as far as this process knows.
//!
//! After a start, an outage of the database or a step of the clock, all workers look silent until
//! they send their next request. So silence counts only after this period.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::time::{MINUTE_MS, Timestamp};

/// Every process queries the database this often, whatever its roles are.
pub const PROBE_INTERVAL: Duration = Duration::from_secs(20);
/// A longer time without an answer is a gap: requests of workers may have failed in it.
const MAX_GAP_MS: i64 = MINUTE_MS;

/// When the database answered, and when it last failed to.
pub struct Availability(Mutex<State>);

struct State {
    since: Timestamp,
    /// When the last gap was noticed.
    gap: Option<Timestamp>,
    /// When the database last answered.
    last: Timestamp,
}

impl Availability {
    pub fn new(started: Timestamp) -> Self {
        Self(Mutex::new(State {
            since: started,
            gap: None,
            last: started,
        }))
    }

    /// The start, or the end of the last gap.
    pub fn since(&self, now: Timestamp) -> Timestamp {
        self.state_at(now).since
    }

    /// When the last gap was noticed. An event that seemed old then may have been recent.
    pub fn gap(&self, now: Timestamp) -> Option<Timestamp> {
        self.state_at(now).gap
    }

    pub fn note_answer(&self, now: Timestamp) {
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
        let availability = Availability::new(at(0));
        for seconds in [10, 70, 69, 130] {
            availability.note_answer(at(seconds));
            assert_eq!(availability.since(at(seconds)), at(0));
        }
        assert_eq!(availability.since(at(190)), at(0));
        assert_eq!(availability.gap(at(190)), None);
        assert_eq!(availability.since(at(191)), at(191));
        availability.note_answer(at(200));
        assert_eq!(availability.since(at(200)), at(191));
        assert_eq!(availability.gap(at(200)), Some(at(191)));
    }

    #[test]
    fn a_step_of_the_clock_is_a_gap() {
        let availability = Availability::new(at(10_000));
        assert_eq!(availability.gap(at(10_010)), None);
        assert_eq!(availability.gap(at(2_800)), Some(at(2_800)));
        assert_eq!(availability.since(at(2_800)), at(2_800));
        availability.note_answer(at(2_810));
        assert_eq!(availability.since(at(2_810)), at(2_800));
        assert_eq!(availability.gap(at(2_870)), Some(at(2_800)));
    }

    #[test]
    fn three_missed_probes_are_not_yet_a_gap() {
        let missed = PROBE_INTERVAL.saturating_mul(3).as_millis();
        assert!(missed <= u128::from(MAX_GAP_MS.unsigned_abs()));
    }
}
