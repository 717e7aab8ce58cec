//! Registration of hosts that a relay of their datacentre has identified.
//!
//! The scopes of the relay stand for the secret of the host. Only declared hosts are registered
//! like this: a machine of a cloud proves its identity by itself.

use std::sync::Arc;

use cloud::{DeclarationError, Proof};
use domain::audit::AuditEntry;
use domain::id::{ProviderId, WorkerKey};
use domain::time::DAY_MS;
use domain::worker::Worker;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::declared_workers::{declare, pool_of};
use super::registration::{Registration, RegistrationResult, register};
use super::worker_place::Declaration;
use super::{WorkerError, find_provider};
use crate::Engine;

/// Housekeeping keeps a declared host beyond that while its pool has its provider.
const DECLARED_FOR_DAYS: i64 = 30;

pub struct RelayedHost {
    pub key: WorkerKey,
    /// The capacity of the host, if it may be declared.
    pub declare: Option<u32>,
}

/// Registers a host, which is declared before if it is unknown and the relay may do so.
pub async fn register_relayed(
    engine: &Arc<Engine>,
    asked: RelayedHost,
    audit: AuditEntry,
    gone: &CancellationToken,
) -> Result<RegistrationResult, WorkerError> {
    let (key, now) = (asked.key, audit.created);
    let host = match (find(engine, &key).await?, asked.declare) {
        (Some(host), _) => host,
        (None, Some(capacity)) => declare_unknown(engine, &key, capacity, audit).await?,
        (None, None) => {
            let text = format!("Worker {key} does not exist: declare it with createWorker");
            return Err(WorkerError::NotFound(text));
        }
    };
    let provider_id = host.provider_id.clone();
    let missing = || WorkerError::NotFound(format!("Provider {provider_id} does not exist"));
    if find_provider(engine, &provider_id, missing)?
        .declarer()
        .is_none()
    {
        let text =
            format!("Worker {key} belongs to provider {provider_id}, which declares no hosts");
        return Err(WorkerError::Refused(text));
    }
    let registration = Registration {
        key,
        provider_id,
        proof: Proof::Relay,
        boot: None,
    };
    register(engine, &registration, now, gone).await
}

/// Such a host has a random secret that is not kept anywhere else, so only its relay registers it.
async fn declare_unknown(
    engine: &Arc<Engine>,
    key: &WorkerKey,
    capacity: u32,
    audit: AuditEntry,
) -> Result<Worker, WorkerError> {
    // A pool whose providers declare no hosts would get a machine.
    let pool = pool_of(engine, key).await?;
    let takes_hosts = |id: &ProviderId| {
        let provider = engine.providers.get(id);
        provider.is_ok_and(|provider| provider.declarer().is_some())
    };
    if !pool.provider_ids().any(takes_hosts) {
        let text = DeclarationError::not_supported().to_string();
        return Err(WorkerError::Refused(text));
    }
    let declaration = Declaration {
        expires: audit.created.plus_millis(DECLARED_FOR_DAYS * DAY_MS),
        capacity: Some(capacity),
        launch_config_id: None,
        provider_info: Some(json!({"staticSecret": engine.random.secret().expose()})),
    };
    match declare(engine, key.clone(), declaration, audit).await {
        Err(conflict @ WorkerError::Conflict(_)) => {
            // A request that came at the same time declared it.
            find(engine, key).await?.ok_or(conflict)
        }
        declared => declared,
    }
}

async fn find(engine: &Engine, key: &WorkerKey) -> Result<Option<Worker>, WorkerError> {
    let key = key.clone();
    let read = engine
        .store
        .read("worker_get", move |tx| store::workers::get(tx, &key));
    Ok(read.await?)
}
