//! Values that the tests of all providers share.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use access::Secret;
use access::seal::{Key, Keyring};
use contract::Schemas;
use domain::Version;
use domain::id::WorkerKey;
use domain::launch_config::{LaunchConfig, implied_for_hosts};
use domain::pool::{Pool, PoolDefinition};
use domain::time::{Clock, Timestamp};
use domain::worker::{StoredWorker, Terms, Worker, WorkerState};
use serde_json::{Value, json};

pub(crate) use crate::tests::suite::edit;
use crate::{
    IdentityClaim, Proof, ProofRefused, Provider, ProviderContext, Verification, VerifyError,
};

pub(crate) const ROOT_URL: &str = "http://fleet.example.com";

/// One claim of one worker in one pool.
pub(crate) struct Case {
    pub(crate) worker: Worker,
    pub(crate) proof: Proof,
    pub(crate) config: Value,
}

impl Case {
    /// For providers that decide about a proof themselves.
    pub(crate) async fn verify(
        &self,
        provider: &dyn Provider,
    ) -> Result<Verification, ProofRefused> {
        self.ask(provider).await.map_err(|error| match error {
            VerifyError::Refused(refused) => refused,
            VerifyError::Cloud(error) => panic!("the proof cannot be checked: {error}"),
        })
    }

    pub(crate) async fn ask(&self, provider: &dyn Provider) -> Result<Verification, VerifyError> {
        let pool = pool(&self.worker, &self.config);
        let launch_config = LaunchConfig {
            pool_id: pool.id.clone(),
            id: "lc".parse().unwrap(),
            archived: false,
            position: 0,
            configuration: implied_for_hosts(&pool.definition.config),
            created: now(),
            last_modified: now(),
            version: Version::FIRST,
        };
        let claim = IdentityClaim {
            pool: &pool,
            worker: &self.worker,
            launch_config: Some(&launch_config),
            proof: &self.proof,
            now: now(),
        };
        provider.verify(&claim).await
    }
}

/// The pool of a worker.
pub(crate) fn pool(worker: &Worker, config: &Value) -> Pool {
    let definition = PoolDefinition {
        provider_id: worker.provider_id.clone(),
        further_provider_ids: Vec::new(),
        description: String::new(),
        config: config.as_object().unwrap().clone(),
        owner: "ops@example.com".to_owned(),
        email_on_error: false,
    };
    Pool::new(worker.key.pool_id.clone(), definition, now())
}

/// A clock that moves only when a test moves it.
pub(crate) struct TestClock(AtomicI64);

impl TestClock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(now().as_millis())))
    }

    pub(crate) fn advance_ms(&self, millis: i64) {
        self.0.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}

/// A context for a provider of this id, without a folder, and with a test clock.
pub(crate) fn context(id: &str) -> ProviderContext {
    context_at(id, &TestClock::new())
}

pub(crate) fn context_at(id: &str, clock: &Arc<TestClock>) -> ProviderContext {
    ProviderContext {
        id: id.parse().unwrap(),
        schemas: schemas(),
        keyring: keyring(),
        root_url: ROOT_URL.to_owned(),
        data: None,
        clock: Arc::clone(clock) as Arc<dyn Clock>,
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
    Worker::from_stored(StoredWorker {
        key: WorkerKey {
            pool_id: "a/b".parse().unwrap(),
            group: "dc1".parse().unwrap(),
            id: "host-7".parse().unwrap(),
        },
        provider_id: "static".parse().unwrap(),
        launch_config_id: None,
        state,
        capacity: 1,
        price: None,
        created: now(),
        expires: now(),
        last_modified: now(),
        last_checked: now(),
        terms: Terms::default(),
        provider_data: json!({}),
        secret: None,
        previous_secret: None,
        version: Version::FIRST,
    })
}
