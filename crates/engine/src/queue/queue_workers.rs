//! Workers as the queue knows them: quarantined, or declared before they ask for tasks.

use std::collections::HashSet;
use std::sync::Arc;

use domain::audit::AuditEntry;
use domain::id::WorkerKey;
use domain::queue_worker::QueueWorker;
use domain::time::Timestamp;
use serde_json::json;
use store::StoreError;

use crate::Engine;

/// Number of workers that one transaction quarantines.
const BATCH: usize = 100;

/// Gives a worker no tasks until this moment; a moment in the past ends the quarantine. `None`: the
/// queue does not know the worker.
pub async fn quarantine_worker(
    engine: &Arc<Engine>,
    key: WorkerKey,
    until: Timestamp,
    info: Option<String>,
    audit: AuditEntry,
) -> store::Result<Option<QueueWorker>> {
    let written = engine.change("queue_worker_quarantine", audit.created, move |change| {
        let Some(mut worker) = store::queue_workers::get(change.tx, &key)? else {
            return Ok(None);
        };
        worker.quarantine(until, &audit.client_id, info.clone(), change.now);
        store::queue_workers::upsert(change.tx, &worker)?;
        store::audit::insert(change.tx, &audit)?;
        // Others must run its tasks now; or, after a quarantine, it may wait for tasks itself.
        change.wake_queue(&key.pool_id);
        Ok(Some(worker))
    });
    written.await
}

/// Creates the queue's record of a worker, or extends its life.
pub async fn declare_worker(
    engine: &Arc<Engine>,
    now: Timestamp,
    key: WorkerKey,
    expires: Timestamp,
) -> store::Result<QueueWorker> {
    let written = engine.change("queue_worker_declare", now, move |change| {
        let (tx, now) = (&mut *change.tx, change.now);
        store::task_queues::note_used(tx, &key.pool_id, now, true)?;
        let known = store::queue_workers::get(tx, &key)?;
        let mut worker = known.unwrap_or_else(|| QueueWorker::new(key.clone(), now, expires));
        worker.expires = worker.expires.max(expires);
        store::queue_workers::upsert(tx, &worker)?;
        Ok(worker)
    });
    written.await
}

/// Quarantines these workers, as `quarantine_worker` one, in transactions of at most `BATCH`
/// workers. Returns those that the queue knows.
pub async fn quarantine_workers(
    engine: &Arc<Engine>,
    keys: &[WorkerKey],
    until: Timestamp,
    reason: &str,
    audit: &AuditEntry,
) -> store::Result<HashSet<WorkerKey>> {
    let mut known = HashSet::new();
    for keys in keys.chunks(BATCH) {
        let (keys, audit, reason) = (keys.to_vec(), audit.clone(), reason.to_owned());
        let written = engine.change(
            "queue_worker_quarantine_some",
            audit.created,
            move |change| {
                let mut quarantined = Vec::new();
                for (key, claimant) in store::claimants::list(change.tx, &keys)? {
                    let Some(mut worker) = claimant.known else {
                        continue;
                    };
                    worker.quarantine(until, &audit.client_id, Some(reason.clone()), change.now);
                    store::queue_workers::upsert(change.tx, &worker)?;
                    let entry = AuditEntry {
                        entity_id: key.to_string(),
                        detail: json!({"until": until.to_string(), "info": reason}),
                        ..audit.clone()
                    };
                    store::audit::insert(change.tx, &entry)?;
                    change.wake_queue(&key.pool_id);
                    quarantined.push(key);
                }
                Ok::<_, StoreError>(quarantined)
            },
        );
        known.extend(written.await?);
    }
    Ok(known)
}
