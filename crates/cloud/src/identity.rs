//! Tokens that we sign ourselves, for workers whose cloud vouches for nobody.
//!
//! A token is a keyed digest of the worker's full name, so it needs no storage and is worth nothing for another worker.
//! Beside each there is a secret in the form that Taskcluster's start-worker proves itself with.

use std::sync::Arc;

use access::Secret;
use access::seal::Keyring;
use domain::id::{LaunchToken, ProviderId, WorkerKey};
use domain::{launch, lifecycle};
use serde_json::{Map, Value};

use crate::{IdentityClaim, Proof, ProofRefused, ProviderContext, Verified};

/// What every refused worker is told, whatever was wrong.
pub(crate) const REFUSED: &str = "Token validation error";

/// What a worker of this provider proves itself with.
pub fn identity_token(keyring: &Keyring, provider: &ProviderId, worker: &WorkerKey) -> Secret {
    Secret::new(keyring.digest(&purpose(provider), &Secret::new(worker.to_string())))
}

pub(crate) struct Tokens {
    id: ProviderId,
    keyring: Arc<Keyring>,
}

impl Tokens {
    pub(crate) fn new(context: &ProviderContext) -> Self {
        Self {
            id: context.id.clone(),
            keyring: Arc::clone(&context.keyring),
        }
    }

    pub(crate) fn token(&self, worker: &WorkerKey) -> Secret {
        identity_token(&self.keyring, &self.id, worker)
    }

    /// What start-worker calls `staticSecret`.
    pub(crate) fn static_secret(&self, worker: &WorkerKey) -> Secret {
        self.keyring
            .derive(&secret_purpose(&self.id), &worker.to_string())
    }

    /// The launch that offered this identity, if the proof is the one that was offered with it.
    pub(crate) fn offered_by(&self, worker: &WorkerKey, proof: &Proof) -> Option<LaunchToken> {
        let token = launch::offered_by(&worker.id)?;
        self.is_ours(worker, proof).then_some(token)
    }

    pub(crate) fn is_ours(&self, worker: &WorkerKey, proof: &Proof) -> bool {
        let signed = Secret::new(worker.to_string());
        let matches = |token: &Secret| {
            self.keyring
                .digest_matches(&purpose(&self.id), token.expose(), &signed)
        };
        match proof {
            Proof::Token(token) => matches(token),
            Proof::StaticSecret(secret) => {
                let purpose = secret_purpose(&self.id);
                self.keyring
                    .derived_matches(&purpose, signed.expose(), secret)
            }
            Proof::SignedDocument { .. } | Proof::Document(_) => false,
        }
    }

    /// The whole of `verify`, for providers that know no other proof than our tokens.
    pub(crate) fn verify(&self, claim: &IdentityClaim<'_>) -> Result<Verified, ProofRefused> {
        if !self.is_ours(&claim.worker.key, claim.proof) {
            return Err(refuse("the proof is none of ours for this worker"));
        }
        register_once(claim)
    }
}

/// A worker that was requested becomes a running one, once: proving oneself twice is an attack or a bug.
pub(crate) fn register_once(claim: &IdentityClaim<'_>) -> Result<Verified, ProofRefused> {
    claim
        .worker
        .check_unregistered()
        .map_err(|problem| refuse(&problem.to_string()))?;
    let terms = &claim.worker.terms;
    Ok(Verified {
        lasts_ms: terms
            .reregistration_timeout
            .unwrap_or(lifecycle::DEFAULT_REREGISTRATION_MS),
        worker_config: terms
            .worker_config
            .clone()
            .unwrap_or_else(|| Value::Object(Map::new())),
    })
}

pub(crate) fn refuse(detail: &str) -> ProofRefused {
    ProofRefused {
        message: REFUSED,
        detail: detail.to_owned(),
    }
}

fn purpose(provider: &ProviderId) -> String {
    format!("worker-identity:{provider}")
}

fn secret_purpose(provider: &ProviderId) -> String {
    format!("worker-static-secret:{provider}")
}

#[cfg(test)]
mod tests {
    use domain::worker::{Terms, WorkerState};
    use serde_json::json;

    use crate::provider_tests::{context, edit, now, pool, worker};

    use super::*;

    fn verify(state: WorkerState, terms: Terms, proof: &Proof) -> Result<Verified, ProofRefused> {
        let mut worker = worker(state);
        edit(&mut worker, |it| it.terms = terms);
        let pool = pool(&worker, &json!({}));
        let claim = IdentityClaim {
            pool: &pool,
            worker: &worker,
            proof,
            now: now(),
        };
        Tokens::new(&context("here")).verify(&claim)
    }

    fn right() -> Proof {
        Proof::Token(Tokens::new(&context("here")).token(&worker(WorkerState::Requested).key))
    }

    #[test]
    fn a_requested_worker_with_its_token_gets_what_it_was_promised() {
        let terms = Terms {
            reregistration_timeout: Some(60_000),
            worker_config: Some(json!({"a": 1})),
            ..Terms::default()
        };
        let verified = verify(WorkerState::Requested, terms, &right()).unwrap();
        assert_eq!(verified.lasts_ms, 60_000);
        assert_eq!(verified.worker_config, json!({"a": 1}));
        let secret =
            Tokens::new(&context("here")).static_secret(&worker(WorkerState::Requested).key);
        assert_eq!(secret.expose().len(), 44);
        let secret = Proof::StaticSecret(secret);
        let verified = verify(WorkerState::Requested, Terms::default(), &secret).unwrap();
        assert_eq!(verified.lasts_ms, 96 * 3_600_000);
        assert_eq!(verified.worker_config, json!({}));
    }

    #[test]
    fn a_worker_that_is_not_requested_any_more_is_refused_whatever_it_shows() {
        for state in [
            WorkerState::Running,
            WorkerState::Stopping,
            WorkerState::Stopped,
        ] {
            let refused = verify(state, Terms::default(), &right()).unwrap_err();
            assert_eq!(refused.message, REFUSED);
            assert_eq!(
                refused.detail,
                format!("a {state} worker cannot become running")
            );
        }
    }

    #[test]
    fn tokens_of_other_workers_and_providers_and_other_proofs_are_refused_alike() {
        let key = worker(WorkerState::Requested).into_stored().key;
        let mut other = key.clone();
        other.id = "another".parse().unwrap();
        let here = Tokens::new(&context("here"));
        let elsewhere = Tokens::new(&context("elsewhere"));
        for proof in [
            Proof::Token(here.token(&other)),
            Proof::Token(elsewhere.token(&key)),
            Proof::Token(Secret::new("")),
            Proof::StaticSecret(here.token(&key)),
            Proof::StaticSecret(here.static_secret(&other)),
            Proof::StaticSecret(elsewhere.static_secret(&key)),
            Proof::Token(here.static_secret(&key)),
            Proof::Document(json!(here.token(&key).expose())),
            Proof::SignedDocument {
                document: json!({}),
                signature: here.token(&key),
            },
        ] {
            let refused = verify(WorkerState::Requested, Terms::default(), &proof).unwrap_err();
            assert_eq!(refused.message, REFUSED);
            assert_eq!(refused.detail, "the proof is none of ours for this worker");
        }
    }
}
