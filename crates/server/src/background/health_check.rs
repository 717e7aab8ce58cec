//! Checks periodically whether this process works, so that the log reports problems.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use super::driver::BackgroundTask;
use crate::app::App;

pub struct HealthCheck(pub Arc<App>);

#[async_trait]
impl BackgroundTask for HealthCheck {
    const NAME: &'static str = "check_vitals";

    async fn activate(&mut self) -> Result<Value, String> {
        let app = &self.0;
        app.health
            .check(&app.engine.store, &*app.engine.clock)
            .await
            .database?;
        app.engine.availability.note_answer(app.engine.clock.now());
        Ok(Value::Null)
    }
}
