//! Since when workers can ask for work and are heard, as far as this process knows.
//!
//! After a start, a stop of the world, an outage of the database or a step of the clock, all workers look silent until
//! they ask again. So silence counts only after there was time to be heard.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use domain::time::{MINUTE_MS, Timestamp};

/// A longer time without a look at the fleet is a gap: nothing is known of what happened in it.
const MAX_GAP_MS: i64 = MINUTE_MS;

pub struct Listening {
    state: Mutex<State>,
    max_gap_ms: i64,
}

struct State {
    since: Timestamp,
    /// When the last gap was noticed.
    gap: Option<Timestamp>,
    /// The last look at the fleet; `None`: this process does not look after it.
    last: Option<Timestamp>,
}

impl Listening {
    /// From the start on. A round of all pools is due this often.
    pub fn new(started: Timestamp, round: Duration) -> Self {
        let round_ms = i64::try_from(round.as_millis()).unwrap_or(i64::MAX);
        Self {
            state: Mutex::new(State {
                since: started,
                gap: None,
                last: None,
            }),
            max_gap_ms: round_ms.saturating_mul(3).max(MAX_GAP_MS),
        }
    }

    /// Since when there was no gap.
    pub fn since(&self, now: Timestamp) -> Timestamp {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let passed_ms = |last: Timestamp| now.millis_since(last).saturating_abs();
        if state
            .last
            .is_some_and(|last| passed_ms(last) > self.max_gap_ms)
        {
            state.since = now;
            state.gap = Some(now);
            state.last = Some(now);
        }
        state.since
    }

    /// When the last gap was noticed: what seemed to be long ago then may have been just before.
    pub fn gap(&self, now: Timestamp) -> Option<Timestamp> {
        self.since(now);
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.gap
    }

    /// The fleet was looked at.
    pub fn note(&self, now: Timestamp) {
        self.since(now);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.last = state.last.max(Some(now));
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
        let listening = Listening::new(at(0), Duration::from_secs(10));
        // A process that does not look after the fleet knows no gaps.
        assert_eq!(listening.since(at(9_000)), at(0));
        listening.note(at(9_000));
        for seconds in [9_010, 9_070, 9_069, 9_130] {
            listening.note(at(seconds));
            assert_eq!(listening.since(at(seconds)), at(0));
        }
        assert_eq!(listening.since(at(9_190)), at(0));
        assert_eq!(listening.since(at(9_191)), at(9_191));
        listening.note(at(9_200));
        assert_eq!(listening.since(at(9_200)), at(9_191));
    }

    #[test]
    fn a_step_of_the_clock_is_a_gap() {
        let listening = Listening::new(at(0), Duration::from_secs(10));
        listening.note(at(10_000));
        assert_eq!(listening.gap(at(10_010)), None);
        assert_eq!(listening.gap(at(2_800)), Some(at(2_800)));
        assert_eq!(listening.since(at(2_800)), at(2_800));
        listening.note(at(2_810));
        assert_eq!(listening.since(at(2_810)), at(2_800));
        assert_eq!(listening.gap(at(2_870)), Some(at(2_800)));
    }

    #[test]
    fn rare_rounds_are_no_gap() {
        let listening = Listening::new(at(0), Duration::from_secs(300));
        listening.note(at(10));
        assert_eq!(listening.since(at(910)), at(0));
        assert_eq!(listening.since(at(911)), at(911));
    }
}
