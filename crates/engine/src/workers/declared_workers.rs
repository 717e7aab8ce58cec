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

use super::created_workers;
use super::host_launch_config::{choose_launch_config, price};
use super::worker_place::{Declaration, WorkerPlace};
use super::{WorkerError, find_provider};
use crate::Engine;
use crate::fleet;
use crate::measures::{LIFETIME_SECONDS, REGISTRATION_FAILURES, seconds};

/// The end reason of workers that are removed by an API call.
const REMOVED_BY_API: &str = "workerManager.removeWorker API call";

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
    let asked = Arc::new((key, declaration));
    let read_before = match engine.store.engine() {
        store::Engine::Sqlite => {
            let (inner, asked) = (Arc::clone(engine), Arc::clone(&asked));
            let read = engine.store.read("worker_create_look", move |tx| {
                read_place(&inner, tx, &asked.0, &asked.1)
            });
            Some(read.await?)
        }
        store::Engine::Postgres => None,
    };
    let inner = Arc::clone(engine);
    let (again, audit_again) = (Arc::clone(&asked), audit.clone());
    let written = engine.change("worker_create", now, move |change| {
        let (key, declaration) = &*asked;
        let read_now;
        let place = match &read_before {
            Some(place) => place,
            None => {
                change.tx.ask(|tx| {
                    store::workers::get(tx, key)?;
                    store::launch_configs::active_between(tx, &key.pool_id, &key.pool_id)
                });
                read_now = read_place(&inner, change.tx, key, declaration)?;
                &read_now
            }
        };
        if creates_machines(&inner, &place.provider_id) {
            // The provider is not asked for a worker that exists.
            return match store::workers::get(change.tx, key)? {
                None => Ok(Err(place.clone())),
                Some(known) if created_workers::was_asked(&inner, &known, place, declaration) => {
                    Ok(Ok(known))
                }
                Some(_) => Err(WorkerError::Conflict("Worker already exists".to_owned())),
            };
        }
        let worker = declared_worker(&inner, place, key, declaration, now)?;
        if store::workers::insert(change.tx, &worker)? {
            change.announce_worker(&worker, WorkerChange::Running)?;
            store::audit::insert(change.tx, &audit)?;
            return Ok(Ok(worker));
        }
        match store::workers::get(change.tx, &worker.key)? {
            Some(known) if is_repeat(&known, &worker, declaration) => Ok(Ok(known)),
            _ => Err(WorkerError::Conflict("Worker already exists".to_owned())),
        }
    });
    match written.await? {
        Ok(worker) => Ok(worker),
        Err(place) => {
            let (key, declaration) = &*again;
            let (key, declaration) = (key.clone(), declaration.clone());
            created_workers::create(engine, key, declaration, place, audit_again).await
        }
    }
}

fn creates_machines(engine: &Engine, provider_id: &ProviderId) -> bool {
    let provider = engine.providers.get(provider_id);
    provider.is_ok_and(|provider| provider.declarer().is_none() && provider.creator().is_some())
}

fn read_place(
    engine: &Engine,
    tx: &mut Tx<'_>,
    key: &WorkerKey,
    declaration: &Declaration,
) -> Result<WorkerPlace, WorkerError> {
    let pool = load_pool(tx, key)?;
    let named = declaration.launch_config_id.as_ref();
    let usual = declaring_provider(engine, &pool);
    let launch_config = choose_launch_config(tx, &pool, usual, named)?;
    let of_config = launch_config.as_ref().map(|it| it.provider_id(&pool));
    Ok(WorkerPlace {
        provider_id: of_config.unwrap_or(usual).clone(),
        launch_config,
        pool,
    })
}

fn declared_worker(
    engine: &Engine,
    place: &WorkerPlace,
    key: &WorkerKey,
    declaration: &Declaration,
    now: Timestamp,
) -> Result<Worker, WorkerError> {
    if declaration.expires < now {
        let text = "worker.expires must be in the future";
        return Err(WorkerError::Refused(text.to_owned()));
    }
    let (pool, provider_id) = (&place.pool, &place.provider_id);
    let launch_config = place.launch_config.as_ref();
    let info = declaration.provider_info.as_ref();
    let provider_data = describe(engine, pool, provider_id, key, info)?;
    let new = NewWorker {
        provider_id: provider_id.clone(),
        key: key.clone(),
        launch_config_id: launch_config.map(|config| config.id.clone()),
        capacity: declaration.capacity.unwrap_or(1),
        price: price(engine, pool, provider_id, launch_config),
        expires: declaration.expires,
        terms: Terms::default(),
        provider_data,
    };
    Ok(new.declare(now))
}

/// Whether the worker was created by the same request, with the same secret. An edit may have given
/// it another launch config since.
fn is_repeat(known: &Worker, asked: &Worker, declaration: &Declaration) -> bool {
    let named = declaration.launch_config_id.as_ref();
    named.is_none_or(|_| known.launch_config_id == asked.launch_config_id)
        && known.provider_id == asked.provider_id
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
    let machine = load_machine(engine, &key).await?;
    let created_data = match (&machine, &declaration.provider_info) {
        (Some(worker), Some(info)) => {
            Some(created_workers::update(engine, worker, info.clone()).await?)
        }
        (Some(_) | None, _) => None,
    };
    let pool = pool_of(engine, &key).await?;
    let provider = provider_of_pool(engine, &pool, declaring_provider(engine, &pool))?;
    let declares = provider.declarer().is_some();
    let inner = Arc::clone(engine);
    let written = engine.change("worker_update", audit.created, move |change| {
        let (tx, now) = (&mut *change.tx, change.now);
        let missing = || WorkerError::NotFound(format!("Worker {key} does not exist"));
        let worker = store::workers::get(tx, &key)?.ok_or_else(missing)?;
        if machine.is_some() {
            let (expires, capacity) = (declaration.expires, declaration.capacity);
            let worker = worker.redeclare(expires, capacity, created_data.clone(), now);
            let worker = change.update_worker(worker)?;
            store::audit::insert(change.tx, &audit)?;
            return Ok(worker);
        }
        if !declares || !is_declared(&inner, &worker) {
            return Err(WorkerError::Refused(
                DeclarationError::not_supported().to_string(),
            ));
        }
        let own = worker.launch_config_id.clone();
        let (worker, moves) = match declaration.launch_config_id.as_ref() {
            Some(id) if own.as_ref() != Some(id) => {
                let config = choose_launch_config(tx, &pool, &worker.provider_id, Some(id))?;
                let given = config.as_ref();
                if given.is_some_and(|it| *it.provider_id(&pool) != worker.provider_id) {
                    let (key, provider_id) = (&worker.key, &worker.provider_id);
                    return Err(WorkerError::Refused(format!(
                        "the launch config {id} is not of {provider_id}, the provider of {key}"
                    )));
                }
                let price = price(&inner, &pool, &worker.provider_id, given);
                (worker.assign(id.clone(), price), true)
            }
            Some(_) | None => (worker, false),
        };
        let described = declaration
            .provider_info
            .as_ref()
            .map(|info| describe(&inner, &pool, &worker.provider_id, &worker.key, Some(info)));
        let (expires, capacity) = (declaration.expires, declaration.capacity);
        let worker = worker.redeclare(expires, capacity, described.transpose()?, now);
        let worker = change.update_worker(worker)?;
        if moves {
            store::meters::reassign(change.tx, &worker)?;
        }
        store::audit::insert(change.tx, &audit)?;
        Ok(worker)
    });
    written.await
}

/// The worker, if a provider that makes single workers has its machine.
async fn load_machine(
    engine: &Arc<Engine>,
    key: &WorkerKey,
) -> Result<Option<Worker>, WorkerError> {
    let key = key.clone();
    let read = engine
        .store
        .read("worker_get", move |tx| store::workers::get(tx, &key));
    let worker: Option<Worker> = read.await?;
    Ok(worker.filter(|worker| {
        worker.terms.launch_token.is_some() && creates_machines(engine, &worker.provider_id)
    }))
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

pub(super) async fn pool_of(engine: &Engine, key: &WorkerKey) -> Result<Pool, WorkerError> {
    let key = key.clone();
    let read = engine.store.read("pool_get", move |tx| load_pool(tx, &key));
    read.await
}

fn load_pool(tx: &mut Tx<'_>, key: &WorkerKey) -> Result<Pool, WorkerError> {
    let missing = || format!("Worker pool {} does not exist", key.pool_id);
    let pool = store::pools::get(tx, &key.pool_id)?;
    pool.ok_or_else(|| WorkerError::NotFound(missing()))
}

/// The first provider of the pool that accepts declared workers; if none does, the first that makes
/// single workers, or the first of all.
fn declaring_provider<'a>(engine: &Engine, pool: &'a Pool) -> &'a ProviderId {
    let takes_them = |id: &&ProviderId| {
        let provider = engine.providers.get(id);
        provider.is_ok_and(|provider| provider.declarer().is_some())
    };
    let makes_them = |id: &&ProviderId| creates_machines(engine, id);
    let first = &pool.definition.provider_id;
    let taking = pool.provider_ids().find(takes_them);
    taking
        .or_else(|| pool.provider_ids().find(makes_them))
        .unwrap_or(first)
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
