//! Writes that this process runs, so that people see the members of the deployment.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use engine::tree::this_process;
use serde_json::Value;
use store::processes::ProcessRow;

use super::driver::{ActivationResult, BackgroundTask};
use crate::app::App;

/// A process that has written nothing for several of these has ended, or has no database.
pub const ANNOUNCED_EVERY: Duration = Duration::from_secs(30);

pub struct ProcessRecord(pub Arc<App>);

#[async_trait]
impl BackgroundTask for ProcessRecord {
    fn name(&self) -> String {
        "process_record".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        let app = &self.0;
        let (host, pid) = this_process();
        let row = ProcessRow {
            process_id: app.events.process.clone(),
            host,
            pid,
            roles: app.config.roles.names(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: app.started,
            last_seen: app.engine.clock.now(),
            clock_ahead_ms: app.engine.clock.machine_ahead_ms(),
        };
        let written = app
            .engine
            .store
            .write("process_write", move |tx| store::processes::write(tx, &row));
        written.await?;
        Ok(Value::Null)
    }
}
