//! A short wait before a transaction runs again, cut short when the store closes.

use std::time::Duration;

use flume::Receiver;

/// The longest of the waits that grow with each attempt.
const LONGEST_WAIT: Duration = Duration::from_millis(250);

/// Waits on a channel on which nothing is ever sent: it ends early when the sender is dropped.
#[derive(Clone)]
pub(crate) struct Pause {
    pub(crate) closing: Receiver<()>,
    /// Threads that lost together must not come back together.
    pub(crate) thread: u32,
}

impl Pause {
    pub(crate) fn before_attempt(&self, attempt: u32) {
        let doubled = 1_u64 << attempt.min(10);
        let spread = u64::from(self.thread % 16) * u64::from(attempt);
        let wait = Duration::from_millis(doubled / 2 + spread).min(LONGEST_WAIT);
        // Either the time is over or the store closes; both mean: go on.
        let _ = self.closing.recv_timeout(wait);
    }
}
