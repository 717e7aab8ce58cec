//! Reads files of the operator again that providers use, such as files of prices.

use std::sync::Arc;

use async_trait::async_trait;
use engine::Engine;
use futures_util::future::join_all;
use serde_json::Value;

use super::driver::{ActivationResult, BackgroundTask};

pub struct FileReload(pub Arc<Engine>);

#[async_trait]
impl BackgroundTask for FileReload {
    fn name(&self) -> String {
        "file_reload".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        let providers = &self.0.providers;
        let machines = providers
            .listed()
            .filter_map(|(id, _)| providers.machines(id));
        join_all(machines.map(|machines| machines.reread_files())).await;
        Ok(Value::Null)
    }
}
