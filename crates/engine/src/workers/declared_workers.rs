//! Workers that people declare: created, changed and removed. Machines are removed here as well.

use std::sync::Arc;

use cloud::{DeclarationError, Provider};
use domain::audit::AuditEntry;
use domain::event::WorkerChange;
use domain::id::{ProviderId, WorkerKey};
use domain::pool::Pool;
use domain::time::Timestamp;
use domain::worker::{NewWorker, Terms, Worker, WorkerState};
use domain::worker_credentials;
use serde_json::Value;
use store::Tx;

use super::{WorkerError, find_provider};
use crate::Engine;
use crate::fleet;
use crate::measures::{LIFETIME_SECONDS, REGISTRATION_FAILURES, seconds};

/// The end reason of workers that are removed by an API call.
const REMOVED_BY_API: &str = "workerManager.removeWorker API call";

pub struct Declaration {
    pub expires: Timestamp,
    pub capacity: Option<u32>,
    pub provider_info: Option<Value>,
}

/// Declares a worker. A repeated request changes nothing.
pub async fn declare(
    engine: &Arc<Engine>,
    key: WorkerKey,
    declaration: Declaration,
    audit: AuditEntry,
) -> Result<Worker, WorkerError> {
    let now = audit.created;
    // With SQLite, other writes wait for this one, so it should be short. With PostgreSQL, a
    // transaction of its own for the pool would be one round trip more.
    let read_before = match engine.store.engine() {
        store::Engine::Sqlite => Some(pool_of(engine, &key).await?),
        store::Engine::Postgres => None,
    };
    let inner = Arc::clone(engine);
    let written = engine.change("worker_create", now, move |change| {
        let read_now;
        let pool = match &read_before {
            Some(pool) => pool,
            None => {
                change.tx.ask(|tx| store::workers::get(tx, &key));
                read_now = load_pool(change.tx, &key)?;
                &read_now
            }
        };
        let worker = declared_worker(&inner, pool, &key, &declaration, now)?;
        if store::workers::insert(change.tx, &worker)? {
            change.announce_worker(&worker, WorkerChange::Running)?;
            store::audit::insert(change.tx, &audit)?;
            return Ok(worker);
        }
        match store::workers::get(change.tx, &worker.key)? {
            Some(known) if is_repeat(&known, &worker) => Ok(known),
            _ => Err(WorkerError::Conflict("Worker already exists".to_owned())),
        }
    });
    written.await
}

fn declared_worker(
    engine: &Engine,
    pool: &Pool,
    key: &WorkerKey,
    declaration: &Declaration,
    now: Timestamp,
) -> Result<Worker, WorkerError> {
    if declaration.expires < now {
        let text = "worker.expires must be in the future";
        return Err(WorkerError::Refused(text.to_owned()));
    }
    let provider_id = declaring_provider(engine, pool);
    let info = declaration.provider_info.as_ref();
    let provider_data = describe(engine, pool, provider_id, key, info)?;
    let new = NewWorker {
        provider_id: provider_id.clone(),
        key: key.clone(),
        launch_config_id: None,
        capacity: declaration.capacity.unwrap_or(1),
        price: price(engine, provider_id),
        expires: declaration.expires,
        terms: Terms::default(),
        provider_data,
    };
    Ok(new.declare(now))
}

fn price(engine: &Engine, provider_id: &ProviderId) -> Option<f64> {
    let provider = engine.providers.get(provider_id).ok()?;
    provider.declarer()?.price()
}

/// Whether the worker was created by the same request, with the same secret.
fn is_repeat(known: &Worker, asked: &Worker) -> bool {
    known.provider_id == asked.provider_id
        && known.state == asked.state
        && known.capacity == asked.capacity
        && known.expires == asked.expires
        && known.provider_data == asked.provider_data
}

pub async fn update_declaration(
    engine: &Arc<Engine>,
    key: WorkerKey,
    declaration: Declaration,
    audit: AuditEntry,
) -> Result<Worker, WorkerError> {
    let pool = pool_of(engine, &key).await?;
    let provider = provider_of_pool(engine, &pool, declaring_provider(engine, &pool))?;
    let declares = provider.declarer().is_some();
    let inner = Arc::clone(engine);
    let written = engine.change("worker_update", audit.created, move |change| {
        let (tx, now) = (&mut *change.tx, change.now);
        let missing = || WorkerError::NotFound(format!("Worker {key} does not exist"));
        let worker = store::workers::get(tx, &key)?.ok_or_else(missing)?;
        if !declares || !is_declared(&inner, &worker) {
            return Err(WorkerError::Refused(
                DeclarationError::not_supported().to_string(),
            ));
        }
        let described = declaration
            .provider_info
            .as_ref()
            .map(|info| describe(&inner, &pool, &worker.provider_id, &worker.key, Some(info)));
        let (expires, capacity) = (declaration.expires, declaration.capacity);
        let worker = worker.redeclare(expires, capacity, described.transpose()?, now);
        let worker = change.update_worker(worker)?;
        store::audit::insert(change.tx, &audit)?;
        Ok(worker)
    });
    written.await
}

/// Whether people declared the worker. A launched machine belongs to its provider.
fn is_declared(engine: &Engine, worker: &Worker) -> bool {
    let provider = engine.providers.get(&worker.provider_id);
    let launches = provider.is_ok_and(|provider| provider.declarer().is_none());
    worker.terms.launch_token.is_none() && !launches
}

/// Removes a worker, whether it is busy or not.
pub async fn remove(
    engine: &Arc<Engine>,
    worker: Worker,
    audit: AuditEntry,
) -> Result<(), WorkerError> {
    let now = audit.created;
    let provider_id = &worker.provider_id;
    let unknown = || WorkerError::NotFound(format!("Provider {provider_id} does not exist"));
    let provider = find_provider(engine, provider_id, unknown)?;
    let state = removed_state(provider.as_ref())?;
    let own_name = worker_credentials::client_id(&worker.provider_id, &worker.key);
    let by_itself = audit.client_id == own_name;
    let written = engine.change("worker_remove", now, move |change| {
        let found = store::workers::get(change.tx, &worker.key)?;
        let missing = || WorkerError::NotFound("Worker not found".to_owned());
        let mut worker = found.ok_or_else(missing)?;
        // A worker never moves back to an earlier state, and a repeat changes nothing.
        if worker.state >= state {
            return Ok(None);
        }
        if by_itself {
            let reason = end_reason_of(&worker);
            worker = worker.set_end_reason(reason);
        }
        fleet::request_stop(change, &mut worker, REMOVED_BY_API)?;
        if state == WorkerState::Stopped {
            fleet::mark_stopped(change, &mut worker, REMOVED_BY_API)?;
        }
        store::audit::insert(change.tx, &audit)?;
        Ok::<_, WorkerError>(Some(worker))
    });
    if let Some(worker) = written.await? {
        measure_end(&worker, now);
    }
    Ok(())
}

/// The state of a removed worker: a declared one is stopped at once, a machine is asked to stop.
pub(super) fn removed_state(provider: &dyn Provider) -> Result<WorkerState, WorkerError> {
    match (provider.declarer(), provider.machines()) {
        (Some(_), _) => Ok(WorkerState::Stopped),
        (None, Some(_)) => Ok(WorkerState::Stopping),
        (None, None) => Err(WorkerError::Refused(DeclarationError::not_supported().0)),
    }
}

/// The end reason of a worker that stopped by itself, as `explain` shows it.
fn end_reason_of(worker: &Worker) -> String {
    let advice = worker.terms.advice.as_ref();
    match advice.filter(|advice| advice.terminate) {
        Some(advice) => format!("it stopped by itself after the advice: {}", advice.reason),
        None => "it stopped by itself".to_owned(),
    }
}

pub(super) fn measure_end(worker: &Worker, now: Timestamp) {
    if worker.state != WorkerState::Stopped {
        return;
    }
    let labels = [
        ("workerPoolId", worker.key.pool_id.to_string()),
        ("providerId", worker.provider_id.to_string()),
    ];
    match worker.terms.registered_at {
        Some(at) => {
            let alive_ms = now.as_millis().saturating_sub(at).max(0);
            metrics::histogram!(LIFETIME_SECONDS, &labels).record(seconds(alive_ms));
        }
        None => metrics::counter!(REGISTRATION_FAILURES, &labels).increment(1),
    }
}

async fn pool_of(engine: &Engine, key: &WorkerKey) -> Result<Pool, WorkerError> {
    let key = key.clone();
    let read = engine.store.read("pool_get", move |tx| load_pool(tx, &key));
    read.await
}

fn load_pool(tx: &mut Tx<'_>, key: &WorkerKey) -> Result<Pool, WorkerError> {
    let missing = || format!("Worker pool {} does not exist", key.pool_id);
    let pool = store::pools::get(tx, &key.pool_id)?;
    pool.ok_or_else(|| WorkerError::NotFound(missing()))
}

/// The first provider of the pool that accepts declared workers; if none does, the first of all.
fn declaring_provider<'a>(engine: &Engine, pool: &'a Pool) -> &'a ProviderId {
    let takes_them = |id: &&ProviderId| {
        let provider = engine.providers.get(id);
        provider.is_ok_and(|provider| provider.declarer().is_some())
    };
    let first = &pool.definition.provider_id;
    pool.provider_ids().find(takes_them).unwrap_or(first)
}

fn provider_of_pool<'a>(
    engine: &'a Engine,
    pool: &Pool,
    id: &ProviderId,
) -> Result<&'a Arc<dyn Provider>, WorkerError> {
    let missing = || format!("Provider {id} for worker pool {} does not exist", pool.id);
    find_provider(engine, id, || WorkerError::NotFound(missing()))
}

/// The provider data of a declared worker, from its provider or, if the pool has left it, the
/// pool's.
fn describe(
    engine: &Engine,
    pool: &Pool,
    provider_id: &ProviderId,
    key: &WorkerKey,
    info: Option<&Value>,
) -> Result<Value, WorkerError> {
    let provider_id = if pool.has_provider(provider_id) {
        provider_id
    } else {
        declaring_provider(engine, pool)
    };
    let provider = provider_of_pool(engine, pool, provider_id)?;
    let described = match provider.declarer() {
        Some(declarer) => declarer.describe(key, info),
        None => Err(DeclarationError::not_supported()),
    };
    described.map_err(|refused| WorkerError::Refused(refused.0))
}
