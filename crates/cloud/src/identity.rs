//! Identity tokens that we sign, for workers whose cloud provides no proof of identity.
//!
//! A token is a keyed digest of the worker's full name, so it is not stored and is useless to
//! another worker. Each worker also has a secret in the form that Taskcluster's start-worker sends.

use std::sync::Arc;

use access::Secret;
use access::seal::Keyring;
use domain::id::{LaunchToken, ProviderId, WorkerKey};
use domain::launch;

use crate::{IdentityClaim, Proof, ProofRefused, ProviderContext, Verification};

/// The message for every refused worker, whatever the reason.
pub(crate) const REFUSED: &str = "Token validation error";

/// The token with which a worker of this provider proves its identity.
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

    /// The secret that start-worker calls `staticSecret`.
    pub(crate) fn static_secret(&self, worker: &WorkerKey) -> Secret {
        self.keyring
            .derive(&secret_purpose(&self.id), &worker.to_string())
    }

    /// The launch that offered this identity, if the proof is the offered one.
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
            Proof::SignedDocument { .. } | Proof::Document(_) | Proof::Relay => false,
        }
    }

    /// Verifies a claim, for providers that accept only our tokens.
    pub(crate) fn verify(&self, claim: &IdentityClaim<'_>) -> Result<Verification, ProofRefused> {
        if !self.is_ours(&claim.worker.key, claim.proof) {
            return Err(refuse("the proof is not this worker's token"));
        }
        register_once(claim)
    }
}

/// Checks that the worker has not registered yet. A second registration is an attack or a bug.
pub(crate) fn register_once(claim: &IdentityClaim<'_>) -> Result<Verification, ProofRefused> {
    claim
        .worker
        .check_unregistered()
        .map_err(|error| refuse(&error.to_string()))?;
    Ok(Verification::by_terms(&claim.worker.terms))
}

pub(crate) fn refuse(detail: &str) -> ProofRefused {
    ProofRefused::new(REFUSED, detail)
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

    use crate::tests::values::{context, edit, now, pool, worker};

    use super::*;

    fn verify(
        state: WorkerState,
        terms: Terms,
        proof: &Proof,
    ) -> Result<Verification, ProofRefused> {
        let mut worker = worker(state);
        edit(&mut worker, |it| it.terms = terms);
        let pool = pool(&worker, &json!({}));
        let claim = IdentityClaim {
            pool: &pool,
            worker: &worker,
            launch_config: None,
            proof,
            now: now(),
        };
        Tokens::new(&context("here")).verify(&claim)
    }

    fn right() -> Proof {
        Proof::Token(Tokens::new(&context("here")).token(&worker(WorkerState::Requested).key))
    }

    #[test]
    fn a_requested_worker_with_its_token_registers_by_the_terms_of_its_launch() {
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
    fn a_worker_that_is_no_longer_requested_is_refused_with_any_proof() {
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
    fn other_tokens_and_other_proofs_are_refused_with_the_same_message() {
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
            assert_eq!(refused.detail, "the proof is not this worker's token");
        }
    }
}
