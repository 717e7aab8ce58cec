//! Error reports of workers.

use std::sync::Arc;

use domain::error_report::ErrorReport;
use domain::id::{ProviderId, WorkerKey};
use domain::time::Timestamp;
use serde_json::{Map, Value, json};
use store::{StoreError, Tx};

use super::{WorkerError, find_provider};
use crate::Engine;
use crate::fleet;
use crate::pools::PoolError;

pub struct WorkerReport {
    pub key: WorkerKey,
    pub kind: String,
    pub title: String,
    pub description: String,
    pub extra: Map<String, Value>,
}

pub async fn report_error(
    engine: &Arc<Engine>,
    now: Timestamp,
    asked: WorkerReport,
) -> Result<ErrorReport, WorkerError> {
    let key = asked.key.clone();
    let read = engine
        .store
        .read("error_report_load", move |tx| provider_of(tx, &key));
    let provider_id = read.await?;
    let unknown = || WorkerError::Refused(PoolError::UnknownProvider.to_string());
    find_provider(engine, &provider_id, unknown)?;
    let key = asked.key;
    let mut extra = asked.extra;
    extra.insert("workerGroup".to_owned(), json!(key.group.as_str()));
    extra.insert("workerId".to_owned(), json!(key.id.as_str()));
    let written = engine.change("error_report", now, move |change| {
        let worker = store::workers::get(change.tx, &key)?;
        let report = ErrorReport {
            pool_id: key.pool_id.clone(),
            error_id: change.new_id(),
            reported: change.now,
            kind: asked.kind.clone(),
            title: asked.title.clone(),
            description: asked.description.clone(),
            extra: extra.clone(),
            launch_config_id: worker.and_then(|worker| worker.launch_config_id.clone()),
        };
        fleet::write_error_report(change, &provider_id, report.clone(), Some(&key))?;
        Ok::<_, StoreError>(report)
    });
    let report = written.await?;
    tracing::warn!(pool.id = %report.pool_id, error.id = %report.error_id, error.kind = %report.kind,
        "a worker of {} reported: {}", report.pool_id, report.title);
    Ok(report)
}

/// The provider of the worker if it is known, otherwise that of the pool.
fn provider_of(tx: &mut Tx<'_>, key: &WorkerKey) -> Result<ProviderId, WorkerError> {
    let missing = || WorkerError::NotFound(PoolError::NoSuchPool.to_string());
    let pool = store::pools::get(tx, &key.pool_id)?.ok_or_else(missing)?;
    let worker = store::workers::get(tx, key)?;
    let own = worker.map(|worker| worker.provider_id.clone());
    let own = own.filter(|id| pool.has_provider(id));
    Ok(own.unwrap_or(pool.definition.provider_id))
}
