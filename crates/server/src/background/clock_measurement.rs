//! Compares our time with the clock of the database.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use engine::database_clock::DatabaseClock;
use serde_json::Value;
use store::Store;

use super::driver::{ActivationResult, BackgroundTask, Driver};

/// A monotonic clock gains or loses a fraction of a millisecond in this time, and a machine that
/// was suspended without a sign uses a wrong time for no longer.
const PERIOD: Duration = Duration::from_secs(5);

pub struct ClockMeasurement {
    clock: Arc<DatabaseClock>,
    store: Store,
}

impl ClockMeasurement {
    pub fn start(clock: Arc<DatabaseClock>, store: Store, driver: &mut Driver) {
        let wakeup = Arc::clone(&clock.wakeup);
        driver.start_woken(PERIOD, wakeup, Self { clock, store });
    }
}

#[async_trait]
impl BackgroundTask for ClockMeasurement {
    fn name(&self) -> String {
        "measure_clock".to_owned()
    }

    fn runs_in_doubt(&self) -> bool {
        true
    }

    async fn activate(&mut self) -> ActivationResult {
        let reading = self.store.read("database_clock", store::probe::clock);
        self.clock.measure(reading).await?;
        Ok(Value::Null)
    }
}
