//! An engine on a database of its own, with a clock that stands still.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use access::Secret;
use access::seal::{Key, Keyring, generate_key};
use cloud::Providers;
use contract::Schemas;
use domain::audit::{AuditEntry, EntityType};
use domain::plan::StrategyDefaults;
use domain::time::{Clock, DAY_MS, Timestamp};
use engine::Engine;
use engine::artifacts::{Artifacts, FileLimits};
use engine::availability::Availability;
use engine::configurations::{CompilationCache, PayloadSchemas};
use engine::demand::DemandSource;
use engine::fleet::{LaunchAnswers, LaunchTracker};
use engine::issuer::WorkerIssuer;
use engine::phase_measures::PhaseMeasures;
use engine::provider_tests::ProviderTests;
use engine::queue::Queue;
use engine::random::Random;
use engine::strategy_services::StrategyServices;
use engine::wakeups::Wakeups;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde_json::Value;
use store::{Options, Store, StoreError};
use tempfile::TempDir;

struct StillClock(AtomicI64);

impl Clock for StillClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}

pub(crate) struct World {
    pub(crate) engine: Arc<Engine>,
    clock: Arc<StillClock>,
    _home: TempDir,
}

impl World {
    pub(crate) async fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", home.path().join("store.db").display());
        let store = Store::open(&Options {
            url,
            connections: 1,
        });
        let store = store.unwrap();
        let clock = Arc::new(StillClock(AtomicI64::new(20_000 * DAY_MS)));
        let now = clock.now();
        store.migrate(now.as_millis()).await.unwrap();
        let mut random = StdRng::seed_from_u64(1);
        let key = Key {
            id: "k".to_owned(),
            secret: generate_key(&mut random),
        };
        let issuer = WorkerIssuer {
            client_id: "static/issuer".to_owned(),
            access_token: Secret::new("token"),
        };
        let limits = FileLimits {
            reserve_bytes: 0,
            task_bytes: u64::MAX,
        };
        let engine = Engine {
            root_url: "http://localhost".to_owned(),
            store,
            clock: clock.clone(),
            random: Arc::new(Random::new(random)),
            providers: Providers::new(Vec::new()),
            strategies: StrategyDefaults::default(),
            strategy_services: StrategyServices::default(),
            queue: Queue::new(issuer.clone()),
            wakeups: Wakeups::default(),
            demand_source: DemandSource::Embedded,
            launch_tracker: LaunchTracker::default(),
            provider_tests: ProviderTests::default(),
            phase_measures: PhaseMeasures::default(),
            launch_answers: LaunchAnswers::default(),
            availability: Availability::new(now),
            artifacts: Artifacts::new(Some(home.path().join("artifacts")), limits),
            schemas: Schemas::new(),
            keyring: Arc::new(Keyring::new(vec![key]).unwrap()),
            issuer,
            compilations: CompilationCache::default(),
            payload_schemas: PayloadSchemas::default(),
            claim_seconds: 1_200,
            error_reports_per_hour: 60,
            taskcluster_names: false,
            life_observer: None,
            taskcluster_records: false,
        };
        Self {
            engine: Arc::new(engine),
            clock,
            _home: home,
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn advance_ms(&self, millis: i64) {
        self.clock.0.fetch_add(millis, Ordering::SeqCst);
    }

    /// An audit entry of a change at this moment.
    pub(crate) fn audit(&self, entity_type: EntityType, id: &str, action: &str) -> AuditEntry {
        AuditEntry {
            entity_type,
            entity_id: id.to_owned(),
            action: action.to_owned(),
            client_id: "tester".to_owned(),
            created: self.now(),
            source_ip: None,
            request_id: None,
            detail: Value::Null,
        }
    }

    /// The actions on an entity, in order.
    pub(crate) async fn actions(&self, entity_type: EntityType, id: &str) -> Vec<String> {
        let id = id.to_owned();
        let read = self.engine.store.scan("audit_by_entity", move |tx| {
            store::audit::by_entity(tx, entity_type, &id, None, 100)
        });
        let entries = read.await.unwrap().into_iter();
        entries.map(|(_, entry)| entry.action).collect()
    }

    /// How many events wait to be published.
    pub(crate) async fn n_events(&self) -> u64 {
        let read = self.engine.store.read("outbox_depth", store::outbox::depth);
        let depth: Result<u64, StoreError> = read.await;
        depth.unwrap()
    }
}
