//! Workers: listed, shown, declared by hand, changed, removed.

use std::collections::BTreeMap;

use cloud::Refused;
use domain::Version;
use domain::audit::EntityType;
use domain::event::{EventBody, WorkerChange};
use domain::id::{PoolId, ProviderId, WorkerGroup, WorkerId, WorkerKey};
use domain::pool::Pool;
use domain::time::Timestamp;
use domain::worker::{Terms, Worker, WorkerState};
use domain::worker_credentials;
use engine::fleet;
use engine::measures::seconds;
use serde_json::{Value, json};
use store::{WorkerCursor, WorkerFilter};

use super::super::call::Call;
use super::super::error::ApiError;
use super::super::paging::Page;
use super::super::reply::Reply;
use super::providers;
use super::wire::{WorkerBody, WorkerReply, WorkersReply};
use crate::app::App;
use crate::telemetry::{LIFETIME_SECONDS, REGISTRATION_FAILURES};

/// Why a worker goes when somebody removes it through the API.
const REMOVED_BY_API: &str = "workerManager.removeWorker API call";

/// The order of lists: newest first, then by group and id.
type Cursor = (i64, String, String);

pub(super) async fn list_pool(call: Call) -> Result<Reply, ApiError> {
    let pool_id = call.pool_id()?;
    let filter = WorkerFilter {
        group: None,
        // Workers that only the queue knows have no row here.
        state: match call.query("state") {
            None => None,
            Some("standalone") => return empty_after_check(call, pool_id).await,
            Some(state) => Some(
                state
                    .parse()
                    .map_err(|bad| ApiError::input(format!("{bad}")))?,
            ),
        },
        launch_config_id: call.query_id("launchConfigId")?,
    };
    list(call, pool_id, filter, true).await
}

pub(super) async fn list_group(call: Call) -> Result<Reply, ApiError> {
    let pool_id = call.pool_id()?;
    let group: WorkerGroup = call.parameter("workerGroup").parse()?;
    let filter = WorkerFilter {
        group: Some(group),
        ..WorkerFilter::default()
    };
    list(call, pool_id, filter, false).await
}

async fn list(
    call: Call,
    pool_id: PoolId,
    filter: WorkerFilter,
    pool_must_exist: bool,
) -> Result<Reply, ApiError> {
    let page = call.page::<Cursor>()?;
    let after = page.after.as_ref().map(cursor).transpose()?;
    let limit = page.limit_and_one();
    let read = call.app.engine.store.scan("worker_list", move |tx| {
        if pool_must_exist && store::pool_get(tx, &pool_id)?.is_none() {
            return Err(ApiError::not_found("Worker Pool does not exist"));
        }
        Ok(store::worker_list(
            tx,
            &pool_id,
            &filter,
            after.as_ref(),
            limit,
        )?)
    });
    reply_page(read.await?, &page)
}

fn reply_page(mut workers: Vec<Worker>, page: &Page<Cursor>) -> Result<Reply, ApiError> {
    let continuation_token = page.cut(&mut workers, |worker| {
        let key = &worker.key;
        (
            worker.created.as_millis(),
            key.group.to_string(),
            key.id.to_string(),
        )
    });
    let workers = workers.iter().map(Into::into).collect();
    Reply::json(&WorkersReply {
        workers,
        continuation_token,
    })
}

async fn empty_after_check(call: Call, pool_id: PoolId) -> Result<Reply, ApiError> {
    let pool = call
        .app
        .engine
        .store
        .read("pool_get", move |tx| store::pool_get(tx, &pool_id))
        .await?;
    match pool {
        Some(_) => Reply::json(&WorkersReply {
            workers: Vec::new(),
            continuation_token: None,
        }),
        None => Err(ApiError::not_found("Worker Pool does not exist")),
    }
}

fn cursor((created, group, id): &Cursor) -> Result<WorkerCursor, ApiError> {
    let created = Timestamp::from_millis(*created);
    let (group, id) = (group.parse::<WorkerGroup>()?, id.parse::<WorkerId>()?);
    Ok(WorkerCursor { created, group, id })
}

pub(super) async fn show(call: Call) -> Result<Reply, ApiError> {
    let worker = load(&call).await?;
    Reply::json(&WorkerReply::from(&worker))
}

pub(super) async fn should_terminate(call: Call) -> Result<Reply, ApiError> {
    let worker = load(&call).await?;
    let (terminate, reason) = worker.should_terminate().unwrap_or((false, "none"));
    Reply::json(&json!({"terminate": terminate, "reason": reason}))
}

async fn load(call: &Call) -> Result<Worker, ApiError> {
    let key = call.worker_key()?;
    let found = call
        .app
        .engine
        .store
        .read("worker_get", move |tx| store::worker_get(tx, &key))
        .await?;
    found.ok_or_else(worker_not_found)
}

pub(super) async fn create(call: Call) -> Result<Reply, ApiError> {
    let (key, body) = (call.worker_key()?, call.body::<WorkerBody>()?);
    let pool = pool_of(&call, &key).await?;
    let expires = expires(&body)?;
    if expires < call.now {
        return Err(ApiError::input("worker.expires must be in the future"));
    }
    let provider_id = declaring(&call.app, &pool);
    let capacity = capacity(&body)?.unwrap_or(1);
    let mut worker = new_worker(provider_id, key, expires, capacity, call.now);
    describe(&call.app, &pool, &mut worker, body.provider_info.as_ref())?;
    let audit = call.audit(EntityType::Worker, &worker.key.to_string(), "created");
    let written = call.change("worker_create", move |change| {
        if store::worker_insert(change.tx, &worker)? {
            change.announce([EventBody::Worker {
                change: WorkerChange::Running,
                worker: Box::new(worker.clone()),
            }])?;
            store::audit_insert(change.tx, &audit)?;
            return Ok(worker.clone());
        }
        match store::worker_get(change.tx, &worker.key)? {
            // The same again is a repeat of a request whose answer was lost.
            Some(known) if is_repeat(&known, &worker) => Ok(known),
            _ => Err(ApiError::conflict("Worker already exists")),
        }
    });
    Reply::json(&WorkerReply::from(&written.await?))
}

/// A worker that was made by the same request has all that was asked for, its secret included.
fn is_repeat(known: &Worker, asked: &Worker) -> bool {
    known.provider_id == asked.provider_id
        && known.state == asked.state
        && known.capacity == asked.capacity
        && known.expires == asked.expires
        && known.provider_data == asked.provider_data
}

pub(super) async fn update(call: Call) -> Result<Reply, ApiError> {
    let (key, body) = (call.worker_key()?, call.body::<WorkerBody>()?);
    let pool = pool_of(&call, &key).await?;
    let provider = provider_of_pool(&call.app, &pool, declaring(&call.app, &pool))?;
    let declares = provider.by_hand().is_some();
    let (expires, capacity) = (expires(&body)?, capacity(&body)?);
    let app = call.app.clone();
    let audit = call.audit(EntityType::Worker, &key.to_string(), "updated");
    let info = body.provider_info;
    let written = call.change("worker_update", move |change| {
        let (tx, now) = (&mut *change.tx, change.now);
        let mut worker = store::worker_get(tx, &key)?
            .ok_or_else(|| ApiError::not_found(format!("Worker {key} does not exist")))?;
        if !declares || !is_declared(&app, &worker) {
            return Err(ApiError::input(Refused::not_supported().to_string()));
        }
        if info.is_some() {
            let state = worker.state;
            describe(&app, &pool, &mut worker, info.as_ref())?;
            worker.state = state;
        }
        worker.expires = expires;
        worker.capacity = capacity.unwrap_or(worker.capacity);
        worker.last_modified = now;
        worker.version = store::worker_update(tx, &worker)?;
        store::audit_insert(tx, &audit)?;
        Ok(worker)
    });
    Reply::json(&WorkerReply::from(&written.await?))
}

/// What is known of a machine that a provider launched is that provider's, whatever its pool has now.
fn is_declared(app: &App, worker: &Worker) -> bool {
    let provider = app.engine.providers.get(&worker.provider_id);
    let launches = provider.is_ok_and(|provider| provider.by_hand().is_none());
    worker.terms.launch_token.is_none() && !launches
}

pub(super) async fn remove(call: Call) -> Result<Reply, ApiError> {
    let worker = load(&call).await?;
    let provider_id = worker.provider_id.clone();
    let provider = providers::get(&call.app, &provider_id, || {
        ApiError::not_found(format!("Provider {provider_id} does not exist"))
    })?;
    let state = match (provider.by_hand(), provider.machines()) {
        (Some(_), _) => WorkerState::Stopped,
        (None, Some(_)) => worker.state.stop(),
        (None, None) => return Err(ApiError::input(Refused::not_supported().0)),
    };
    let audit = call.audit(EntityType::Worker, &worker.key.to_string(), "removed");
    let own_name = worker_credentials::client_id(&worker.provider_id, &worker.key);
    let by_itself = audit.client_id == own_name;
    let written = call.change("worker_remove", move |change| {
        let found = store::worker_get(change.tx, &worker.key)?;
        let mut worker = found.ok_or_else(worker_not_found)?;
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
        store::audit_insert(change.tx, &audit)?;
        Ok::<_, ApiError>(Some(worker))
    });
    if let Some(worker) = written.await? {
        measure_end(&worker, call.now);
    }
    Reply::done()
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

async fn pool_of(call: &Call, key: &WorkerKey) -> Result<Pool, ApiError> {
    let id = key.pool_id.clone();
    let pool = call
        .app
        .engine
        .store
        .read("pool_get", move |tx| store::pool_get(tx, &id))
        .await?;
    pool.ok_or_else(|| ApiError::not_found(format!("Worker pool {} does not exist", key.pool_id)))
}

/// The first provider of the pool that takes workers that people declare; if none does, the first of all.
fn declaring<'a>(app: &App, pool: &'a Pool) -> &'a ProviderId {
    let takes_them = |id: &&ProviderId| {
        let provider = app.engine.providers.get(id);
        provider.is_ok_and(|provider| provider.by_hand().is_some())
    };
    let first = &pool.definition.provider_id;
    pool.provider_ids().find(takes_them).unwrap_or(first)
}

fn provider_of_pool<'a>(
    app: &'a App,
    pool: &Pool,
    provider_id: &ProviderId,
) -> Result<&'a std::sync::Arc<dyn cloud::Provider>, ApiError> {
    providers::get(app, provider_id, || {
        let text = format!(
            "Provider {provider_id} for worker pool {} does not exist",
            pool.id
        );
        ApiError::not_found(text)
    })
}

/// Lets its provider say what it remembers of a worker that is declared by hand; the pool's, if the pool has left that.
fn describe(
    app: &App,
    pool: &Pool,
    worker: &mut Worker,
    info: Option<&Value>,
) -> Result<(), ApiError> {
    let provider_id = match pool.has_provider(&worker.provider_id) {
        true => &worker.provider_id,
        false => declaring(app, pool),
    };
    let provider = provider_of_pool(app, pool, provider_id)?;
    let described = match provider.by_hand() {
        Some(by_hand) => by_hand.describe(worker, info),
        None => Err(Refused::not_supported()),
    };
    let described = described.map_err(|refused| ApiError::input(refused.0))?;
    worker.provider_data = described.provider_data;
    worker.state = described.state;
    Ok(())
}

fn new_worker(
    provider_id: &ProviderId,
    key: WorkerKey,
    expires: Timestamp,
    capacity: u32,
    now: Timestamp,
) -> Worker {
    Worker {
        key,
        provider_id: provider_id.clone(),
        launch_config_id: None,
        state: WorkerState::Running,
        capacity,
        created: now,
        expires,
        last_modified: now,
        last_checked: now,
        terms: Terms::default(),
        provider_data: Value::Object(serde_json::Map::new()),
        secret: None,
        previous_secret: None,
        version: Version::FIRST,
    }
}

fn expires(body: &WorkerBody) -> Result<Timestamp, ApiError> {
    body.expires
        .parse()
        .map_err(|bad| ApiError::input(format!("expires: {bad}")))
}

fn capacity(body: &WorkerBody) -> Result<Option<u32>, ApiError> {
    let given = body.capacity.map(u32::try_from).transpose();
    given.map_err(|_| ApiError::input(format!("capacity must be at most {}", u32::MAX)))
}

pub(super) fn worker_not_found() -> ApiError {
    ApiError::not_found("Worker not found")
}

/// The names under which `reportWorkerError` remembers who reported.
pub(super) fn reporter(group: &WorkerGroup, id: &WorkerId) -> BTreeMap<String, Value> {
    BTreeMap::from([
        ("workerGroup".to_owned(), json!(group.as_str())),
        ("workerId".to_owned(), json!(id.as_str())),
    ])
}
