//! Charges the waits of runs to the accounts, and keeps timelines and accounts bounded.

use std::sync::Arc;

use async_trait::async_trait;
use domain::time::{DAY_MS, HOUR_MS, MINUTE_MS, Timestamp};
use engine::fleet::{self, FoldLimits, ForgetLimits};
use metrics::counter;

use super::driver::{ActivationResult, BackgroundTask, summary};
use crate::app::App;
use crate::telemetry::BAD_OUTCOMES;

/// Old rows are deleted in this interval.
const FORGET_EVERY_MS: i64 = 5 * MINUTE_MS;

pub struct WaitAccounts {
    app: Arc<App>,
    forgotten: Option<Timestamp>,
    pub fold: FoldLimits,
    pub forget: ForgetLimits,
}

impl WaitAccounts {
    pub fn new(app: Arc<App>) -> Self {
        Self {
            app,
            forgotten: None,
            fold: FoldLimits {
                messages: 200,
                span: 5_000,
                batches: 50,
            },
            forget: ForgetLimits {
                kept: 300,
                rows: 500,
                pools: 20,
                batches: 20,
                accounts: [(HOUR_MS, 8 * DAY_MS), (DAY_MS, 400 * DAY_MS)],
            },
        }
    }
}

#[async_trait]
impl BackgroundTask for WaitAccounts {
    fn name(&self) -> String {
        "wait_accounts".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        let (app, now) = (&self.app, self.app.engine.clock.now());
        let folded = fleet::fold_waits(&app.engine, &app.events.process, self.fold).await;
        if let Ok(folded) = &folded
            && let Some(problem) = &folded.problem
        {
            counter!(BAD_OUTCOMES).increment(folded.bad);
            tracing::warn!(error = %problem, messages.n_dropped = folded.bad,
                "{} invalid messages about waits were dropped; the first: {problem}", folded.bad);
        }
        // Timelines stay bounded although no wait can be charged.
        let is_due = |last: Timestamp| now.millis_since(last).abs() >= FORGET_EVERY_MS;
        let mut n_deleted = 0;
        if self.forgotten.is_none_or(is_due) {
            n_deleted = fleet::forget_waits(&app.engine, &app.events.process, self.forget).await?;
            self.forgotten = Some(now);
        }
        Ok(summary(&[
            ("charged", folded?.charged),
            ("deleted", n_deleted),
        ]))
    }
}
