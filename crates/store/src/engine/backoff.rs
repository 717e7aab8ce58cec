//! The wait before a transaction runs again, which ends early when the store closes.

use std::time::Duration;

use flume::Receiver;

/// Waits grow with each attempt, up to this one.
const LONGEST_WAIT: Duration = Duration::from_millis(250);

/// Waits on a channel that never has a message. Dropping its sender ends the wait.
#[derive(Clone)]
pub(crate) struct Backoff {
    pub(crate) closing: Receiver<()>,
    /// Spreads the waits of threads whose transactions conflicted.
    pub(crate) thread: u32,
}

impl Backoff {
    pub(crate) fn wait_before_attempt(&self, attempt: u32) {
        // Returns when the time is over or the store closes. Both end the wait.
        let _ = self.closing.recv_timeout(wait_before(attempt, self.thread));
    }
}

/// `number` is that of the thread or the process: their waits differ.
pub(crate) fn wait_before(attempt: u32, number: u32) -> Duration {
    let doubled = 1_u64 << attempt.min(10);
    let spread = u64::from(number % 16) * u64::from(attempt);
    Duration::from_millis(doubled / 2 + spread).min(LONGEST_WAIT)
}
