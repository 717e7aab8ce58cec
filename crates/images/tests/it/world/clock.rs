//! A clock that tests set forward.

use std::sync::atomic::{AtomicI64, Ordering};

use domain::time::{Clock, Timestamp};
use tokio::time::Instant;

/// The time of the runtime, and what a test added to it.
#[derive(Debug)]
pub(crate) struct TestClock {
    start: Instant,
    added_ms: AtomicI64,
}

impl TestClock {
    pub(crate) fn start() -> Self {
        Self {
            // Time: of the runtime, which tests stop.
            start: Instant::now(),
            added_ms: AtomicI64::new(1_790_000_000_000),
        }
    }

    pub(crate) fn advance(&self, milliseconds: i64) {
        self.added_ms.fetch_add(milliseconds, Ordering::SeqCst);
    }

    pub(crate) fn now_ms(&self) -> Timestamp {
        self.now()
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        // Time: of the runtime, which tests stop.
        let passed = i64::try_from(self.start.elapsed().as_millis()).unwrap();
        Timestamp::from_millis(self.added_ms.load(Ordering::SeqCst) + passed)
    }
}
