//! Measures what is spent of budgets, and announces their steps.
//!
//! Plans estimate what was spent since the last measure, so a late measure frees no money.

use std::sync::Arc;

use async_trait::async_trait;
use engine::{Engine, budgets};

use super::driver::{ActivationResult, BackgroundTask, summary};

pub struct Budgets(pub Arc<Engine>);

#[async_trait]
impl BackgroundTask for Budgets {
    fn name(&self) -> String {
        "budgets".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        let measured = budgets::measure(&self.0).await?;
        Ok(summary(&[("measured", measured)]))
    }
}
