//! What the tests of all providers share.

use std::sync::Arc;

use access::Secret;
use access::seal::{Key, Keyring};
use contract::Schemas;
use domain::Version;
use domain::id::WorkerKey;
use domain::pool::{Pool, PoolDefinition};
use domain::time::Timestamp;
use domain::worker::{Terms, Worker, WorkerState};
use serde_json::{Value, json};

use crate::{IdentityClaim, Proof, ProofRefused, Provider, Verified};

/// One claim of one worker in one pool.
pub(crate) struct Case {
    pub(crate) worker: Worker,
    pub(crate) proof: Proof,
    pub(crate) config: Value,
}

impl Case {
    pub(crate) async fn verify(&self, provider: &dyn Provider) -> Result<Verified, ProofRefused> {
        let definition = PoolDefinition {
            provider_id: self.worker.provider_id.clone(),
            description: String::new(),
            config: self.config.as_object().unwrap().clone(),
            owner: "ops@example.com".to_owned(),
            email_on_error: false,
        };
        let pool = Pool::new(self.worker.key.pool_id.clone(), definition, now());
        let claim = IdentityClaim {
            pool: &pool,
            worker: &self.worker,
            proof: &self.proof,
            now: now(),
        };
        provider.verify(&claim).await
    }
}

pub(crate) fn now() -> Timestamp {
    Timestamp::from_millis(1_790_000_000_000)
}

pub(crate) fn schemas() -> Schemas {
    Schemas::new()
}

pub(crate) fn keyring() -> Arc<Keyring> {
    let secret = Secret::new("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=");
    Arc::new(
        Keyring::new(vec![Key {
            id: "test".to_owned(),
            secret,
        }])
        .unwrap(),
    )
}

pub(crate) fn worker(state: WorkerState) -> Worker {
    Worker {
        key: WorkerKey {
            pool_id: "a/b".parse().unwrap(),
            group: "dc1".parse().unwrap(),
            id: "host-7".parse().unwrap(),
        },
        provider_id: "static".parse().unwrap(),
        launch_config_id: None,
        state,
        capacity: 1,
        created: now(),
        expires: now(),
        last_modified: now(),
        last_checked: now(),
        terms: Terms::default(),
        provider_data: json!({}),
        secret: None,
        previous_secret: None,
        version: Version::FIRST,
    }
}
