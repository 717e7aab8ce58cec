//! Learns from launches, workers and tasks, for the pools whose strategy uses it.

use std::sync::Arc;

use async_trait::async_trait;
use engine::Engine;
use engine::fleet::{self, LearnLimits};

use super::driver::{ActivationResult, BackgroundTask, summary};

pub struct Learner {
    engine: Arc<Engine>,
    /// The time from one scan of all machines to the next.
    scan_ms: i64,
    pub limits: LearnLimits,
}

impl Learner {
    pub fn new(engine: Arc<Engine>, scan_ms: i64) -> Self {
        Self {
            engine,
            scan_ms,
            limits: LearnLimits::default(),
        }
    }
}

#[async_trait]
impl BackgroundTask for Learner {
    fn name(&self) -> String {
        "learn".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        let done = fleet::learn(&self.engine, &self.limits, self.scan_ms).await?;
        Ok(summary(&[
            ("news", done.news),
            ("dropped", done.dropped),
            ("pools", done.pools),
            ("given_up", done.given_up),
        ]))
    }
}
