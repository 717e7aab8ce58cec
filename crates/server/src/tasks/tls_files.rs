//! Looks whether the certificate has been renewed.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::driver::Task;
use crate::tls::{Reloaded, Tls};

pub struct TlsReload(pub Arc<Tls>);

#[async_trait]
impl Task for TlsReload {
    const NAME: &'static str = "tls_reload";

    async fn activate(&mut self) -> Result<Value, String> {
        let tls = Arc::clone(&self.0);
        let reloaded = tokio::task::spawn_blocking(move || tls.reload()).await;
        match reloaded.map_err(|problem| problem.to_string())? {
            Reloaded::Unchanged => Ok(Value::Null),
            Reloaded::Changed => Ok(json!("new connections get the new certificate")),
            Reloaded::Unusable(problem) => {
                tracing::warn!(
                    error = problem,
                    "the new certificate cannot be used, the old one stays in use: {problem}"
                );
                Ok(Value::Null)
            }
        }
    }
}
