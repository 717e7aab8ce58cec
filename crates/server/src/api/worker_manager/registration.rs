//! Workers register and renew their credentials. `registerWorker` needs no credentials.

use access::Secret;
use cloud::Proof;
use domain::id::{ProviderId, WorkerKey};
use engine::workers::{self, Registration, RegistrationResult};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::{call::Call, error::ApiError, reply::Reply};

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
    let boot = body.system_boot_time.as_deref();
    let asked = Registration {
        key: worker_key(&body.worker_pool_id, &body.worker_group, &body.worker_id)?,
        provider_id: body.provider_id.parse::<ProviderId>()?,
        boot: boot.and_then(|text| text.parse().ok()),
        proof: proof(body.worker_identity_proof)?,
    };
    let registered = workers::register(&call.app.engine, &asked, call.now, &call.cancelled);
    Reply::json(&wire(&registered.await?))
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
    Reply::json(&wire(
        &workers::renew(&call.app.engine, key, body.secret, call.now).await?,
    ))
}

/// Credentials, and the secret of the next registration.
pub(super) fn wire(registered: &RegistrationResult) -> Value {
    let credentials = &registered.credentials;
    let mut reply = json!({
        "expires": registered.expires.to_string(),
        "credentials": {
            "clientId": credentials.client_id,
            "accessToken": credentials.access_token.expose(),
            "certificate": credentials.certificate_text(),
        },
        "secret": registered.secret.expose(),
    });
    if let Some(config) = &registered.worker_config {
        reply["workerConfig"] = config.clone();
    }
    reply
}

fn worker_key(pool_id: &str, group: &str, id: &str) -> Result<WorkerKey, ApiError> {
    Ok(WorkerKey::parse(pool_id.parse()?, group, id)?)
}

/// The schema ensures that exactly one kind of proof is given.
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
        ProofBody { .. } => Err(ApiError::input("workerIdentityProof has no proof")),
    }
}
