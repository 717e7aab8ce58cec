//! Reloads the certificate after it has been renewed.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::driver::{ActivationResult, BackgroundTask};
use tls::{ReloadOutcome, TlsAcceptor};

pub struct TlsReload(pub Arc<TlsAcceptor>);

#[async_trait]
impl BackgroundTask for TlsReload {
    fn name(&self) -> String {
        "tls_reload".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        let tls = Arc::clone(&self.0);
        let reloaded = tokio::task::spawn_blocking(move || tls.reload()).await;
        match reloaded? {
            ReloadOutcome::Unchanged => Ok(Value::Null),
            ReloadOutcome::Changed => Ok(json!("new connections get the new certificate")),
            ReloadOutcome::Unusable(problem) => {
                tracing::warn!(
                    error = problem,
                    "the new certificate is not usable, the old one stays in use: {problem}"
                );
                Ok(Value::Null)
            }
        }
    }
}
