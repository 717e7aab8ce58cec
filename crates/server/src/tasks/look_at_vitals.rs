//! Looks whether this process can do its work, so that the log says so when it cannot.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use super::driver::Task;
use crate::app::App;

pub struct CheckVitals(pub Arc<App>);

#[async_trait]
impl Task for CheckVitals {
    const NAME: &'static str = "check_vitals";

    async fn activate(&mut self) -> Result<Value, String> {
        let app = &self.0;
        app.vitals
            .check(&app.engine.store, &*app.engine.clock)
            .await
            .database?;
        app.engine.availability.note_answer(app.engine.clock.now());
        Ok(Value::Null)
    }
}
