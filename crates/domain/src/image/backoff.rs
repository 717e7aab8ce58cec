//! How long a failed build or upload waits for its next attempt.

use crate::time::{HOUR_MS, MINUTE_MS, SECOND_MS, Timestamp};

/// Each failure in a row doubles the delay, up to the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    pub first_ms: i64,
    pub longest_ms: i64,
}

pub const BUILD_BACKOFF: Backoff = Backoff {
    first_ms: MINUTE_MS,
    longest_ms: 6 * HOUR_MS,
};
pub const UPLOAD_BACKOFF: Backoff = Backoff {
    first_ms: 10 * SECOND_MS,
    longest_ms: HOUR_MS,
};

impl Backoff {
    /// The delay after this many failures in a row.
    pub fn delay_ms(self, n_failures: u32) -> i64 {
        let Some(n_doublings) = n_failures.checked_sub(1) else {
            return 0;
        };
        let factor = 1_i64.checked_shl(n_doublings.min(62)).unwrap_or(i64::MAX);
        self.first_ms.saturating_mul(factor).min(self.longest_ms)
    }

    /// When the next attempt is due, if it is not due now. A failure in the future is an error of a
    /// clock, and delays nothing.
    pub(super) fn next_try(
        self,
        n_failures: u32,
        failed: Timestamp,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let due = failed.plus_millis(self.delay_ms(n_failures));
        (failed <= now && now < due).then_some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest() {
        let minutes = |n| BUILD_BACKOFF.delay_ms(n) / MINUTE_MS;
        let found = [0, 1, 2, 3, 9, 10, 64, u32::MAX].map(minutes);
        assert_eq!(found, [0, 1, 2, 4, 256, 360, 360, 360]);
        let seconds = |n| UPLOAD_BACKOFF.delay_ms(n) / SECOND_MS;
        assert_eq!(
            [1, 2, 9, 10, 11].map(seconds),
            [10, 20, 2_560, 3_600, 3_600]
        );
    }

    #[test]
    fn a_failure_in_the_future_delays_nothing() {
        let at = Timestamp::from_millis;
        let next = |failed, now| UPLOAD_BACKOFF.next_try(1, at(failed), at(now));
        assert_eq!(next(1_000, 1_000), Some(at(11_000)));
        assert_eq!(next(1_000, 10_999), Some(at(11_000)));
        assert_eq!((next(1_000, 11_000), next(1_000, 999)), (None, None));
        assert_eq!(next(i64::MAX, 0), None);
    }
}
