//! Decides whether to retry a call, and after what delay.

use std::time::Duration;

/// Maximum number of times that a call is sent.
pub(crate) const MAX_ATTEMPTS: u32 = 5;
const FIRST_DELAY: Duration = Duration::from_millis(100);

/// The outcome of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Answered(u16),
    /// The connection failed: the server has not received the call.
    NotConnected,
    /// The connection broke or timed out: the server may have executed the call.
    Broken,
}

/// The delay before the next attempt; `None` when the outcome is final.
pub(crate) fn delay_after(attempt: u32, idempotent: bool, outcome: Outcome) -> Option<Duration> {
    let worth_it = match outcome {
        Outcome::NotConnected => true,
        Outcome::Broken => idempotent,
        Outcome::Answered(429 | 500..) => idempotent,
        Outcome::Answered(_) => false,
    };
    (worth_it && attempt < MAX_ATTEMPTS).then(|| FIRST_DELAY * 2_u32.pow(attempt - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_connection_is_tried_again_whatever_the_call() {
        for idempotent in [true, false] {
            assert!(delay_after(1, idempotent, Outcome::NotConnected).is_some());
        }
    }

    #[test]
    fn calls_that_may_have_executed_are_retried_only_if_idempotent() {
        for outcome in [
            Outcome::Broken,
            Outcome::Answered(503),
            Outcome::Answered(429),
        ] {
            assert!(delay_after(1, true, outcome).is_some());
            assert_eq!(delay_after(1, false, outcome), None);
        }
    }

    #[test]
    fn a_success_or_a_refusal_is_final() {
        for status in [200, 204, 301, 400, 401, 403, 404, 409] {
            assert_eq!(delay_after(1, true, Outcome::Answered(status)), None);
        }
    }

    #[test]
    fn the_delays_double_and_end() {
        let delays: Vec<_> = (1..=MAX_ATTEMPTS)
            .map(|attempt| delay_after(attempt, true, Outcome::NotConnected).map(|d| d.as_millis()))
            .collect();
        assert_eq!(delays, [Some(100), Some(200), Some(400), Some(800), None]);
    }
}
