//! Workers that people declare: made, changed, removed. Machines are removed here, too, when somebody asks for it.

use std::sync::Arc;

use cloud::{DeclarationError, Provider};
use domain::Version;
use domain::audit::AuditEntry;
use domain::event::{EventBody, WorkerChange};
use domain::id::{ProviderId, WorkerKey};
use domain::pool::Pool;
use domain::time::Timestamp;
use domain::worker::{Terms, Worker, WorkerState};
use domain::worker_credentials;
use serde_json::{Map, Value};

use super::WorkerError;
use crate::Engine;
use crate::fleet;
use crate::measures::{LIFETIME_SECONDS, REGISTRATION_FAILURES, seconds};

/// Why a worker goes when somebody removes it through the API.
const REMOVED_BY_API: &str = "workerManager.removeWorker API call";

/// What is said of a worker that is declared.
pub struct Declaration {
    pub expires: Timestamp,
    pub capacity: Option<u32>,
    /// What its provider is to know of it.
    pub provider_info: Option<Value>,
}

/// Makes a worker. The same again is a repeat of a request whose answer was lost, and changes nothing.
pub async fn declare(
    engine: &Arc<Engine>,
    key: WorkerKey,
    declaration: Declaration,
    audit: AuditEntry,
) -> Result<Worker, WorkerError> {
    let now = audit.created;
    let pool = pool_of(engine, &key).await?;
    if declaration.expires < now {
        let text = "worker.expires must be in the future";
        return Err(WorkerError::Refused(text.to_owned()));
    }
    let mut worker = Worker {
        key,
        provider_id: declaring(engine, &pool).clone(),
        launch_config_id: None,
        state: WorkerState::Running,
        capacity: declaration.capacity.unwrap_or(1),
        created: now,
        expires: declaration.expires,
        last_modified: now,
        last_checked: now,
        terms: Terms::default(),
        provider_data: Value::Object(Map::new()),
        secret: None,
        previous_secret: None,
        version: Version::FIRST,
    };
    let info = declaration.provider_info.as_ref();
    describe(engine, &pool, &mut worker, info)?;
    let written = engine.change("worker_create", now, move |change| {
        if store::workers::insert(change.tx, &worker)? {
            change.announce([EventBody::Worker {
                change: WorkerChange::Running,
                worker: Box::new(worker.clone()),
            }])?;
            store::audit::insert(change.tx, &audit)?;
            return Ok(worker.clone());
        }
        match store::workers::get(change.tx, &worker.key)? {
            Some(known) if is_repeat(&known, &worker) => Ok(known),
            _ => Err(WorkerError::Conflict("Worker already exists".to_owned())),
        }
    });
    written.await
}

/// A worker that was made by the same request has all that was asked for, its secret included.
fn is_repeat(known: &Worker, asked: &Worker) -> bool {
    known.provider_id == asked.provider_id
        && known.state == asked.state
        && known.capacity == asked.capacity
        && known.expires == asked.expires
        && known.provider_data == asked.provider_data
}

/// Changes what was declared of a worker.
pub async fn redeclare(
    engine: &Arc<Engine>,
    key: WorkerKey,
    declaration: Declaration,
    audit: AuditEntry,
) -> Result<Worker, WorkerError> {
    let pool = pool_of(engine, &key).await?;
    let provider = provider_of_pool(engine, &pool, declaring(engine, &pool))?;
    let declares = provider.declarer().is_some();
    let inner = Arc::clone(engine);
    let written = engine.change("worker_update", audit.created, move |change| {
        let (tx, now) = (&mut *change.tx, change.now);
        let missing = || WorkerError::NotThere(format!("Worker {key} does not exist"));
        let mut worker = store::workers::get(tx, &key)?.ok_or_else(missing)?;
        if !declares || !is_declared(&inner, &worker) {
            return Err(WorkerError::Refused(
                DeclarationError::not_supported().to_string(),
            ));
        }
        if declaration.provider_info.is_some() {
            let (state, info) = (worker.state, declaration.provider_info.as_ref());
            describe(&inner, &pool, &mut worker, info)?;
            worker.state = state;
        }
        worker.expires = declaration.expires;
        worker.capacity = declaration.capacity.unwrap_or(worker.capacity);
        worker.last_modified = now;
        worker.version = store::workers::update(tx, &worker)?;
        store::audit::insert(tx, &audit)?;
        Ok(worker)
    });
    written.await
}

/// What is known of a machine that a provider launched is that provider's, whatever its pool has now.
fn is_declared(engine: &Engine, worker: &Worker) -> bool {
    let provider = engine.providers.get(&worker.provider_id);
    let launches = provider.is_ok_and(|provider| provider.declarer().is_none());
    worker.terms.launch_token.is_none() && !launches
}

/// Removes a worker: one that was declared is gone, a machine is told to go.
pub async fn remove(
    engine: &Arc<Engine>,
    worker: Worker,
    audit: AuditEntry,
) -> Result<(), WorkerError> {
    let now = audit.created;
    let provider_id = &worker.provider_id;
    let provider = engine.providers.get(provider_id).map_err(|problem| {
        WorkerError::of_provider(problem, || format!("Provider {provider_id} does not exist"))
    })?;
    let state = match (provider.declarer(), provider.machines()) {
        (Some(_), _) => WorkerState::Stopped,
        (None, Some(_)) => worker.state.stop(),
        (None, None) => return Err(WorkerError::Refused(DeclarationError::not_supported().0)),
    };
    let own_name = worker_credentials::client_id(&worker.provider_id, &worker.key);
    let by_itself = audit.client_id == own_name;
    let written = engine.change("worker_remove", now, move |change| {
        let found = store::workers::get(change.tx, &worker.key)?;
        let missing = || WorkerError::NotThere("Worker not found".to_owned());
        let mut worker = found.ok_or_else(missing)?;
        // Nothing ever moves back, and telling twice changes nothing.
        if worker.state >= state {
            return Ok(None);
        }
        if by_itself {
            worker.terms.end_reason = Some(left_by_itself(&worker));
        }
        fleet::told_to_go(change, &mut worker, REMOVED_BY_API)?;
        if state == WorkerState::Stopped {
            fleet::gone(change, &mut worker, REMOVED_BY_API)?;
        }
        store::audit::insert(change.tx, &audit)?;
        Ok::<_, WorkerError>(Some(worker))
    });
    if let Some(worker) = written.await? {
        measure_end(&worker, now);
    }
    Ok(())
}

/// What `explain` says of a worker that asked for its own end.
fn left_by_itself(worker: &Worker) -> String {
    match worker
        .terms
        .advice
        .as_ref()
        .filter(|advice| advice.terminate)
    {
        Some(advice) => format!("it left by itself, told to go: {}", advice.reason),
        None => "it left by itself".to_owned(),
    }
}

fn measure_end(worker: &Worker, now: Timestamp) {
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
    let id = key.pool_id.clone();
    let read = engine
        .store
        .read("pool_get", move |tx| store::pools::get(tx, &id));
    let missing = || format!("Worker pool {} does not exist", key.pool_id);
    read.await?.ok_or_else(|| WorkerError::NotThere(missing()))
}

/// The first provider of the pool that takes workers that people declare; if none does, the first of all.
fn declaring<'a>(engine: &Engine, pool: &'a Pool) -> &'a ProviderId {
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
    let provider = engine.providers.get(id);
    provider.map_err(|problem| WorkerError::of_provider(problem, missing))
}

/// Lets its provider say what it remembers of a worker that is declared by hand; the pool's, if the pool has left that.
fn describe(
    engine: &Engine,
    pool: &Pool,
    worker: &mut Worker,
    info: Option<&Value>,
) -> Result<(), WorkerError> {
    let provider_id = match pool.has_provider(&worker.provider_id) {
        true => &worker.provider_id,
        false => declaring(engine, pool),
    };
    let provider = provider_of_pool(engine, pool, provider_id)?;
    let described = match provider.declarer() {
        Some(by_hand) => by_hand.describe(worker, info),
        None => Err(DeclarationError::not_supported()),
    };
    let described = described.map_err(|refused| WorkerError::Refused(refused.0))?;
    worker.provider_data = described.provider_data;
    worker.state = described.state;
    Ok(())
}
