//! The system's clock: the one place that reads the time.

use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use domain::time::{Clock, Timestamp};

use crate::measures::Stopwatch;

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

    fn steady_ms(&self) -> i64 {
        static START: OnceLock<Stopwatch> = OnceLock::new();
        let elapsed = START.get_or_init(Stopwatch::start).elapsed();
        i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX)
    }
}
