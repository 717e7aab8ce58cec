//! A server with its own clock, randomness, database and providers, called without sockets.
//!
//! Dropping it asserts that no handler panicked and that no error was logged, unless the test
//! expected it.

use std::cell::Cell;
use std::io::Write;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use access::Secret;
use cloud::Provider;
use contract::Schemas;
use domain::event::EXCHANGES;
use domain::id::{ProviderId, WorkerKey};
use domain::time::{Clock, Timestamp};
use domain::worker::Worker;
use engine::change::Change;
use engine::random::Random;
use http::Method;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use server::api::listener::Server;
use server::app::App;
use server::background::driver::BackgroundTask;
use server::background::{Batches, Housekeeping, Outcomes, ProviderSetup, WaitAccounts};
use server::config::Config;
use server::start::start_with;
use store::outbox::OutboxRow;
use store::{Counts, StoreError, Tx};
use tempfile::TempDir;
use tracing::subscriber::DefaultGuard;

use crate::ask::{Ask, Who};
use crate::database::Database;
use crate::measuring::{Measuring, measure_here};
use crate::providers::{Pausing, Shaky};
use crate::queue_samples::stop_time;

pub(crate) const ROOT_URL: &str = "http://fleet.example.com";
/// 2026-09-21T14:13:20.000Z
pub(crate) const START_MS: i64 = 1_790_000_000_000;
const ROOT_TOKEN: &str = "root-root-root-root-root-root-root-root-root";
/// The lists of a test are shorter.
const MAX_EVENTS: u32 = 1_000;
/// After this many trips to the database, a wait is over, on a busy machine too.
pub(crate) const MAX_TRIPS: u64 = 50_000;
/// Those of housekeeping, which pauses after each of them otherwise.
pub(crate) const KEEPING: Batches = Batches {
    size: 25,
    most: 4_000,
};

/// Stands still unless it is moved.
pub(crate) struct TestClock(AtomicI64);

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}

impl TestClock {
    pub(crate) fn advance_ms(&self, millis: i64) {
        self.0.fetch_add(millis, Ordering::SeqCst);
    }
}

/// The log of the test's own thread.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// The lines that contain this text.
    pub(crate) fn lines(&self, part: &str) -> Vec<String> {
        let text = self.text();
        let lines = text.lines().filter(|line| line.contains(part));
        lines.map(str::to_owned).collect()
    }

    fn capture(&self) -> DefaultGuard {
        let log = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .without_time()
            .with_max_level(tracing::Level::DEBUG)
            .with_writer(move || log.clone())
            .finish();
        tracing::subscriber::set_default(subscriber)
    }
}

pub(crate) struct World {
    pub(crate) app: Arc<App>,
    pub(crate) server: Arc<Server>,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) shaky: Arc<Shaky>,
    pub(crate) pausing: Arc<Pausing>,
    pub(crate) log: Log,
    /// Errors in the log are part of the test.
    pub(crate) errors_expected: Cell<bool>,
    // Dropped in this order: the store's connections are closed before the database is dropped.
    pub(crate) database: Database,
    _folder: TempDir,
    _measuring: Measuring,
    _capture: DefaultGuard,
}

fn all_providers(
    shaky: &Arc<Shaky>,
    pausing: &Arc<Pausing>,
    further: Vec<(ProviderId, Arc<dyn Provider>)>,
) -> Vec<(ProviderId, Arc<dyn Provider>)> {
    let mut providers: Vec<(ProviderId, Arc<dyn Provider>)> = vec![
        ("shaky".parse().unwrap(), Arc::clone(shaky) as _),
        ("pausing".parse().unwrap(), Arc::clone(pausing) as _),
    ];
    providers.extend(further);
    providers
}

impl World {
    pub(crate) async fn open(database: Database, change: impl FnOnce(&mut Config)) -> Self {
        Self::open_with(database, change, |_, _| Vec::new()).await
    }

    /// With further providers, made from the configuration and the clock.
    pub(crate) async fn open_with(
        database: Database,
        change: impl FnOnce(&mut Config),
        further: impl FnOnce(&Config, &Arc<TestClock>) -> Vec<(ProviderId, Arc<dyn Provider>)>,
    ) -> Self {
        let log = Log::default();
        let capture = log.capture();
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(&database, &folder);
        change(&mut config);
        let clock = Arc::new(TestClock(AtomicI64::new(START_MS)));
        let (shaky, pausing) = (Arc::new(Shaky::default()), Pausing::new());
        let further = further(&config, &clock);
        let providers = all_providers(&shaky, &pausing, further);
        let random = Random::new(StdRng::seed_from_u64(7));
        let app = start_with(config, Arc::clone(&clock) as _, random, providers)
            .await
            .unwrap();
        let measuring = measure_here(&app.telemetry);
        Self {
            server: Arc::new(Server::new(Arc::clone(&app))),
            app,
            clock,
            shaky,
            pausing,
            log,
            errors_expected: Cell::new(false),
            database,
            _folder: folder,
            _measuring: measuring,
            _capture: capture,
        }
    }

    /// A new server on the same database, with these further providers. The old one is forgotten.
    pub(crate) async fn restart(&mut self, further: Vec<(ProviderId, Arc<dyn Provider>)>) {
        let random = Random::new(StdRng::seed_from_u64(
            self.now().as_millis().cast_unsigned(),
        ));
        let (config, clock) = (self.app.config.clone(), Arc::clone(&self.clock) as _);
        let providers = all_providers(&self.shaky, &self.pausing, further);
        self.app = start_with(config, clock, random, providers).await.unwrap();
        self._measuring = measure_here(&self.app.telemetry);
        self.server = Arc::new(Server::new(Arc::clone(&self.app)));
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Asks as root. A path is the worker manager's, unless it begins with `auth:` or `root:`.
    pub(crate) fn ask(&self, method: Method, path: &str) -> Ask {
        let ask = Ask::new(Arc::clone(&self.server), method, path, self.now());
        ask.by(&self.root())
    }

    pub(crate) fn get(&self, path: &str) -> Ask {
        self.ask(Method::GET, path)
    }

    pub(crate) fn put(&self, path: &str, body: Value) -> Ask {
        self.ask(Method::PUT, path).json(&body)
    }

    pub(crate) fn post(&self, path: &str, body: Value) -> Ask {
        self.ask(Method::POST, path).json(&body)
    }

    pub(crate) fn delete(&self, path: &str) -> Ask {
        self.ask(Method::DELETE, path)
    }

    pub(crate) fn root(&self) -> Who {
        Who::new("static/root", ROOT_TOKEN)
    }

    /// Makes a client with these scopes, for a month.
    pub(crate) async fn client(&self, id: &str, scopes: &[&str]) -> Who {
        let body = json!({"expires": self.now().plus_millis(30 * 86_400_000).to_string(),
            "description": "", "scopes": scopes});
        let path = format!("auth:/clients/{}", id.replace('/', "%2F"));
        let made = self.put(&path, body).await.expect(200);
        Who::new(id, made["accessToken"].as_str().unwrap())
    }

    /// The unpublished events, in order; each payload is checked against its schema.
    pub(crate) async fn events(&self) -> Vec<OutboxRow> {
        let rows = self
            .write(|tx| store::events::assign_positions(tx, MAX_EVENTS))
            .await;
        let rows = rows.items;
        for row in &rows {
            let exchange = EXCHANGES.iter().find(|known| known.topic() == row.topic);
            let exchange = exchange.unwrap();
            let schema = format!("{}/v1/{}", exchange.service, exchange.schema);
            Schemas::new().check(&schema, &row.payload).unwrap();
        }
        rows
    }

    /// Those events as text: exchange, routing key, payload.
    pub(crate) async fn told(&self) -> String {
        let rows = self.events().await;
        let lines = rows.iter().map(|row| {
            let name = row.topic.rsplit('/').next().unwrap();
            format!("{name} {} {}", row.routing_key, row.payload)
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    pub(crate) async fn insert(&self, worker: Worker) {
        let inserted = self.write(move |tx| store::workers::insert(tx, &worker));
        assert!(inserted.await, "there is such a worker already");
    }

    pub(crate) async fn worker(&self, key: &WorkerKey) -> Option<Worker> {
        let key = key.clone();
        self.read(move |tx| store::workers::get(tx, &key)).await
    }

    pub(crate) async fn write<T: Send + 'static>(
        &self,
        f: impl FnMut(&mut Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> T {
        self.app.engine.store.write("test_write", f).await.unwrap()
    }

    pub(crate) async fn change<T: Send + 'static>(
        &self,
        f: impl FnMut(&mut Change<'_, '_>) -> Result<T, StoreError> + Send + 'static,
    ) -> T {
        let written = self.app.engine.change("test_change", self.now(), f);
        written.await.unwrap()
    }

    pub(crate) async fn read<T: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> T {
        self.app.engine.store.read("test_read", f).await.unwrap()
    }

    /// A trip to the database, which gives others the time for one. PostgreSQL hears nothing of a
    /// transaction without statements.
    pub(crate) async fn trip(&self) {
        let store = &self.app.engine.store;
        store.scan("trip", store::probe::clock).await.unwrap();
    }

    /// The result of this future, which comes while timers stand still.
    pub(crate) async fn at_once<T>(&self, what: impl Future<Output = T>) -> T {
        let stopped = stop_time();
        let many_trips = async {
            for _ in 0..MAX_TRIPS {
                self.trip().await;
            }
        };
        let value = tokio::select! {
            value = what => value,
            () = many_trips => panic!("it waits for a timer"),
        };
        stopped.resume();
        value
    }

    /// The result of this future, and the counts of the database's work for it.
    pub(crate) async fn counted<T>(&self, what: impl Future<Output = T>) -> (T, Counts) {
        self.app.engine.store.take_counts();
        let value = what.await;
        (value, self.app.engine.store.take_counts())
    }

    /// The reply of the metadata service of the fake cloud `google` for this worker.
    pub(crate) fn identity_token(&self, worker: &WorkerKey) -> Secret {
        let google = "google".parse().unwrap();
        cloud::identity_token(&self.app.engine.keyring, &google, worker)
    }

    pub(crate) async fn keep_house(&self) -> Value {
        let house = Housekeeping::new(Arc::clone(&self.app));
        house.in_batches(KEEPING).await.unwrap()
    }

    /// Events are kept until the outcomes and the waits in them have been read.
    pub(crate) async fn read_outcomes(&self) -> Value {
        let mut waits = WaitAccounts::new(Arc::clone(&self.app));
        waits.activate().await.unwrap();
        let mut outcomes = Outcomes(Arc::clone(&self.app));
        outcomes.activate().await.unwrap()
    }

    pub(crate) async fn set_up_providers(&self) -> Value {
        ProviderSetup::new(Arc::clone(&self.app.engine))
            .activate()
            .await
            .unwrap()
    }
}

impl Drop for World {
    #[expect(clippy::print_stdout, reason = "a failure must say how it came about")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            for line in self.log.lines("ERROR") {
                println!("{line}");
            }
            return;
        }
        assert_eq!(self.log.lines("panicked"), Vec::<String>::new());
        if !self.errors_expected.get() {
            assert_eq!(self.log.lines("ERROR"), Vec::<String>::new());
        }
    }
}

fn config(database: &Database, folder: &TempDir) -> Config {
    let keys = folder.path().join("keys");
    std::fs::write(&keys, "k1 AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n").unwrap();
    let text = format!(
        r#"
        root_url = "{ROOT_URL}"
        database = {{ url = "{}", connections = 4 }}
        keys.file = "{}"
        data = "{}"
        server.check_responses = true

        [[auth.static_clients]]
        client_id = "static/root"
        access_token = "{ROOT_TOKEN}"
        scopes = ["*"]
        description = "May do everything"

        [providers]
        static = {{ kind = "static" }}
        google = {{ kind = "fake", accepts = "google" }}
        aws = {{ kind = "fake", accepts = "aws" }}
        azure = {{ kind = "fake", accepts = "azure" }}
        "#,
        database.url,
        keys.display(),
        folder.path().join("data").display(),
    );
    Config::from_toml(&text, "test.toml".as_ref()).unwrap()
}
