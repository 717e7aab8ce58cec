//! Error reports of workers.
//!
//! They are limited in size, and in their number in an hour. One report counts the further ones.

use std::sync::Arc;

use domain::error_report::{ErrorReport, FURTHER_ERRORS, extra_of_worker};
use domain::id::{ProviderId, WorkerKey};
use domain::time::{HOUR_MS, Timestamp};
use serde_json::{Map, Value};
use store::{StoreError, Tx};

use super::{WorkerError, find_provider};
use crate::Engine;
use crate::change::Change;
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
    let extra = extra_of_worker(&key, asked.extra);
    let limit = engine.error_reports_per_hour;
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
        let report = match count_further(change, &report, limit)? {
            Reported::InFull => report,
            Reported::FirstFurther(counting) => counting,
            Reported::Further(counting) => return Ok((counting, false)),
        };
        fleet::write_error_report(change, &provider_id, report.clone(), Some(&key))?;
        Ok::<_, StoreError>((report, true))
    });
    let (report, is_new) = written.await?;
    if is_new {
        tracing::warn!(pool.id = %report.pool_id, error.id = %report.error_id, error.kind = %report.kind,
            "a worker of {} reported: {}", report.pool_id, report.title);
    }
    Ok(report)
}

enum Reported {
    InFull,
    /// The report that counts further ones begins.
    FirstFurther(ErrorReport),
    /// It was counted in this report.
    Further(ErrorReport),
}

/// Counts a report instead of storing it, if its worker has reached the limit of this hour. Reports
/// that arrive at the same moment may exceed the limit.
fn count_further(
    change: &mut Change<'_, '_>,
    report: &ErrorReport,
    limit: u32,
) -> store::Result<Reported> {
    let (pool_id, since) = (&report.pool_id, change.now.start_of(HOUR_MS));
    let Some(reporter) = report.reporter() else {
        return Ok(Reported::InFull);
    };
    let n_reports = store::worker_errors::count_of_reporter(change.tx, pool_id, &reporter, since)?;
    if n_reports < u64::from(limit) {
        return Ok(Reported::InFull);
    }
    let kind = FURTHER_ERRORS;
    let counting =
        store::worker_errors::newest_of_reporter(change.tx, pool_id, &reporter, since, kind)?;
    let Some(mut counting) = counting else {
        let mut counting = report.clone();
        counting.begin_counting(limit);
        return Ok(Reported::FirstFurther(counting));
    };
    counting.count_further();
    store::worker_errors::update(change.tx, &counting)?;
    Ok(Reported::Further(counting))
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
