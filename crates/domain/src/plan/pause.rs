//! Pauses of a launch config after failures: their length depends on the cause, and grows.

use serde::{Deserialize, Serialize};

use crate::launch::Cause;
use crate::time::{SECOND_MS, Timestamp};

/// Maximum pause: while tasks wait, every launch config is tried again within this time.
pub const LONGEST_PAUSE_MS: i64 = 480 * SECOND_MS;

/// The provider answers at once, and the cause may disappear at any time.
const PASSING: Pauses = Pauses {
    first_ms: 10 * SECOND_MS,
    longest_ms: 320 * SECOND_MS,
};
/// The failure took minutes to appear, or a person must act.
const LASTING: Pauses = Pauses {
    first_ms: 60 * SECOND_MS,
    longest_ms: LONGEST_PAUSE_MS,
};
/// After machines that did not register, or registered and did not work.
pub(super) const AFTER_MACHINES: Pauses = LASTING;

/// Pauses that double with each consecutive failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pauses {
    first_ms: i64,
    longest_ms: i64,
}

/// The refusals of a launch config since its last fully accepted launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Refusals {
    /// Plans with refused launches, in full or in part; all refusals of one plan count once.
    pub in_a_row: u64,
    /// The cause of the last refusal; machines that were not made are out of stock.
    pub cause: Cause,
    /// When the last refusal was.
    pub last: Timestamp,
}

impl Pauses {
    fn after(cause: Cause) -> Self {
        match cause {
            Cause::Capacity
            | Cause::Quota
            | Cause::Throttled
            | Cause::Credentials
            | Cause::Unavailable => PASSING,
            Cause::Configuration | Cause::Lost => LASTING,
        }
    }

    /// The pause after this many consecutive failures.
    pub(super) fn length_ms(self, in_a_row: u64) -> i64 {
        let doublings = u32::try_from(in_a_row.saturating_sub(1)).unwrap_or(u32::MAX);
        let factor = 1_i64.checked_shl(doublings.min(32)).unwrap_or(i64::MAX);
        self.first_ms.saturating_mul(factor).min(self.longest_ms)
    }
}

impl Refusals {
    /// The end of the pause. A launch without an answer counts as refused until it has one.
    pub(super) fn pause_ends(&self, last_launch: Option<Timestamp>) -> Timestamp {
        let since = last_launch.map_or(self.last, |launch| launch.max(self.last));
        since.plus_millis(Pauses::after(self.cause).length_ms(self.in_a_row))
    }

    /// The pause after one more refusal for this cause.
    pub(super) fn next_pause_ms(&self) -> i64 {
        Pauses::after(self.cause).length_ms(self.in_a_row.saturating_add(1))
    }
}

/// The pause after the first refusal for this cause.
pub fn first_pause_ms(cause: Cause) -> i64 {
    Pauses::after(cause).length_ms(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_doubles_with_each_refusal_in_a_row_up_to_the_limit_of_its_cause() {
        let passing = [10, 10, 20, 40, 80, 160, 320, 320, 320];
        let lasting = [60, 60, 120, 240, 480, 480, 480, 480, 480];
        let table = [
            (Cause::Capacity, passing),
            (Cause::Quota, passing),
            (Cause::Throttled, passing),
            (Cause::Credentials, passing),
            (Cause::Unavailable, passing),
            (Cause::Configuration, lasting),
            (Cause::Lost, lasting),
        ];
        assert_eq!(table.map(|(cause, _)| cause).len(), Cause::ALL.len());
        for (cause, seconds) in table {
            let refused = [0, 1, 2, 3, 4, 5, 6, 7, u64::MAX];
            let pauses = refused.map(|in_a_row| {
                let last = Timestamp::from_millis(5_000);
                let refusals = Refusals {
                    in_a_row,
                    cause,
                    last,
                };
                refusals.pause_ends(None).millis_since(last) / SECOND_MS
            });
            assert_eq!(pauses, seconds, "{cause}");
            assert_eq!(first_pause_ms(cause), seconds[0] * SECOND_MS);
            assert!(seconds[8] * SECOND_MS <= LONGEST_PAUSE_MS);
        }
    }

    #[test]
    fn a_launch_without_an_answer_begins_the_pause_anew() {
        let at = Timestamp::from_millis;
        let refusals = Refusals {
            in_a_row: 1,
            cause: Cause::Capacity,
            last: at(5_000),
        };
        assert_eq!(refusals.pause_ends(Some(at(4_000))), at(15_000));
        assert_eq!(refusals.pause_ends(Some(at(15_000))), at(25_000));
    }
}
