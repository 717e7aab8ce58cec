//! Renewal of credentials, with the secret from the last reply.

use std::sync::Arc;

use access::Secret;
use domain::id::WorkerKey;
use domain::lifecycle::DEFAULT_REREGISTRATION_MS;
use domain::time::{MINUTE_MS, Timestamp};
use domain::worker::{PreviousSecret, Worker, WorkerState};

use super::registration::issue_credentials;
use super::{RegistrationResult, WorkerError, secret_purpose};
use crate::Engine;

/// The previous secret stays valid for this long, since the reply with the current one may be lost.
const PREVIOUS_SECRET_MS: i64 = 15 * MINUTE_MS;

pub async fn renew(
    engine: &Arc<Engine>,
    key: WorkerKey,
    shown: Secret,
    now: Timestamp,
) -> Result<RegistrationResult, WorkerError> {
    let name = key.to_string();
    let (inner, fresh) = (Arc::clone(engine), engine.random.secret());
    let written = engine.change("worker_reregister", now, move |change| {
        let tx = &mut *change.tx;
        let worker = store::workers::get(tx, &key)?
            .filter(|worker| knows_secret(&inner, worker, &shown, now))
            .ok_or_else(wrong_secret)?;
        let archived = match &worker.launch_config_id {
            // A declared worker gets another one when it registers.
            Some(_) if worker.is_declared() => false,
            None => false,
            Some(id) => store::launch_configs::get(tx, &key.pool_id, id)?
                .is_some_and(|config| config.archived),
        };
        check_may_continue(&worker, archived, now)?;
        // The Taskcluster that it was taken over from knows this secret, and no other: it stays, so
        // that the worker can be given back.
        let next = match worker.terms.taken_over {
            true => shown.clone(),
            false => fresh.clone(),
        };
        let (worker, expires) = renew_secret(&inner, worker, &shown, &next, now)?;
        Ok::<_, WorkerError>((change.update_worker(worker)?, expires, next))
    });
    let (worker, expires, secret) = written.await.inspect_err(|why| {
        // Errors of the server are logged with the reply.
        if !matches!(why, WorkerError::Store(_)) {
            tracing::warn!(worker.key = %name, reason = %why, "refused to re-register {name}: {why}");
        }
    })?;
    Ok(RegistrationResult {
        credentials: issue_credentials(engine, &worker, expires),
        worker,
        secret,
        expires,
        worker_config: None,
    })
}

/// The same error for an unknown worker, an unregistered one and a wrong secret.
fn wrong_secret() -> WorkerError {
    WorkerError::Refused("Could not generate credentials for this secret".to_owned())
}

fn knows_secret(engine: &Engine, worker: &Worker, candidate: &Secret, now: Timestamp) -> bool {
    // The Taskcluster that it was taken over from keeps that secret. The caller has the scope that
    // only credentials of this worker have, and from now on it shows ours.
    if worker.terms.taken_over && worker.secret.is_none() {
        return true;
    }
    let purpose = secret_purpose(&worker.key);
    let matches = |digest: &str| engine.keyring.digest_matches(&purpose, digest, candidate);
    worker.secret.as_deref().is_some_and(matches)
        || worker
            .previous_secret
            .as_ref()
            .is_some_and(|previous| previous.until >= now && matches(&previous.digest))
}

fn check_may_continue(worker: &Worker, archived: bool, now: Timestamp) -> Result<(), WorkerError> {
    let name = format!("{}/{}", worker.key.group, worker.key.id);
    let refuse = |text: String| Err(WorkerError::Refused(text));
    if worker.state != WorkerState::Running {
        return Err(not_running(&worker.key));
    }
    if worker.has_expired(now) {
        return refuse(format!("Worker {name} has expired"));
    }
    if archived {
        return refuse(format!("Worker {name} has an archived launch config"));
    }
    Ok(())
}

fn not_running(key: &WorkerKey) -> WorkerError {
    WorkerError::Refused(format!("Worker {}/{} is not running", key.group, key.id))
}

/// The worker with its next secret; the secret of this request stays valid for a short time.
fn renew_secret(
    engine: &Engine,
    worker: Worker,
    shown: &Secret,
    next: &Secret,
    now: Timestamp,
) -> Result<(Worker, Timestamp), WorkerError> {
    let (keyring, key) = (&engine.keyring, worker.key.clone());
    let purpose = secret_purpose(&key);
    let lasts_ms = worker
        .terms
        .reregistration_timeout
        .unwrap_or(DEFAULT_REREGISTRATION_MS);
    let expires = now.plus_millis(lasts_ms);
    // Using the previous secret again does not extend it.
    let until = match &worker.previous_secret {
        Some(previous) if keyring.digest_matches(&purpose, &previous.digest, shown) => {
            previous.until
        }
        _ => now.plus_millis(PREVIOUS_SECRET_MS),
    };
    let digest_of = |secret| keyring.digest(&purpose, secret);
    let previous = PreviousSecret {
        digest: digest_of(shown),
        until,
    };
    let renewed = worker.renew(previous, digest_of(next), expires, now);
    let renewed = renewed.map_err(|_| not_running(&key))?;
    Ok((renewed, expires))
}
