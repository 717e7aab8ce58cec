//! Workers that a person marked in a list: ended together, each with its own result.

use std::collections::HashMap;
use std::sync::Arc;

use domain::audit::AuditEntry;
use domain::id::WorkerKey;
use domain::worker::{Worker, WorkerState};

use super::declared_workers::measure_end;
use super::selected_workers::{Ending, MAX_ENDED, end_worker};
use super::{WorkerError, WorkerError::Store};
use crate::Engine;

/// The result for a worker that was to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerResult {
    /// It is stopping, or stopped.
    Ended,
    /// It finishes its tasks first.
    Draining,
    /// It ended, or was drained, before.
    Already,
    NotFound,
    /// It cannot be ended, for this reason.
    Refused(String),
}

/// Ends these workers, as `remove` ends one, in transactions of at most `MAX_ENDED` workers. If one
/// fails, the workers of those before it have ended; a repeat finds them so.
pub async fn end_named_workers(
    engine: &Arc<Engine>,
    keys: &[WorkerKey],
    ending: Ending,
    audit: AuditEntry,
) -> Result<Vec<(WorkerKey, WorkerResult)>, WorkerError> {
    let mut results = Vec::with_capacity(keys.len());
    for keys in keys.chunks(MAX_ENDED as usize) {
        let ended = end_some(engine, keys.to_vec(), ending.clone(), audit.clone()).await?;
        results.extend(ended);
    }
    Ok(results)
}

async fn end_some(
    engine: &Arc<Engine>,
    keys: Vec<WorkerKey>,
    ending: Ending,
    audit: AuditEntry,
) -> Result<Vec<(WorkerKey, WorkerResult)>, WorkerError> {
    let (inner, now) = (Arc::clone(engine), audit.created);
    let written = engine.change("worker_end_named", now, move |change| {
        let known = store::workers::get_some(change.tx, &keys)?.into_iter();
        let mut known: HashMap<WorkerKey, Worker> =
            known.map(|worker| (worker.key.clone(), worker)).collect();
        let (mut results, mut ended) = (Vec::with_capacity(keys.len()), Vec::new());
        for key in &keys {
            let result = match known.remove(key) {
                None => WorkerResult::NotFound,
                Some(worker) => match end_worker(&inner, change, &ending, worker, &audit) {
                    Ok(None) => WorkerResult::Already,
                    Ok(Some(worker)) => {
                        let result = match worker.state {
                            WorkerState::Requested | WorkerState::Running => WorkerResult::Draining,
                            WorkerState::Stopping | WorkerState::Stopped => WorkerResult::Ended,
                        };
                        ended.push(worker);
                        result
                    }
                    Err(Store(error)) => return Err(Store(error)),
                    Err(refused) => WorkerResult::Refused(refused.to_string()),
                },
            };
            results.push((key.clone(), result));
        }
        Ok::<_, WorkerError>((results, ended))
    });
    let (results, ended) = written.await?;
    for worker in &ended {
        measure_end(worker, now);
    }
    Ok(results)
}
