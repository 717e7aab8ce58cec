//! Checks periodically whether this process works, so that the log reports problems.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use super::driver::{ActivationResult, BackgroundTask};
use crate::app::App;

pub struct HealthCheck(pub Arc<App>);

#[async_trait]
impl BackgroundTask for HealthCheck {
    fn name(&self) -> String {
        "check_vitals".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        let app = &self.0;
        let checked = app.health.check(&app.engine.store, &*app.engine.clock);
        checked.await.database?;
        app.engine.availability.note_answer(app.engine.clock.now());
        Ok(Value::Null)
    }
}
