//! One simulated world: a database, two clouds with their machines, a clock, and processes that
//! start and end.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cloud::{FakeCloud, Provider, ProviderContext};
use contract::Schemas;
use domain::id::{LaunchToken, ProviderId, WorkerKey};
use domain::time::{Clock, Timestamp};
use engine::database_clock::DatabaseClock;
use engine::random::Random;
use http::Method;
use server::api::listener::Server;
use server::app::App;
use server::background::MachineTermination;
use server::config::{Config, OutsideQueue};
use server::start::{start_on, start_with};
use store::{Options, Store};
use tempfile::TempDir;

use crate::ask::{Answer, Ask, Who};
use crate::clocks::{MachineClock, clock_of, measure};
use crate::clouds::{Handle, Life, Mutant};
use crate::costs::keeps_bills;
use crate::database::Database;
use crate::run::Kind;
use crate::state::State;
use testing::Chance;

pub(crate) const ROOT_URL: &str = "http://fleet.example.com";
const ROOT_TOKEN: &str = "root-root-root-root-root-root-root-root-root";
/// 2026-09-21T14:13:20.000Z
pub(crate) const START_MS: i64 = 1_790_000_000_000;
/// The clouds, with their maximum numbers of machines.
pub(crate) const CLOUDS: [(&str, Option<u64>); 2] = [("one", None), ("two", Some(5))];
/// How often all waiting work may continue before the next step.
const TURNS: usize = 64;
/// On PostgreSQL an answer takes real time, but never this long.
const LONGEST_ANSWER: Duration = Duration::from_secs(20);
/// And a worker without work gets its answer after this time.
const NO_WORK: Duration = Duration::from_millis(100);

pub(crate) struct TestClock(AtomicI64);

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}

/// One of several servers on the same database.
pub(crate) struct Process {
    pub(crate) number: usize,
    pub(crate) app: Arc<App>,
    pub(crate) life: Arc<Life>,
    pub(crate) endings: tokio::sync::Mutex<Vec<MachineTermination>>,
    pub(crate) random: Chance,
    pub(crate) mutant: Option<Mutant>,
    /// The clocks of its machine, and what it makes of them.
    pub(crate) local: Arc<MachineClock>,
    pub(crate) clock: Arc<DatabaseClock>,
    server: Arc<Server>,
}

pub(crate) struct World {
    pub(crate) kind: Kind,
    pub(crate) seed: u64,
    pub(crate) chance: Chance,
    pub(crate) mutant: Option<Mutant>,
    /// Processes hear of changes; otherwise every wake-up is lost (I15).
    pub(crate) rings: bool,
    pub(crate) clouds: Vec<Arc<FakeCloud>>,
    /// Reads the database and never dies.
    pub(crate) observer: Store,
    /// The clock of the database, which may be set.
    clock: Arc<TestClock>,
    /// The time of the clouds.
    true_clock: Arc<TestClock>,
    config: Config,
    trouble: AtomicBool,
    down: [AtomicBool; 2],
    depth: AtomicU32,
    next_process: AtomicU32,
    processes: Mutex<Vec<Arc<Process>>>,
    state: Mutex<State>,
    // Dropped last, when no connection is open any more.
    _postgres: Option<Database>,
}

impl World {
    pub(crate) async fn open(
        kind: Kind,
        seed: u64,
        mutant: Option<Mutant>,
        postgres: Option<Database>,
    ) -> Arc<Self> {
        Self::open_beside(None, kind, seed, mutant, postgres).await
    }

    /// A world whose tasks are pending in another deployment's queue, if there is one.
    pub(crate) async fn open_beside(
        queue: Option<OutsideQueue>,
        kind: Kind,
        seed: u64,
        mutant: Option<Mutant>,
        postgres: Option<Database>,
    ) -> Arc<Self> {
        let (observer, mut config) = Home::open(postgres.as_ref()).await;
        config.queue.taskcluster = queue;
        let clock = || Arc::new(TestClock(AtomicI64::new(START_MS)));
        let (clock, true_clock) = (clock(), clock());
        let keyring = Arc::new(config.keyring().unwrap());
        let cloud = |(id, _): &(&str, Option<u64>)| {
            let context = ProviderContext {
                id: id.parse().unwrap(),
                schemas: Schemas::new(),
                keyring: Arc::clone(&keyring),
                root_url: ROOT_URL.to_owned(),
                data: None,
                clock: Arc::clone(&true_clock) as _,
            };
            Arc::new(FakeCloud::new(context, kind.settings_of(id)))
        };
        let chance = Chance::new(seed);
        let clouds: Vec<_> = CLOUDS.iter().map(cloud).collect();
        if keeps_bills(seed) {
            clouds.iter().for_each(|cloud| cloud.keep_bill());
        }
        let world = Arc::new(Self {
            kind,
            seed,
            mutant,
            rings: seed.is_multiple_of(2),
            clouds,
            chance,
            observer,
            clock,
            true_clock,
            config,
            trouble: AtomicBool::new(true),
            down: [AtomicBool::new(false), AtomicBool::new(false)],
            depth: AtomicU32::new(0),
            next_process: AtomicU32::new(0),
            processes: Mutex::default(),
            state: Mutex::default(),
            _postgres: postgres,
        });
        world.add_process().await;
        world
    }

    /// Whether most pools have the strategy `balanced`.
    pub(crate) fn learns(&self) -> bool {
        self.seed % 3 == 1
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note(&self, text: impl Into<String>) {
        let now = self.now();
        self.state().trace.push(format!("{now} {}", text.into()));
    }

    /// Records an error: the run continues to its next check, and fails there.
    pub(crate) fn problem(&self, text: impl Into<String>) {
        let text = text.into();
        self.note(format!("WRONG: {text}"));
        self.state().problems.push(text);
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn true_now(&self) -> Timestamp {
        self.true_clock.now()
    }

    /// The clock of the database is set, which the servers soon know.
    pub(crate) fn set_clocks_by_ms(&self, millis: i64) {
        let now = self.now();
        let mut state = self.state();
        state.latest = state.latest.max(Some(now));
        // No worker was active in the time that is in the future again.
        let after = now.plus_millis(millis);
        for active in state.active.values_mut() {
            *active = (*active).min(after);
        }
        state.times.set = Some(self.true_now());
        state.times.has_started = false;
        drop(state);
        self.clock.0.fetch_add(millis, Ordering::SeqCst);
        for process in self.lock_processes().iter() {
            process.measure(self.now());
        }
    }

    /// More time passes than the seconds between two measurements of each process.
    pub(crate) fn advance_ms(&self, millis: i64) {
        self.advance_others_ms(millis, None);
    }

    /// The machine of this process sleeps meanwhile.
    pub(crate) fn advance_others_ms(&self, millis: i64, sleeping: Option<&Arc<Process>>) {
        self.clock.0.fetch_add(millis, Ordering::SeqCst);
        self.true_clock.0.fetch_add(millis, Ordering::SeqCst);
        for process in self.lock_processes().iter() {
            if sleeping.is_none_or(|sleeping| !Arc::ptr_eq(sleeping, process)) {
                process.local.drift(millis);
                process.measure(self.now());
            }
        }
        for cloud in &self.clouds {
            cloud.clock_moved();
        }
    }

    pub(crate) fn is_postgres(&self) -> bool {
        self.observer.engine() == store::Engine::Postgres
    }

    pub(crate) fn makes_trouble(&self) -> bool {
        self.trouble.load(Ordering::SeqCst)
    }

    pub(crate) fn end_trouble(&self) {
        self.trouble.store(false, Ordering::SeqCst);
        for cloud in &self.clouds {
            cloud.behave();
            cloud.set_lag_ms(0);
            cloud.set_stop_ms(0);
            cloud.set_answer_delay_ms(0);
            cloud.set_repeats_itself(false);
        }
        self.calm_the_weather();
        for process in self.lock_processes().iter() {
            process.life.thaw();
            process.measure(self.now());
        }
    }

    pub(crate) fn is_down(&self, place: usize) -> bool {
        self.down[place].load(Ordering::SeqCst)
    }

    pub(crate) fn set_down(&self, place: usize, is_down: bool) {
        self.down[place].store(is_down, Ordering::SeqCst);
    }

    pub(crate) fn foreign_machines(&self, place: usize) -> Vec<WorkerKey> {
        let state = self.state();
        let there = state.foreign.iter().filter(|(cloud, _)| *cloud == place);
        there.map(|(_, key)| key.clone()).collect()
    }

    /// A token that no launch has.
    pub(crate) fn fresh_token(&self) -> LaunchToken {
        let mut chance = self.chance.clone();
        access::slugid::nice(&mut chance).parse().unwrap()
    }
}

/// Processes.
impl World {
    pub(crate) async fn add_process(self: &Arc<Self>) {
        let number = self.next_process.fetch_add(1, Ordering::SeqCst);
        let life = Life::new();
        let random = Chance::new(self.seed.wrapping_mul(1_000).wrapping_add(number.into()));
        let handle = |(place, (id, max_machines)): (usize, &(&str, Option<u64>))| {
            let handle = Handle {
                cloud: Arc::clone(&self.clouds[place]),
                life: Arc::clone(&life),
                world: Arc::downgrade(self),
                max_machines: *max_machines,
                place,
            };
            let id: ProviderId = id.parse().unwrap();
            (id, Arc::new(handle) as Arc<dyn Provider>)
        };
        let providers = CLOUDS.iter().enumerate().map(handle).collect();
        let config = self.config.clone();
        let local = MachineClock::new(&self.true_clock);
        let measured = Arc::new(DatabaseClock::new(Arc::clone(&local) as _));
        measure(&measured, self.now());
        let clock = clock_of(self.mutant, &local, &measured);
        let dice = Random::new(random.clone());
        let app = if self.is_postgres() {
            Box::pin(start_with(config, clock, dice, providers)).await
        } else {
            let store = self.observer.another_process();
            Box::pin(start_on(store, config, clock, dice, providers)).await
        };
        let app = app.unwrap();
        life.begins(&app.engine.store);
        let process = Process {
            number: number as usize,
            server: Arc::new(Server::new(Arc::clone(&app))),
            endings: tokio::sync::Mutex::new(MachineTermination::each(&app.engine)),
            app,
            life,
            random,
            mutant: self.mutant,
            local,
            clock: measured,
        };
        self.state().times.has_started = true;
        self.note(format!("process {number} starts"));
        self.lock_processes().push(Arc::new(process));
    }

    fn lock_processes(&self) -> MutexGuard<'_, Vec<Arc<Process>>> {
        self.processes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that live and are not frozen.
    pub(crate) fn processes(&self) -> Vec<Arc<Process>> {
        let processes = self.lock_processes();
        let is_there =
            |process: &&Arc<Process>| !process.life.is_over() && !process.life.is_frozen();
        processes.iter().filter(is_there).cloned().collect()
    }

    pub(crate) fn frozen_processes(&self) -> Vec<Arc<Process>> {
        let processes = self.lock_processes();
        let is_frozen =
            |process: &&Arc<Process>| !process.life.is_over() && process.life.is_frozen();
        processes.iter().filter(is_frozen).cloned().collect()
    }

    /// Stops every process.
    pub(crate) fn end_processes(&self) {
        for process in self.lock_processes().iter() {
            process.app.engine.store.stop_after(0);
            process.life.thaw();
        }
    }

    /// Removes dead processes, and ensures that one exists.
    pub(crate) async fn bury_the_dead(self: &Arc<Self>) {
        let dead: Vec<_> = {
            let mut processes = self.lock_processes();
            let is_over = |process: &mut Arc<Process>| process.life.is_over();
            processes.extract_if(.., is_over).collect()
        };
        for process in dead {
            self.note(format!("process {} is dead", process.number));
        }
        if self.processes().is_empty() {
            self.add_process().await;
        }
    }

    pub(crate) fn any_process(&self) -> Option<Arc<Process>> {
        self.chance.pick(&self.processes()).cloned()
    }

    /// Started work continues as far as it can now.
    pub(crate) async fn let_things_happen(&self) {
        if self.is_postgres() {
            for process in self.processes() {
                // Time: a launch that takes longer is a fault of the world; no rule counts on it.
                let finished = tokio::time::timeout(
                    LONGEST_ANSWER,
                    process.app.engine.launch_tracker.finish(),
                );
                finished.await.expect("a launch ends");
            }
        }
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
    }

    /// While a process waits for a cloud, others act; not while they themselves do so.
    pub(crate) async fn meanwhile(self: &Arc<Self>, who: &Arc<Life>) {
        if !self.makes_trouble() || !self.chance.percent(25) {
            return;
        }
        if self.depth.fetch_add(1, Ordering::SeqCst) == 0 {
            let others = self.processes().into_iter();
            let others: Vec<_> = others
                .filter(|process| !Arc::ptr_eq(&process.life, who))
                .collect();
            self.do_meanwhile(&others).await;
        }
        self.depth.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Requests.
impl World {
    /// Sends a request as root to any process. `None`: no answer came, whether the request had an
    /// effect or not.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&serde_json::Value>,
    ) -> Option<Answer> {
        self.ask_as(&root(), method, path, body).await
    }

    /// A request as root to this process, not sent yet.
    pub(crate) fn request(
        &self,
        process: &Process,
        method: Method,
        path: &str,
        body: &serde_json::Value,
    ) -> Ask {
        let server = Arc::clone(&process.server);
        let ask = Ask::new(server, method, path, self.now());
        ask.by(&root()).json(body)
    }

    pub(crate) async fn ask_as(
        &self,
        who: &Who,
        method: Method,
        path: &str,
        body: Option<&serde_json::Value>,
    ) -> Option<Answer> {
        let process = self.any_process()?;
        let may_refuse = process.app.engine.clock.doubt().is_some();
        let ask = Ask::new(Arc::clone(&process.server), method, path, self.now()).by(who);
        let ask = match body {
            Some(body) => ask.json(body),
            None => ask,
        };
        let is_claim = path.starts_with("queue:/claim-work/");
        let limit = if is_claim { NO_WORK } else { LONGEST_ANSWER };
        let answer = self.within(limit, Box::pin(ask.send())).await?;
        if answer.status >= 500 {
            if !process.life.is_over() && !self.state().is_full && !may_refuse {
                self.problem(format!(
                    "{path} is answered {}: {}",
                    answer.status, answer.text
                ));
            }
            return None;
        }
        Some(answer)
    }

    /// A worker that waits for work stops waiting if there is none now.
    async fn within(
        &self,
        limit: Duration,
        answer: impl Future<Output = Answer>,
    ) -> Option<Answer> {
        let limit = async {
            if self.is_postgres() {
                // Time: a call that takes longer counts as lost, which may happen anyway.
                let _ = tokio::time::timeout(limit, std::future::pending::<()>()).await;
            }
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            answer = answer => Some(answer),
            () = limit => None,
        }
    }
}

fn root() -> Who {
    Who::new("static/root", ROOT_TOKEN)
}

/// The state that the worlds of one thread share, one after the other.
struct Home {
    config: Config,
    /// The database, with its prepared statements.
    store: Store,
    _keys: TempDir,
}

thread_local! {
    static HOME: RefCell<Option<Home>> = const { RefCell::new(None) };
}

impl Home {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let keys = folder.path().join("keys");
        std::fs::write(&keys, "k1 AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n").unwrap();
        let text = format!(
            r#"
            root_url = "{ROOT_URL}"
            database = {{ url = "sqlite:in-memory", connections = 2 }}
            keys.file = "{}"

            [[auth.static_clients]]
            client_id = "static/root"
            access_token = "{ROOT_TOKEN}"
            scopes = ["*"]
            description = "May do everything"
            "#,
            keys.display(),
        );
        let store = Store::in_memory().unwrap();
        store.migrate(START_MS).await.unwrap();
        store.save_rows().unwrap();
        Self {
            config: Config::from_toml(&text, "chaos.toml".as_ref()).unwrap(),
            store,
            _keys: folder,
        }
    }

    /// An empty database, and a configuration that names it.
    async fn open(postgres: Option<&Database>) -> (Store, Config) {
        if HOME.with_borrow(Option::is_none) {
            let home = Self::new().await;
            HOME.set(Some(home));
        }
        let memory = HOME.with_borrow(|home| {
            let home = home.as_ref().expect("it was made above");
            home.store.set_full(false);
            home.store.restore_rows().unwrap();
            (home.store.another_process(), home.config.clone())
        });
        let Some(database) = postgres else {
            return memory;
        };
        let (_, mut config) = memory;
        config.database.url.clone_from(&database.url);
        let store = Store::open(&Options {
            url: database.url.clone(),
            connections: 2,
        });
        let store = store.unwrap();
        store.migrate(START_MS).await.unwrap();
        (store, config)
    }
}
