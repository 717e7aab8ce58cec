//! Registration: a worker proves its identity and gets credentials.
//!
//! Anybody may try. The contract fixes the replies; the details of a refusal are only in our log.

use std::sync::Arc;

use access::Secret;
use access::certificate::Credentials;
use cloud::{IdentityClaim, Proof, ProviderUnavailable, Verification, VerifyError};
use domain::event::WorkerChange;
use domain::id::{ProviderId, WorkerKey};
use domain::phases::Phase;
use domain::pool::Pool;
use domain::time::Timestamp;
use domain::worker::{Worker, WorkerState};
use domain::worker_credentials;
use serde_json::{Value, json};
use store::StoreError;
use tokio_util::sync::CancellationToken;

use super::host_launch_config::assign_launch_config;
use super::pending_launch::{WaitResult, wait_for_worker};
use super::{WorkerError, find_provider, secret_purpose};
use crate::Engine;
use crate::change::Change;
use crate::fleet;
use crate::measures::{
    PROVISION_SECONDS, REGISTRATION_SECONDS, REGISTRATIONS_REFUSED, STARTUP_SECONDS, seconds,
};
use crate::taskcluster_records::{Record, Severity};

/// A registration is tried this often while the worker's row changes.
const MAX_TRIES: usize = 5;

pub struct Registration {
    pub key: WorkerKey,
    pub provider_id: ProviderId,
    pub proof: Proof,
    /// When its operating system started.
    pub boot: Option<Timestamp>,
}

pub struct RegistrationResult {
    pub worker: Worker,
    pub credentials: Credentials,
    /// Renews the credentials.
    pub secret: Secret,
    pub expires: Timestamp,
    /// The configuration from its provider, known to the registered worker only.
    pub worker_config: Option<Value>,
}

/// Registers a worker at this moment. `gone` is cancelled when the client disconnects.
pub async fn register(
    engine: &Arc<Engine>,
    asked: &Registration,
    now: Timestamp,
    gone: &CancellationToken,
) -> Result<RegistrationResult, WorkerError> {
    for _ in 0..MAX_TRIES {
        let (pool, worker) = load_worker(engine, asked, now, gone).await?;
        let account = (worker.launch_config_id.clone(), worker.price);
        let (worker, launch_config) = match worker.is_declared() {
            true => assign_launch_config(engine, &pool, worker).await?,
            false => (worker, None),
        };
        let moves = account != (worker.launch_config_id.clone(), worker.price);
        let claim = IdentityClaim {
            pool: &pool,
            worker: &worker,
            launch_config: launch_config.as_ref(),
            proof: &asked.proof,
            now,
        };
        let verified = verify(engine, &claim, asked).await?;
        let is_new = worker.state == WorkerState::Requested;
        let secret = engine.random.secret();
        let expires = now.plus_millis(verified.lasts_ms);
        let digest = engine.keyring.digest(&secret_purpose(&worker.key), &secret);
        // A provider that does not check the state cannot register a worker twice.
        let worker = worker.register(digest, expires, now).map_err(|invalid| {
            let error = WorkerError::Refused("Worker cannot register".to_owned());
            refuse_because(engine, asked, &invalid.to_string(), error)
        })?;
        let worker = match worker.is_declared() {
            true => worker.note_config(),
            false => worker,
        };
        let news = News { is_new, moves };
        if let Some(worker) = write_worker(engine, worker, news, now).await? {
            measure_registration(engine, &worker, is_new, asked.boot, now);
            return Ok(RegistrationResult {
                credentials: issue_credentials(engine, &worker, expires),
                worker,
                secret,
                expires,
                worker_config: Some(verified.worker_config),
            });
        }
        // The row changed meanwhile, so the verification may no longer hold.
    }
    Err(WorkerError::Conflict(format!(
        "Worker {} is being changed too often; try again",
        asked.key
    )))
}

/// Loads the pool and the worker of a registration, and checks that they belong together.
async fn load_worker(
    engine: &Engine,
    asked: &Registration,
    now: Timestamp,
    gone: &CancellationToken,
) -> Result<(Pool, Worker), WorkerError> {
    let (key, provider_id) = (&asked.key, &asked.provider_id);
    let (pool_id, id) = (&key.pool_id, key.clone());
    let read = engine.store.read("registration_load", move |tx| {
        tx.ask(|tx| store::pools::get(tx, &id.pool_id));
        let worker = store::workers::get(tx, &id)?;
        let pool = store::pools::get(tx, &id.pool_id)?;
        Ok::<_, StoreError>((pool, worker))
    });
    let (pool, worker) = read.await?;
    let name = format!("{}/{}", key.group, key.id);
    let missing = |text: String| refuse(engine, asked, WorkerError::NotFound(text));
    let wrong = |text: String| refuse(engine, asked, WorkerError::Refused(text));
    let pool = pool.ok_or_else(|| missing(format!("Worker pool {pool_id} does not exist")))?;
    let unknown = || missing(format!("Provider {provider_id} does not exist"));
    find_provider(engine, provider_id, unknown)?;
    if !pool.knows_provider(provider_id) {
        let text = format!("Worker pool {pool_id} not associated with provider {provider_id}");
        return Err(wrong(text));
    }
    let worker = match worker {
        Some(worker) => worker,
        None => match wait_for_worker(engine, key, provider_id, &asked.proof, gone).await? {
            WaitResult::Worker(worker) => *worker,
            WaitResult::NotOffered => {
                let text = format!("Worker {name} in worker pool {pool_id} does not exist");
                return Err(missing(text));
            }
            WaitResult::NotAnswered => {
                // The identity was offered, so the worker should try again.
                let why = "its launch was not answered yet";
                return Err(refuse_because(
                    engine,
                    asked,
                    why,
                    WorkerError::LaunchPending,
                ));
            }
        },
    };
    if worker.has_expired(now) {
        return Err(wrong(format!("Worker {name} has expired")));
    }
    if worker.provider_id != *provider_id {
        return Err(wrong(format!(
            "Worker {name} does not have provider {provider_id}"
        )));
    }
    Ok((pool, worker))
}

async fn verify(
    engine: &Engine,
    claim: &IdentityClaim<'_>,
    asked: &Registration,
) -> Result<Verification, WorkerError> {
    let id = &claim.worker.provider_id;
    let unknown = || WorkerError::NotFound(format!("Provider {id} does not exist"));
    let provider = find_provider(engine, id, unknown)?;
    let (why, error) = match provider.verify(claim).await {
        Ok(verified) => return Ok(verified),
        Err(VerifyError::Refused(no)) => (no.detail, WorkerError::Refused(no.message.to_owned())),
        // The worker may send the same proof again.
        Err(VerifyError::Cloud(problem)) => {
            let why = format!("its proof cannot be checked now: {problem}");
            (why, WorkerError::ProviderSetupFailed)
        }
    };
    Err(refuse_because(engine, asked, &why, error))
}

fn refuse(engine: &Engine, asked: &Registration, error: WorkerError) -> WorkerError {
    let why = error.to_string();
    refuse_because(engine, asked, &why, error)
}

/// Logs and counts a refusal, and returns the error for the client.
fn refuse_because(
    engine: &Engine,
    asked: &Registration,
    why: &str,
    error: WorkerError,
) -> WorkerError {
    let (key, provider_id) = (&asked.key, &asked.provider_id);
    // Anybody may send any provider id: only existing ids become labels.
    let label = match engine.providers.get(provider_id) {
        Ok(_) | Err(ProviderUnavailable::SetupFailed { .. }) => provider_id.as_str(),
        Err(ProviderUnavailable::Unknown) => "unknown",
    };
    metrics::counter!(REGISTRATIONS_REFUSED, "providerId" => label.to_owned()).increment(1);
    tracing::warn!(worker.pool = %key.pool_id, worker.group = %key.group, worker.id = %key.id,
        provider.id = %provider_id, reason = why, "refused to register {key}: {why}");
    if engine.taskcluster_records {
        let record = Record {
            kind: "registration-error-warning",
            version: 1,
            severity: Severity::Warning,
            fields: json!({
                "message": error.to_string(),
                "error": why,
                "workerPoolId": key.pool_id.as_str(),
                "providerId": provider_id.as_str(),
                "workerId": key.id.as_str(),
            }),
        };
        record.write();
    }
    error
}

/// The changes of a registration beside the row.
#[derive(Clone, Copy)]
struct News {
    /// It is the first one of the worker.
    is_new: bool,
    /// The worker has another launch config or price.
    moves: bool,
}

/// `None`: the row changed since it was read.
async fn write_worker(
    engine: &Arc<Engine>,
    worker: Worker,
    news: News,
    now: Timestamp,
) -> store::Result<Option<Worker>> {
    let mut has_lost_race = false;
    let written = engine.change("worker_register", now, move |change| {
        // The row was read a moment ago. If it has changed since, the update loses a race, and this
        // runs again.
        if std::mem::replace(&mut has_lost_race, true) {
            let seen = store::workers::get(change.tx, &worker.key)?.map(|current| current.version);
            if seen != Some(worker.version) {
                return Ok::<_, StoreError>(None);
            }
        }
        let worker = change.update_worker(worker.clone())?;
        if news.moves {
            store::meters::reassign(change.tx, &worker)?;
        }
        if news.is_new {
            note_registered(change, &worker)?;
            change.measure_phase(&worker, Phase::Registered, Some(worker.created), now);
            change.announce_worker(&worker, WorkerChange::Running)?;
            change.wake_pool(&worker.key.pool_id);
        }
        Ok(Some(worker))
    });
    written.await
}

/// Counts the registration for the launch config and its offering.
fn note_registered(change: &mut Change<'_, '_>, worker: &Worker) -> store::Result<()> {
    let token = worker.terms.launch_token.as_ref();
    let Some(token) = token.and_then(|token| token.parse().ok()) else {
        return Ok(());
    };
    match store::launches::note_registered(change.tx, &token, change.now)? {
        Some(origin) => fleet::note_registration(change, &origin),
        None => Ok(()),
    }
}

pub(super) fn issue_credentials(
    engine: &Engine,
    worker: &Worker,
    expires: Timestamp,
) -> Credentials {
    let name = worker_credentials::client_id(&worker.provider_id, &worker.key);
    let (scopes, now) = (
        worker_credentials::scopes(&worker.key),
        worker.last_modified,
    );
    let issuer = &engine.issuer;
    issuer.issue(&engine.random, &name, scopes, now, expires)
}

fn measure_registration(
    engine: &Engine,
    worker: &Worker,
    is_new: bool,
    boot: Option<Timestamp>,
    now: Timestamp,
) {
    let mut labels = vec![
        ("workerPoolId", worker.key.pool_id.to_string()),
        ("providerId", worker.provider_id.to_string()),
    ];
    let record = |name: &'static str, labels: &[(&'static str, String)], millis: i64| {
        if millis >= 0 {
            metrics::histogram!(name, labels).record(seconds(millis));
        }
    };
    if is_new {
        record(
            REGISTRATION_SECONDS,
            &labels,
            now.millis_since(worker.created),
        );
    }
    // Many groups make many series, so only those who look for them get them.
    if engine.taskcluster_names {
        labels.push(("workerGroup", worker.key.group.to_string()));
    }
    if let Some(boot) = boot {
        record(
            PROVISION_SECONDS,
            &labels,
            boot.millis_since(worker.created),
        );
        record(STARTUP_SECONDS, &labels, now.millis_since(boot));
    }
}
