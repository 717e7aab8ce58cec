//! Reads what a worker wrote, from its provider.

use std::time::Duration;

use cloud::{CloudError, LogEnd, Machines, WorkerLog};
use domain::id::WorkerKey;
use domain::worker::Worker;

use super::{WorkerError, find_provider};
use crate::Engine;

/// The limit of a provider's call.
const CALL_LIMIT: Duration = Duration::from_secs(60);

/// The end of the log of a worker.
pub async fn read_worker_log(engine: &Engine, key: WorkerKey) -> Result<LogEnd, WorkerError> {
    let read = engine.store.read("worker_log", move |tx| {
        let not_found = || WorkerError::NotFound("Worker not found".to_owned());
        store::workers::get(tx, &key)?.ok_or_else(not_found)
    });
    let worker = read.await?;
    let id = &worker.provider_id;
    let provider = find_provider(engine, id, || {
        WorkerError::NotFound(format!("Provider {id} does not exist"))
    })?;
    let machines = provider
        .machines()
        .ok_or_else(|| not_kept(&worker, provider.kind()))?;
    match ask(machines, &worker).await? {
        WorkerLog::Kept(end) => Ok(end),
        WorkerLog::NotKept => Err(not_kept(&worker, provider.kind())),
        WorkerLog::Missing if !machines.can_end(&worker) => {
            let WorkerKey { group, id, .. } = &worker.key;
            Err(WorkerError::NotFound(format!(
                "The log of worker {id} is on host {group}: ask the server there, by `fleetwright \
                 --root-url URL worker log`"
            )))
        }
        WorkerLog::Missing => Err(missing(&worker)),
    }
}

async fn ask(machines: &dyn Machines, worker: &Worker) -> Result<WorkerLog, WorkerError> {
    let answer = tokio::time::timeout(CALL_LIMIT, machines.read_log(worker));
    match answer.await {
        Ok(Ok(log)) => Ok(log),
        Ok(Err(CloudError::Refused(why))) => Err(WorkerError::Refused(why)),
        Ok(Err(error)) => Err(WorkerError::ProviderFailed(error.to_string())),
        Err(_) => Err(WorkerError::ProviderFailed(format!(
            "no answer within {} s",
            CALL_LIMIT.as_secs()
        ))),
    }
}

fn not_kept(worker: &Worker, kind: &str) -> WorkerError {
    let id = &worker.provider_id;
    WorkerError::NotFound(format!(
        "Provider {id} keeps no logs of workers, because it is of kind {kind}. {}",
        instead(worker)
    ))
}

fn missing(worker: &Worker) -> WorkerError {
    WorkerError::NotFound(format!(
        "Provider {} has no log of worker {}, or has deleted it with its machine. {}",
        worker.provider_id,
        worker.key.id,
        instead(worker)
    ))
}

/// Where the cause of a failure may be, too.
fn instead(worker: &Worker) -> String {
    let WorkerKey { pool_id, group, id } = &worker.key;
    format!("Ask `fleetwright explain worker {pool_id}/{group}/{id}` what happened to it")
}
