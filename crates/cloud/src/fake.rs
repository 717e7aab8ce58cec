//! A cloud in memory.
//!
//! It takes the pool configs of a real cloud, so that a copy of a real fleet can be tried here, and
//! proves its workers with tokens that it signs itself.

use std::sync::Arc;

use access::Secret;
use access::seal::Keyring;
use async_trait::async_trait;
use contract::{Invalid, Schemas};
use domain::id::{ProviderId, WorkerKey};
use domain::lifecycle;
use domain::worker::Worker;
use serde_json::{Map, Value};

use crate::{
    AcceptedConfig, CloudError, IdentityClaim, LaunchError, LaunchOrder, Launched, Machines, Owned,
    Proof, ProofRefused, Provider, Sighting, Verified,
};

pub struct FakeCloud {
    id: ProviderId,
    accepts: AcceptedConfig,
    schemas: Schemas,
    keyring: Arc<Keyring>,
}

impl FakeCloud {
    pub fn new(
        id: ProviderId,
        accepts: AcceptedConfig,
        schemas: Schemas,
        keyring: Arc<Keyring>,
    ) -> Self {
        Self {
            id,
            accepts,
            schemas,
            keyring,
        }
    }

    /// What the metadata service of this cloud would give the worker to prove itself with.
    pub fn identity_token(&self, worker: &WorkerKey) -> Secret {
        Secret::new(
            self.keyring
                .digest(&self.purpose(), &Secret::new(worker.to_string())),
        )
    }

    fn purpose(&self) -> String {
        format!("fake-identity:{}", self.id)
    }
}

#[async_trait]
impl Provider for FakeCloud {
    fn kind(&self) -> &'static str {
        "fake"
    }

    fn validate(&self, config: &mut Value) -> Result<(), Invalid> {
        self.schemas.validate(self.accepts.schema(), config)
    }

    /// As on a real cloud: a worker registers once, while it is still only requested.
    async fn verify(&self, claim: &IdentityClaim<'_>) -> Result<Verified, ProofRefused> {
        let refuse = |detail: &str| ProofRefused {
            message: "Token validation error",
            detail: detail.to_owned(),
        };
        let Proof::Token(token) = claim.proof else {
            return Err(refuse("the proof is no token"));
        };
        let signed = Secret::new(claim.worker.key.to_string());
        if !self
            .keyring
            .digest_matches(&self.purpose(), token.expose(), &signed)
        {
            return Err(refuse("the token is not one of ours for this worker"));
        }
        let state = claim
            .worker
            .state
            .register()
            .map_err(|problem| refuse(&problem.to_string()))?;
        let terms = &claim.worker.terms;
        Ok(Verified {
            state,
            lasts_ms: terms
                .reregistration_timeout
                .unwrap_or(lifecycle::DEFAULT_REREGISTRATION_MS),
            worker_config: terms
                .worker_config
                .clone()
                .unwrap_or_else(|| Value::Object(Map::new())),
        })
    }

    fn machines(&self) -> Option<&dyn Machines> {
        Some(self)
    }
}

#[async_trait]
impl Machines for FakeCloud {
    async fn launch(&self, _order: &LaunchOrder<'_>) -> Result<Vec<Launched>, LaunchError> {
        Ok(Vec::new())
    }

    async fn look(&self, _workers: &[Worker]) -> Result<Vec<(WorkerKey, Sighting)>, CloudError> {
        Ok(Vec::new())
    }

    async fn owned(&self) -> Result<Vec<Owned>, CloudError> {
        Ok(Vec::new())
    }

    async fn end(&self, _worker: &Worker) -> Result<(), CloudError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use domain::worker::WorkerState;
    use serde_json::json;

    use crate::provider_tests::{Case, keyring, schemas, worker};

    use super::*;

    fn cloud(accepts: AcceptedConfig) -> FakeCloud {
        FakeCloud::new("fake".parse().unwrap(), accepts, schemas(), keyring())
    }

    #[tokio::test]
    async fn a_requested_worker_with_its_token_is_verified_once() {
        let cloud = cloud(AcceptedConfig::Google);
        let worker = worker(WorkerState::Requested);
        let proof = || Proof::Token(cloud.identity_token(&worker.key));
        let case = Case {
            worker: worker.clone(),
            proof: proof(),
            config: json!({}),
        };
        assert_eq!(
            case.verify(&cloud).await.unwrap().state,
            WorkerState::Running
        );

        let again = Worker {
            state: WorkerState::Running,
            ..worker.clone()
        };
        let case = Case {
            worker: again,
            proof: proof(),
            config: json!({}),
        };
        let refused = case.verify(&cloud).await.unwrap_err();
        assert_eq!(refused.message, "Token validation error");
        assert_eq!(refused.detail, "a running worker cannot become running");
    }

    #[tokio::test]
    async fn a_token_of_another_worker_or_another_kind_of_proof_is_refused() {
        let cloud = cloud(AcceptedConfig::Google);
        let worker = worker(WorkerState::Requested);
        let mut other = worker.key.clone();
        other.id = "another".parse().unwrap();
        for proof in [
            Proof::Token(cloud.identity_token(&other)),
            Proof::Token(Secret::new("")),
            Proof::Document(json!("text")),
        ] {
            let case = Case {
                worker: worker.clone(),
                proof,
                config: json!({}),
            };
            assert_eq!(
                case.verify(&cloud).await.unwrap_err().message,
                "Token validation error"
            );
        }
    }

    #[test]
    fn each_kind_of_config_is_checked_by_its_own_schema() {
        let mut config = json!({"minCapacity": 0, "maxCapacity": 1, "launchConfigs": [],
            "lifecycle": {"queueInactivityTimeout": 2}});
        for accepts in [
            AcceptedConfig::Aws,
            AcceptedConfig::Azure,
            AcceptedConfig::Google,
        ] {
            let invalid = cloud(accepts).validate(&mut config).unwrap_err();
            let message = invalid.message("http://localhost");
            assert!(
                message.contains("queueInactivityTimeout must be >= 1200"),
                "{message}"
            );
        }
    }
}
