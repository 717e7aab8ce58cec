//! The system's clock: the one place that reads the time.

use std::time::{SystemTime, UNIX_EPOCH};

use domain::time::{Clock, Timestamp};

#[derive(Clone, Copy, Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the system's time"
    )]
    fn now(&self) -> Timestamp {
        let since_1970 = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX))
    }
}
