//! Records series once a minute, and deletes their old points.

use std::sync::Arc;

use async_trait::async_trait;
use domain::time::{MINUTE_MS, Timestamp};
use engine::Engine;
use engine::series::{self, SeriesLimits};

use super::driver::{ActivationResult, BackgroundTask, summary};

/// Old rows are deleted in this interval.
const FORGET_EVERY_MS: i64 = 5 * MINUTE_MS;
/// Rows that one transaction deletes.
const ROWS: u32 = 500;
/// Transactions of each kind in an activation; the next one continues.
const BATCHES: usize = 200;

pub struct Series {
    engine: Arc<Engine>,
    forgotten: Option<Timestamp>,
    pub limits: SeriesLimits,
}

impl Series {
    pub fn new(engine: Arc<Engine>) -> Self {
        Self {
            engine,
            forgotten: None,
            limits: SeriesLimits {
                rows: ROWS,
                batches: BATCHES,
            },
        }
    }
}

#[async_trait]
impl BackgroundTask for Series {
    fn name(&self) -> String {
        "series".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        let now = self.engine.clock.now();
        // Minutes are forgotten only after one was recorded: the last one says what was counted.
        let recorded = series::record(&self.engine).await?;
        let is_due = |last: Timestamp| now.millis_since(last).abs() >= FORGET_EVERY_MS;
        let mut n_deleted = 0;
        if self.forgotten.is_none_or(is_due) {
            n_deleted = series::forget(&self.engine, self.limits).await?;
            self.forgotten = Some(now);
        }
        Ok(summary(&[
            ("points", recorded.points.unwrap_or(0)),
            ("deleted", n_deleted),
        ]))
    }
}
