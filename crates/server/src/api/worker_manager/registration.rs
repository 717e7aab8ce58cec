//! A worker proves who it is, and gets credentials.
//!
//! `registerWorker` is open to the world. What it answers is fixed by the contract; what was wrong
//! in detail stands in our log only.

mod early;

use access::Secret;
use access::certificate;
use cloud::{IdentityClaim, NotAvailable, NotVerified, Proof, Verified};
use domain::event::{EventBody, WorkerChange};
use domain::id::{PoolId, ProviderId, WorkerGroup, WorkerId, WorkerKey};
use domain::lifecycle::DEFAULT_REREGISTRATION_MS;
use domain::pool::Pool;
use domain::time::{MINUTE_MS, Timestamp};
use domain::worker::{PreviousSecret, Worker, WorkerState};
use domain::worker_credentials::{self, START_BEFORE_MS};
use engine::measures::seconds;
use serde::Deserialize;
use serde_json::{Value, json};
use store::{StoreError, Tx};

use super::super::call::Call;
use super::super::error::{ApiError, Code};
use super::super::reply::Reply;
use super::providers;
use crate::app::App;
use crate::telemetry::{
    PROVISION_SECONDS, REGISTRATION_SECONDS, REGISTRATIONS_REFUSED, STARTUP_SECONDS,
};
use early::Awaited;

/// How often a registration is tried anew because the worker's row changed under it.
const MAX_TRIES: usize = 5;
/// For so long the secret before the present one is honoured as well: the reply with the present
/// one may have been lost.
const PREVIOUS_SECRET_MS: i64 = 15 * MINUTE_MS;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RegisterBody {
    worker_pool_id: String,
    provider_id: String,
    worker_group: String,
    worker_id: String,
    worker_identity_proof: ProofBody,
    #[serde(default)]
    system_boot_time: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ProofBody {
    #[serde(default)]
    token: Option<Secret>,
    #[serde(default)]
    static_secret: Option<Secret>,
    #[serde(default)]
    document: Option<Value>,
    #[serde(default)]
    signature: Option<Secret>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ReregisterBody {
    worker_pool_id: String,
    worker_group: String,
    worker_id: String,
    secret: Secret,
}

pub(super) async fn register(call: Call) -> Result<Reply, ApiError> {
    let body: RegisterBody = call.body()?;
    let key = worker_key(&body.worker_pool_id, &body.worker_group, &body.worker_id)?;
    let provider_id: ProviderId = body.provider_id.parse()?;
    let proof = proof(body.worker_identity_proof)?;
    for _ in 0..MAX_TRIES {
        let (pool, worker) = claimed(&call, &key, &provider_id, &proof).await?;
        let verified = verify(&call, &pool, &worker, &proof).await?;
        let registered = Registered::new(&call.app, &verified, worker, call.now);
        if let Some(registered) = registered.store(&call).await? {
            let boot = body
                .system_boot_time
                .as_deref()
                .and_then(|text| text.parse().ok());
            measure(&registered, boot, call.now);
            return registered.reply(&call.app, Some(&verified.worker_config));
        }
        // Somebody changed the worker meanwhile: what was verified may no longer hold.
    }
    Err(ApiError::conflict(format!(
        "Worker {key} is being changed too often; try again"
    )))
}

/// Loads what a registration speaks of, and checks that it fits together.
async fn claimed(
    call: &Call,
    key: &WorkerKey,
    provider_id: &ProviderId,
    proof: &Proof,
) -> Result<(Pool, Worker), ApiError> {
    let (pool_id, id) = (&key.pool_id, key.clone());
    let read = call.app.engine.store.read("registration_load", move |tx| {
        let pool = store::pool_get(tx, &id.pool_id)?;
        let worker = if pool.is_some() {
            store::worker_get(tx, &id)?
        } else {
            None
        };
        Ok::<_, ApiError>((pool, worker))
    });
    let (pool, worker) = read.await?;
    let name = format!("{}/{}", key.group, key.id);
    let missing = |text: String| {
        refuse(
            &call.app,
            key,
            provider_id,
            &text,
            ApiError::not_found(text.clone()),
        )
    };
    let wrong = |text: String| {
        refuse(
            &call.app,
            key,
            provider_id,
            &text,
            ApiError::input(text.clone()),
        )
    };
    let pool = pool.ok_or_else(|| missing(format!("Worker pool {pool_id} does not exist")))?;
    providers::get(&call.app, provider_id, || {
        missing(format!("Provider {provider_id} does not exist"))
    })?;
    if !pool.knows_provider(provider_id) {
        let text = format!("Worker pool {pool_id} not associated with provider {provider_id}");
        return Err(wrong(text));
    }
    let worker = match worker {
        Some(worker) => worker,
        None => match early::worker(call, key, provider_id, proof).await? {
            Awaited::Worker(worker) => *worker,
            Awaited::NotOffered => {
                let text = format!("Worker {name} in worker pool {pool_id} does not exist");
                return Err(missing(text));
            }
            Awaited::NotAnswered => return Err(not_yet(call, key, provider_id)),
        },
    };
    if worker.has_expired(call.now) {
        return Err(wrong(format!("Worker {name} has expired")));
    }
    if worker.provider_id != *provider_id {
        return Err(wrong(format!(
            "Worker {name} does not have provider {provider_id}"
        )));
    }
    Ok((pool, worker))
}

/// The identity was offered: the worker is to come again.
fn not_yet(call: &Call, key: &WorkerKey, provider_id: &ProviderId) -> ApiError {
    let why = "its launch was not answered yet";
    refuse(&call.app, key, provider_id, why, ApiError::launch_pending())
}

async fn verify(
    call: &Call,
    pool: &Pool,
    worker: &Worker,
    proof: &Proof,
) -> Result<Verified, ApiError> {
    let provider = providers::get(&call.app, &worker.provider_id, || {
        ApiError::not_found(format!("Provider {} does not exist", worker.provider_id))
    })?;
    let claim = IdentityClaim {
        pool,
        worker,
        proof,
        now: call.now,
    };
    let (why, error) = match provider.verify(&claim).await {
        Ok(verified) => return Ok(verified),
        Err(NotVerified::Refused(no)) => (no.detail, ApiError::input(no.message)),
        // The worker may show the same proof again.
        Err(NotVerified::Cloud(problem)) => {
            let why = format!("its proof cannot be checked now: {problem}");
            (why, ApiError::provider_setup_failed())
        }
    };
    let (key, provider_id) = (&worker.key, &worker.provider_id);
    Err(refuse(&call.app, key, provider_id, &why, error))
}

/// One line for our log, one count, and the answer for the caller.
fn refuse(
    app: &App,
    key: &WorkerKey,
    provider_id: &ProviderId,
    why: &str,
    error: ApiError,
) -> ApiError {
    // Anybody may ask, with any provider's name: only those that there are become labels.
    let label = match app.engine.providers.get(provider_id) {
        Ok(_) | Err(NotAvailable::SetupFailed) => provider_id.as_str(),
        Err(NotAvailable::Unknown) => "unknown",
    };
    metrics::counter!(REGISTRATIONS_REFUSED, "providerId" => label.to_owned()).increment(1);
    tracing::warn!(worker.pool = %key.pool_id, worker.group = %key.group, worker.id = %key.id,
        provider.id = %provider_id, reason = why, "refused to register {key}: {why}");
    error
}

/// That a machine proved itself speaks for its launch config.
fn note_registered(tx: &mut Tx<'_>, worker: &Worker, now: Timestamp) -> Result<(), StoreError> {
    let token = worker.terms.launch_token.as_ref();
    match token.and_then(|token| token.parse().ok()) {
        Some(token) => store::launch_note_registered(tx, &token, now),
        None => Ok(()),
    }
}

/// A worker that has just proved itself, with its new secret.
struct Registered {
    worker: Worker,
    secret: Secret,
    expires: Timestamp,
    /// It was not running before.
    is_new: bool,
}

impl Registered {
    fn new(app: &App, verified: &Verified, mut worker: Worker, now: Timestamp) -> Self {
        let is_new = worker.state != verified.state;
        let secret = app.engine.random.secret();
        let expires = now.plus_millis(verified.lasts_ms);
        worker.state = verified.state;
        worker.secret = Some(digest(app, &worker.key, &secret));
        worker.previous_secret = None;
        worker.terms.registered_at.get_or_insert(now.as_millis());
        if worker.terms.terminate_after.is_some() {
            worker.terms.terminate_after = Some(expires.as_millis());
        }
        worker.last_modified = now;
        Self {
            worker,
            secret,
            expires,
            is_new,
        }
    }

    /// `None`: somebody else changed the worker since it was read.
    async fn store(self, call: &Call) -> Result<Option<Self>, ApiError> {
        let (mut worker, is_new) = (self.worker.clone(), self.is_new);
        let written = call.change("worker_register", move |change| {
            let seen = store::worker_get(change.tx, &worker.key)?.map(|current| current.version);
            if seen != Some(worker.version) {
                return Ok::<_, ApiError>(None);
            }
            let version = store::worker_update(change.tx, &worker)?;
            if is_new {
                note_registered(change.tx, &worker, change.now)?;
                let boxed = Box::new(worker.clone());
                let event = EventBody::Worker {
                    change: WorkerChange::Running,
                    worker: boxed,
                };
                change.announce([event])?;
                change.wake_pool(&worker.key.pool_id);
            }
            worker.version = version;
            Ok(Some(worker.clone()))
        });
        Ok(written.await?.map(|worker| Self { worker, ..self }))
    }

    /// The reply to a worker: its credentials, and the secret for the next time.
    fn reply(&self, app: &App, config: Option<&Value>) -> Result<Reply, ApiError> {
        let credentials = app.engine.random.with(|random| {
            let key = &self.worker.key;
            certificate::issue(
                &app.issuer.as_issuer(),
                Some(&worker_credentials::client_id(
                    &self.worker.provider_id,
                    key,
                )),
                worker_credentials::scopes(key),
                self.start().as_millis(),
                self.expires.as_millis(),
                random,
            )
        });
        let mut reply = json!({
            "expires": self.expires.to_string(),
            "credentials": {
                "clientId": credentials.client_id,
                "accessToken": credentials.access_token.expose(),
                "certificate": credentials.certificate_text(),
            },
            "secret": self.secret.expose(),
        });
        if let Some(config) = config {
            reply["workerConfig"] = config.clone();
        }
        Reply::json(&reply)
    }

    fn start(&self) -> Timestamp {
        self.worker.last_modified.plus_millis(-START_BEFORE_MS)
    }
}

pub(super) async fn reregister(mut call: Call) -> Result<Reply, ApiError> {
    let body: ReregisterBody = call.body()?;
    let params = call
        .url_params()
        .text("workerPoolId", &body.worker_pool_id)
        .text("workerGroup", &body.worker_group)
        .text("workerId", &body.worker_id);
    call.authorize(params).await?;
    let key = worker_key(&body.worker_pool_id, &body.worker_group, &body.worker_id)?;
    let name = key.to_string();
    let (app, now, secret) = (call.app.clone(), call.now, body.secret);
    let next = app.engine.random.secret();
    let for_reply = next.clone();
    let written = call.change("worker_reregister", move |change| {
        let tx = &mut *change.tx;
        let worker = store::worker_get(tx, &key)?
            .filter(|worker| knows_secret(&app, worker, &secret, now))
            .ok_or_else(wrong_secret)?;
        let archived = match &worker.launch_config_id {
            None => false,
            Some(id) => store::launch_config_get(tx, &key.pool_id, id)?
                .is_some_and(|config| config.archived),
        };
        check_may_continue(&worker, archived, now)?;
        let (mut worker, expires) = renew(&app, worker, &secret, &next, now);
        worker.version = store::worker_update(tx, &worker)?;
        Ok::<_, ApiError>((worker, expires))
    });
    let (worker, expires) = written.await.inspect_err(|error| {
        // What is wrong with us is logged where it is answered.
        if error.cause.is_none() {
            let why = &error.message;
            tracing::warn!(worker.key = %name, reason = %why, "refused to re-register {name}: {why}");
        }
    })?;
    let renewed = Registered {
        worker,
        secret: for_reply,
        expires,
        is_new: false,
    };
    renewed.reply(&call.app, None)
}

/// An unknown worker, one that never registered and a wrong secret look the same to the caller.
fn wrong_secret() -> ApiError {
    ApiError::input("Could not generate credentials for this secret")
}

fn knows_secret(app: &App, worker: &Worker, candidate: &Secret, now: Timestamp) -> bool {
    let matches = |digest: &str| {
        app.keyring
            .digest_matches(&purpose(&worker.key), digest, candidate)
    };
    worker.secret.as_deref().is_some_and(matches)
        || worker
            .previous_secret
            .as_ref()
            .is_some_and(|previous| previous.until >= now && matches(&previous.digest))
}

fn check_may_continue(worker: &Worker, archived: bool, now: Timestamp) -> Result<(), ApiError> {
    let name = format!("{}/{}", worker.key.group, worker.key.id);
    let refuse = |text: String| Err(ApiError::input(text));
    if worker.state != WorkerState::Running {
        return refuse(format!("Worker {name} is not running"));
    }
    if worker.has_expired(now) {
        return refuse(format!("Worker {name} has expired"));
    }
    if archived {
        return refuse(format!("Worker {name} has an archived launch config"));
    }
    Ok(())
}

/// The worker with its next secret; the one that was shown stays good for a short while.
fn renew(
    app: &App,
    mut worker: Worker,
    shown: &Secret,
    next: &Secret,
    now: Timestamp,
) -> (Worker, Timestamp) {
    let lasts_ms = worker
        .terms
        .reregistration_timeout
        .unwrap_or(DEFAULT_REREGISTRATION_MS);
    let expires = now.plus_millis(lasts_ms);
    // Showing the previous secret again does not make it last longer.
    let until = match &worker.previous_secret {
        Some(previous)
            if app
                .keyring
                .digest_matches(&purpose(&worker.key), &previous.digest, shown) =>
        {
            previous.until
        }
        _ => now.plus_millis(PREVIOUS_SECRET_MS),
    };
    let digest_of = |secret| digest(app, &worker.key, secret);
    worker.previous_secret = Some(PreviousSecret {
        digest: digest_of(shown),
        until,
    });
    worker.secret = Some(digest_of(next));
    if worker.terms.terminate_after.is_some() {
        worker.terms.terminate_after = Some(expires.as_millis());
    }
    worker.last_modified = now;
    (worker, expires)
}

fn digest(app: &App, key: &WorkerKey, secret: &Secret) -> String {
    app.keyring.digest(&purpose(key), secret)
}

/// Binds the digest of a registration secret to its worker.
fn purpose(key: &WorkerKey) -> String {
    format!("registration:{key}")
}

fn worker_key(pool_id: &str, group: &str, id: &str) -> Result<WorkerKey, ApiError> {
    Ok(WorkerKey {
        pool_id: pool_id.parse::<PoolId>()?,
        group: group.parse::<WorkerGroup>()?,
        id: id.parse::<WorkerId>()?,
    })
}

/// The schema has seen to it that exactly one kind of proof is there.
fn proof(body: ProofBody) -> Result<Proof, ApiError> {
    match body {
        ProofBody {
            token: Some(token), ..
        } => Ok(Proof::Token(token)),
        ProofBody {
            static_secret: Some(secret),
            ..
        } => Ok(Proof::StaticSecret(secret)),
        ProofBody {
            document: Some(document),
            signature: Some(signature),
            ..
        } => Ok(Proof::SignedDocument {
            document,
            signature,
        }),
        ProofBody {
            document: Some(document),
            ..
        } => Ok(Proof::Document(document)),
        ProofBody { .. } => Err(ApiError::new(
            Code::InputError,
            "workerIdentityProof has no proof",
        )),
    }
}

fn measure(registered: &Registered, boot: Option<Timestamp>, now: Timestamp) {
    let worker = &registered.worker;
    let labels = [
        ("workerPoolId", worker.key.pool_id.to_string()),
        ("providerId", worker.provider_id.to_string()),
    ];
    let record = |name: &'static str, millis: i64| {
        if millis >= 0 {
            metrics::histogram!(name, &labels).record(seconds(millis));
        }
    };
    if registered.is_new {
        record(REGISTRATION_SECONDS, now.millis_since(worker.created));
    }
    if let Some(boot) = boot {
        record(PROVISION_SECONDS, boot.millis_since(worker.created));
        record(STARTUP_SECONDS, now.millis_since(boot));
    }
}
