//! Workers that people create at providers with machines: the provider makes one machine.
//!
//! The provider is asked before the row is written, while no transaction is open. A repeated
//! request has the same token, so the provider makes no second machine for it. A machine whose row
//! could not be written has no launch: the scan ends it after an hour.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use access::slugid;
use cloud::{CloudError, DeclarationError, LaunchError, Provider, WorkerOrder};
use domain::audit::AuditEntry;
use domain::event::WorkerChange;
use domain::id::{LaunchToken, WorkerKey};
use domain::lifecycle;
use domain::worker::{NewWorker, Worker};
use futures_util::FutureExt as _;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::WorkerError;
use super::worker_place::{Declaration, WorkerPlace};
use crate::Engine;
use crate::fleet;

/// The limit of a provider's call.
const CALL_LIMIT: Duration = Duration::from_secs(60);
/// Longest parameters of a request, as JSON.
const MAX_PARAMETER_BYTES: usize = 65_536;

/// Creates a worker. A repeated request changes nothing.
pub(super) async fn create(
    engine: &Arc<Engine>,
    key: WorkerKey,
    declaration: Declaration,
    place: WorkerPlace,
    audit: AuditEntry,
) -> Result<Worker, WorkerError> {
    let now = audit.created;
    if declaration.expires < now {
        let text = "worker.expires must be in the future";
        return Err(WorkerError::Refused(text.to_owned()));
    }
    let provider = engine.providers.get(&place.provider_id);
    let provider = provider.map_err(|_| WorkerError::ProviderSetupFailed)?;
    let parameters = parameters_of(declaration.provider_info)?;
    let prepared = fleet::prepare_pool(engine, &place.pool, &place.provider_id).await?;
    let pool_data = prepared.map_err(|problem| match problem {
        LaunchError::Refused { error, .. } | LaunchError::Unknown(error) => {
            WorkerError::ProviderFailed(error)
        }
    })?;
    let token = token_of(engine, &key);
    let order = WorkerOrder {
        token: &token,
        pool: &place.pool,
        key: &key,
        launch_config: place.launch_config.as_ref(),
        capacity: declaration.capacity.unwrap_or(1),
        parameters: &parameters,
        pool_data: &pool_data,
    };
    let provider_data = make(provider.as_ref(), &order).await?;
    let config = order.launch_config;
    let worker_config = config.and_then(|config| config.configuration.get("workerConfig"));
    let worker_config = worker_config.cloned().unwrap_or_else(|| json!({}));
    let pool_config = &place.pool.definition.config;
    let new = NewWorker {
        launch_config_id: config.map(|config| config.id.clone()),
        capacity: order.capacity,
        price: None,
        expires: declaration.expires,
        terms: lifecycle::at_launch(pool_config, now, worker_config, &token),
        provider_data,
        provider_id: place.provider_id,
        key,
    };
    let worker = new.request(now);
    let written = engine.change("worker_create", now, move |change| {
        if store::workers::insert(change.tx, &worker)? {
            change.announce_worker(&worker, WorkerChange::Requested)?;
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

/// Whether the row was written for the same request. The worker may have registered since.
fn is_repeat(known: &Worker, asked: &Worker) -> bool {
    known.provider_id == asked.provider_id
        && known.terms.launch_token == asked.terms.launch_token
        && known.capacity == asked.capacity
        && known.launch_config_id == asked.launch_config_id
}

/// Whether the worker was made for this request.
pub(super) fn was_asked(
    engine: &Engine,
    known: &Worker,
    place: &WorkerPlace,
    declaration: &Declaration,
) -> bool {
    let (launch_config, token) = (place.launch_config.as_ref(), token_of(engine, &known.key));
    known.provider_id == place.provider_id
        && known.terms.launch_token.as_deref() == Some(token.as_str())
        && known.capacity == declaration.capacity.unwrap_or(1)
        && known.launch_config_id.as_ref() == launch_config.map(|it| &it.id)
}

/// The data of a worker that its provider has changed.
pub(super) async fn update(
    engine: &Engine,
    worker: &Worker,
    parameters: Value,
) -> Result<Value, WorkerError> {
    let provider = engine.providers.get(&worker.provider_id);
    let provider = provider.map_err(|_| WorkerError::ProviderSetupFailed)?;
    let parameters = parameters_of(Some(parameters))?;
    let creator = provider.creator().ok_or_else(not_supported)?;
    answer_of(creator.update_worker(worker, &parameters)).await
}

async fn make(provider: &dyn Provider, order: &WorkerOrder<'_>) -> Result<Value, WorkerError> {
    let creator = provider.creator().ok_or_else(not_supported)?;
    answer_of(creator.create_worker(order)).await
}

async fn answer_of(
    asked: impl Future<Output = Result<Value, CloudError>>,
) -> Result<Value, WorkerError> {
    let caught = AssertUnwindSafe(asked).catch_unwind();
    match tokio::time::timeout(CALL_LIMIT, caught).await {
        Ok(Ok(Ok(data))) => Ok(data),
        Ok(Ok(Err(CloudError::Refused(why)))) => Err(WorkerError::Refused(why)),
        Ok(Ok(Err(problem))) => Err(WorkerError::ProviderFailed(problem.to_string())),
        Ok(Err(_)) => Err(WorkerError::ProviderFailed(
            "the provider's code panicked".to_owned(),
        )),
        Err(_) => Err(WorkerError::ProviderFailed(format!(
            "no answer within {} s",
            CALL_LIMIT.as_secs()
        ))),
    }
}

fn not_supported() -> WorkerError {
    WorkerError::Refused(DeclarationError::not_supported().0)
}

fn parameters_of(info: Option<Value>) -> Result<Map<String, Value>, WorkerError> {
    match info {
        None => Ok(Map::new()),
        Some(Value::Object(parameters)) => {
            let n_bytes = Value::Object(parameters.clone()).to_string().len();
            match n_bytes <= MAX_PARAMETER_BYTES {
                true => Ok(parameters),
                false => Err(WorkerError::Refused(format!(
                    "providerInfo has {n_bytes} bytes, and {MAX_PARAMETER_BYTES} are the limit"
                ))),
            }
        }
        Some(_) => {
            let text = "providerInfo must be an object";
            Err(WorkerError::Refused(text.to_owned()))
        }
    }
}

/// The token of a worker that no launch of ours made: always the same one, so that a repeated
/// request makes no second machine.
pub(super) fn token_of(engine: &Engine, key: &WorkerKey) -> LaunchToken {
    let digest = Sha256::new()
        .chain_update(&engine.root_url)
        .chain_update(key.to_string())
        .finalize();
    let bytes = digest.first_chunk().expect("a digest has 32 bytes");
    let token = slugid::of_bytes(*bytes).parse();
    token.expect("tokens are slugids")
}
