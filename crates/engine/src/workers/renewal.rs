//! A worker renews its credentials, by the secret that it got with the last ones.

use std::sync::Arc;

use access::Secret;
use domain::id::WorkerKey;
use domain::lifecycle::DEFAULT_REREGISTRATION_MS;
use domain::time::{MINUTE_MS, Timestamp};
use domain::worker::{PreviousSecret, Worker, WorkerState};

use super::registration::credentials;
use super::{Registered, WorkerError, secrets};
use crate::Engine;

/// For so long the secret before the present one is honoured as well: the reply with the present one may have been
/// lost.
const PREVIOUS_SECRET_MS: i64 = 15 * MINUTE_MS;

pub async fn renew(
    engine: &Arc<Engine>,
    key: WorkerKey,
    shown: Secret,
    now: Timestamp,
) -> Result<Registered, WorkerError> {
    let name = key.to_string();
    let (inner, next) = (Arc::clone(engine), engine.random.secret());
    let for_reply = next.clone();
    let written = engine.change("worker_reregister", now, move |change| {
        let tx = &mut *change.tx;
        let worker = store::workers::get(tx, &key)?
            .filter(|worker| knows_secret(&inner, worker, &shown, now))
            .ok_or_else(wrong_secret)?;
        let archived = match &worker.launch_config_id {
            None => false,
            Some(id) => store::launch_configs::get(tx, &key.pool_id, id)?
                .is_some_and(|config| config.archived),
        };
        check_may_continue(&worker, archived, now)?;
        let (mut worker, expires) = renewed(&inner, worker, &shown, &next, now);
        worker.version = store::workers::update(tx, &worker)?;
        Ok::<_, WorkerError>((worker, expires))
    });
    let (worker, expires) = written.await.inspect_err(|why| {
        // What is wrong with us is logged where it is answered.
        if !matches!(why, WorkerError::Store(_)) {
            tracing::warn!(worker.key = %name, reason = %why, "refused to re-register {name}: {why}");
        }
    })?;
    Ok(Registered {
        credentials: credentials(engine, &worker, expires),
        worker,
        secret: for_reply,
        expires,
        worker_config: None,
    })
}

/// An unknown worker, one that never registered and a wrong secret look the same to the caller.
fn wrong_secret() -> WorkerError {
    WorkerError::Refused("Could not generate credentials for this secret".to_owned())
}

fn knows_secret(engine: &Engine, worker: &Worker, candidate: &Secret, now: Timestamp) -> bool {
    let matches = |digest: &str| secrets::matches(&engine.keyring, &worker.key, digest, candidate);
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
fn renewed(
    engine: &Engine,
    mut worker: Worker,
    shown: &Secret,
    next: &Secret,
    now: Timestamp,
) -> (Worker, Timestamp) {
    let keyring = &engine.keyring;
    let lasts_ms = worker
        .terms
        .reregistration_timeout
        .unwrap_or(DEFAULT_REREGISTRATION_MS);
    let expires = now.plus_millis(lasts_ms);
    // Showing the previous secret again does not make it last longer.
    let until = match &worker.previous_secret {
        Some(previous) if secrets::matches(keyring, &worker.key, &previous.digest, shown) => {
            previous.until
        }
        _ => now.plus_millis(PREVIOUS_SECRET_MS),
    };
    let digest_of = |secret| secrets::digest(keyring, &worker.key, secret);
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
