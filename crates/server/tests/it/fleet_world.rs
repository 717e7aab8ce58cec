//! A world with three fake clouds, in which a test runs the steps of the fleet's loop one by one,
//! and acts as the workers.
//!
//! Nothing runs by itself: a test that needs a decision on all pools calls `round`.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::Arc;

use cloud::{FakeMachine, Provider};
use domain::id::{PoolId, ProviderId, WorkerKey};
use domain::launch::Launch;
use domain::pool::Pool;
use domain::worker::{StoredWorker, Worker};
use http::Method;
use serde_json::{Value, json};
use server::app::App;
use server::background::driver::BackgroundTask;
use server::background::{MachineTermination, Provision, ProvisionRounds, Scan};
use server::config::Config;
use store::listed_workers::{ListedWorker, WorkerFilter};
use store::plans::PlanRecord;

use crate::ask::{Ask, Who};
use crate::database::Database;
use crate::fleet_clouds::TestCloud;
use crate::queue_samples::task_id;
use crate::samples;
use crate::world::World;

const CLOUDS: [&str; 3] = ["one", "two", "three"];

/// The pool of tests that need no other.
pub(crate) const POOL: &str = "pp/ee";
pub(crate) const MINUTE_MS: i64 = 60_000;
/// A worker that was idle for this long may be asked to stop.
pub(crate) const IDLE_MS: i64 = MINUTE_MS;
/// A worker that has not registered by then is ended.
pub(crate) const REGISTRATION_MS: i64 = 15 * MINUTE_MS;
/// A worker that has not claimed for this long is ended.
pub(crate) const INACTIVITY_MS: i64 = 30 * MINUTE_MS;
/// A worker that has not registered again by then is ended.
pub(crate) const REREGISTRATION_MS: i64 = 240 * MINUTE_MS;
/// Maximum number of machines of the second cloud.
pub(crate) const MAX_MACHINES: u64 = 3;
/// The lists of these tests are shorter.
const ALL: u32 = 10_000;

/// Runs one test body on each database, in a world with clouds.
macro_rules! fleet_test {
    ($name:ident, |$fleet:ident| $body:block) => {
        crate::fleet_world::test_of_fleet!(both $name, |$fleet| $body);
    };
}
pub(crate) use fleet_test;

/// As `on_sqlite_first`, in a world with clouds.
macro_rules! fleet_on_sqlite_first {
    ($name:ident, |$fleet:ident| $body:block) => {
        crate::fleet_world::test_of_fleet!(sqlite_first $name, |$fleet| $body);
    };
}
pub(crate) use fleet_on_sqlite_first;

/// As `on_both_in_long`, in a world with clouds.
macro_rules! fleet_in_long {
    ($name:ident, |$fleet:ident| $body:block) => {
        crate::fleet_world::test_of_fleet!(long $name, |$fleet| $body);
    };
}
pub(crate) use fleet_in_long;

macro_rules! test_of_fleet {
    ($lanes:ident $name:ident, |$fleet:ident| $body:block) => {
        async fn $name($fleet: &crate::fleet_world::Fleet) $body

        mod $name {
            async fn run(database: crate::database::Database) {
                super::$name(&crate::fleet_world::Fleet::open(database).await).await;
            }

            crate::database::on_databases!($lanes, tokio::test);
        }
    };
}
pub(crate) use test_of_fleet;

pub(crate) struct Fleet {
    world: World,
    pub(crate) one: Arc<TestCloud>,
    /// With at most `MAX_MACHINES`.
    pub(crate) two: Arc<TestCloud>,
    pub(crate) three: Arc<TestCloud>,
    endings: tokio::sync::Mutex<Vec<MachineTermination>>,
    n_tasks: Cell<u32>,
}

/// The program on a machine, once it has credentials.
pub(crate) struct Running {
    pub(crate) key: WorkerKey,
    pub(crate) who: Who,
}

impl Deref for Fleet {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

/// A launch config whose machines may stop after a minute without work; `name` distinguishes it
/// from others.
pub(crate) fn machine(name: &str) -> Value {
    json!({"workerConfig": {"name": name, "fleetwright": {"idleTimeoutSeconds": IDLE_MS / 1_000}},
        "workerManager": {"launchConfigId": name}})
}

/// A pool of this cloud with limits, and these ways to start a machine.
pub(crate) fn pool(provider: &str, min: u32, max: u32, machines: &[Value]) -> Value {
    let lifecycle = json!({"registrationTimeout": REGISTRATION_MS / 1_000,
        "queueInactivityTimeout": INACTIVITY_MS / 1_000,
        "reregistrationTimeout": REREGISTRATION_MS / 1_000});
    let config = json!({"minCapacity": min, "maxCapacity": max, "launchConfigs": machines,
        "lifecycle": lifecycle});
    samples::pool(provider, config)
}

/// The pool of most tests: of the first cloud, with this maximum.
pub(crate) fn plain_pool(max: u32) -> Value {
    pool("one", 0, max, &[machine("a")])
}

fn in_path(pool: &str) -> String {
    pool.replace('/', "%2F")
}

impl Fleet {
    pub(crate) async fn open(database: Database) -> Self {
        Self::open_with(database, |_| {}).await
    }

    /// With changes of the configuration.
    pub(crate) async fn open_with(database: Database, configure: impl FnOnce(&mut Config)) -> Self {
        let mut clouds = Vec::new();
        let made = &mut clouds;
        let world = World::open_with(database, configure, |config, clock| {
            for id in CLOUDS {
                let max_machines = (id == "two").then_some(MAX_MACHINES);
                made.push(TestCloud::new(id, max_machines, config, clock));
            }
            let ids = CLOUDS.map(|id| id.parse().unwrap());
            let providers = made
                .iter()
                .map(|cloud| Arc::clone(cloud) as Arc<dyn Provider>);
            ids.into_iter().zip(providers).collect()
        })
        .await;
        let [one, two, three] = clouds.try_into().ok().unwrap();
        Self {
            endings: tokio::sync::Mutex::new(MachineTermination::each(&world.app.engine)),
            world,
            one,
            two,
            three,
            n_tasks: Cell::new(0),
        }
    }

    /// A new server takes over the database and the clouds.
    pub(crate) async fn restart(&mut self) {
        let clouds = self.providers();
        self.world.restart(clouds).await;
        self.endings = tokio::sync::Mutex::new(MachineTermination::each(&self.app.engine));
    }

    /// As `further` providers for another process on the same database.
    pub(crate) fn providers(&self) -> Vec<(ProviderId, Arc<dyn Provider>)> {
        let providers = self.clouds().map(|(id, cloud)| {
            let provider: Arc<dyn Provider> = Arc::clone(cloud) as _;
            (id.parse().unwrap(), provider)
        });
        providers.into()
    }

    fn clouds(&self) -> [(&'static str, &Arc<TestCloud>); 3] {
        let [one, two, three] = CLOUDS;
        [(one, &self.one), (two, &self.two), (three, &self.three)]
    }

    pub(crate) fn pass_ms(&self, millis: i64) {
        self.clock.advance_ms(millis);
        for (_, cloud) in self.clouds() {
            cloud.fake.clock_moved();
        }
    }
}

/// A longer time in which the fleet is not looked at is a gap.
const LOOK_EVERY_MS: i64 = 50_000;

impl Fleet {
    /// Time passes in which every worker could be heard.
    pub(crate) fn listen_ms(&self, millis: i64) {
        let mut left = millis;
        while left > 0 {
            let step = left.min(LOOK_EVERY_MS);
            self.pass_ms(step);
            self.app.engine.availability.note_answer(self.now());
            left -= step;
        }
    }
}

/// The steps of the loop.
impl Fleet {
    /// Decides on the woken pools, and waits for the answers of the clouds.
    pub(crate) async fn provision(&self) -> Value {
        let done = Provision::new(Arc::clone(&self.app.engine))
            .activate()
            .await
            .unwrap();
        self.app.engine.launch_tracker.finish().await;
        done
    }

    /// Decides on all pools, and waits for the answers of the clouds.
    pub(crate) async fn round(&self) -> Value {
        let done = round(&self.app).await;
        self.app.engine.launch_tracker.finish().await;
        done
    }

    /// Scans all machines.
    pub(crate) async fn scan(&self) -> Value {
        all(&mut Scan::each(&self.app.engine)).await
    }

    /// Ends the machines of stopping workers.
    pub(crate) async fn end(&self) -> Value {
        all(&mut self.endings.lock().await).await
    }
}

/// One after the other; what they did, together.
async fn all(tasks: &mut [impl BackgroundTask]) -> Value {
    let mut sums = serde_json::Map::new();
    for task in tasks {
        let done = task.activate().await.unwrap();
        for (what, count) in done.as_object().into_iter().flatten() {
            let before = sums.get(what).and_then(Value::as_u64).unwrap_or(0);
            sums.insert(what.clone(), json!(before + count.as_u64().unwrap()));
        }
    }
    if sums.is_empty() {
        return Value::Null;
    }
    Value::Object(sums)
}

/// Decides on all pools without waiting for the answers of the clouds.
pub(crate) async fn round(app: &Arc<App>) -> Value {
    ProvisionRounds(Arc::clone(&app.engine))
        .activate()
        .await
        .unwrap()
}

/// Actions of people.
impl Fleet {
    pub(crate) async fn make_pool(&self, pool: &str, definition: Value) {
        let path = format!("/worker-pool/{}", in_path(pool));
        self.put(&path, definition).await.expect(200);
    }

    pub(crate) async fn change_pool(&self, pool: &str, definition: Value) {
        let path = format!("/worker-pool/{}", in_path(pool));
        self.post(&path, definition).await.expect(200);
    }

    pub(crate) async fn delete_pool(&self, pool: &str) {
        let path = format!("/worker-pool/{}", in_path(pool));
        self.delete(&path).await.expect(200);
    }

    /// Creates this many tasks that wait half a day at most; returns the number of the last.
    pub(crate) async fn tasks(&self, pool: &str, count: u32) -> u32 {
        let deadline = self.now().plus_millis(720 * MINUTE_MS).to_string();
        for _ in 0..count {
            self.n_tasks.set(self.n_tasks.get() + 1);
            let changes = json!({"taskQueueId": pool, "deadline": deadline});
            self.created(self.n_tasks.get(), changes).await;
        }
        self.n_tasks.get()
    }

    /// A time in the past releases the worker.
    pub(crate) async fn quarantine(&self, key: &WorkerKey, for_ms: i64) {
        let (provisioner, worker_type) = key.pool_id.parts();
        let path = format!(
            "queue:/provisioners/{provisioner}/worker-types/{worker_type}/workers/{}/{}",
            key.group, key.id
        );
        let until = self.now().plus_millis(for_ms).to_string();
        self.put(&path, json!({"quarantineUntil": until}))
            .await
            .expect(200);
    }

    pub(crate) async fn remove(&self, key: &WorkerKey) {
        self.delete(&worker_path(key)).await.expect(200);
    }
}

/// Actions of the programs on the machines.
impl Fleet {
    pub(crate) fn registration(&self, key: &WorkerKey) -> Ask {
        let is_there = |cloud: &TestCloud| cloud.fake.is_up(key);
        let found = self.clouds().into_iter().find(|(_, cloud)| is_there(cloud));
        let (provider, cloud) = found.expect("its machine is up");
        let token = cloud.fake.identity_token(key);
        let claim = json!({"workerPoolId": key.pool_id.as_str(), "providerId": provider,
            "workerGroup": key.group.as_str(), "workerId": key.id.as_str(),
            "workerIdentityProof": {"token": token.expose()}});
        self.post("/worker/register", claim).anonymously()
    }

    /// A worker that has registered with this reply proves itself once more.
    pub(crate) fn registration_again(&self, key: &WorkerKey, reply: &Value) -> Ask {
        let again = json!({"workerPoolId": key.pool_id.as_str(), "workerGroup": key.group.as_str(),
            "workerId": key.id.as_str(), "secret": reply["secret"]});
        let ask = self.post("/worker/reregister", again);
        ask.by(&Who::registered(reply))
    }

    pub(crate) async fn register(&self, key: &WorkerKey) -> Running {
        let reply = self.registration(key).await.expect(200);
        Running {
            key: key.clone(),
            who: Who::registered(&reply),
        }
    }

    /// All that are requested register, in the order of their names.
    pub(crate) async fn register_all(&self, pool: &str) -> Vec<Running> {
        let mut running = Vec::new();
        for key in self.workers_in(pool, "requested").await {
            running.push(self.register(&key).await);
        }
        running
    }

    /// With this many pending tasks, workers register and each claims one: the workers, with their
    /// claims.
    pub(crate) async fn busy(&self, pool: &str, count: u32) -> Vec<(Running, Value)> {
        self.tasks(pool, count).await;
        self.round().await;
        let mut busy = Vec::new();
        for worker in self.register_all(pool).await {
            let claim = self.claim_with(&worker).await;
            busy.push((worker, claim));
        }
        assert_eq!(busy.len(), count as usize);
        busy
    }

    /// This many workers that have each just finished a task.
    pub(crate) async fn idle(&self, pool: &str, count: u32) -> Vec<Running> {
        let mut idle = Vec::new();
        for (worker, claim) in self.busy(pool, count).await {
            self.complete(&claim).await;
            idle.push(worker);
        }
        idle
    }

    pub(crate) fn asking(&self, worker: &Running) -> Ask {
        let key = &worker.key;
        let path = format!("queue:/claim-work/{}", in_path(key.pool_id.as_str()));
        let body =
            json!({"workerGroup": key.group.as_str(), "workerId": key.id.as_str(), "tasks": 1});
        self.post(&path, body).by(&worker.who)
    }

    /// Claims a pending task.
    pub(crate) async fn claim_with(&self, worker: &Running) -> Value {
        let mut reply = self.asking(worker).await.expect(200);
        let claims = reply["tasks"].as_array_mut().unwrap();
        assert_eq!(claims.len(), 1, "{} gets no task", worker.key);
        claims.remove(0)
    }

    pub(crate) async fn complete(&self, claim: &Value) {
        self.report(claim, "completed", json!({})).await.expect(200);
    }

    /// The advice that the worker gets.
    pub(crate) async fn advice(&self, worker: &Running) -> String {
        let path = format!("{}/should-terminate", worker_path(&worker.key));
        let reply = self.get(&path).by(&worker.who).await.expect(200);
        let word = if reply["terminate"] == json!(true) {
            "go"
        } else {
            "stay"
        };
        format!("{word}: {}", reply["reason"].as_str().unwrap())
    }

    /// It announces that it stops, and stops.
    pub(crate) async fn leave(&self, worker: &Running) {
        let path = worker_path(&worker.key);
        self.ask(Method::DELETE, &path)
            .by(&worker.who)
            .await
            .expect(200);
        self.kill(&worker.key);
    }

    /// Its machine dies.
    pub(crate) fn kill(&self, key: &WorkerKey) {
        for (_, cloud) in self.clouds() {
            cloud.fake.kill(key);
        }
    }
}

/// The stored state.
impl Fleet {
    /// Changes a row directly in the store.
    pub(crate) async fn edit(
        &self,
        key: &WorkerKey,
        change: impl Fn(&mut StoredWorker) + Send + 'static,
    ) {
        let key = key.clone();
        self.write(move |tx| {
            let mut worker = store::workers::get(tx, &key)?.unwrap().into_stored();
            change(&mut worker);
            store::workers::update(tx, &Worker::from_stored(worker))
        })
        .await;
    }

    pub(crate) fn machines(&self) -> Vec<FakeMachine> {
        let clouds = self.clouds().into_iter();
        clouds
            .flat_map(|(_, cloud)| cloud.fake.machines())
            .collect()
    }

    pub(crate) async fn workers(&self, pool: &str) -> Vec<Worker> {
        let pool: PoolId = pool.parse().unwrap();
        self.read(move |tx| {
            let any = WorkerFilter::default();
            let listed = store::listed_workers::list(tx, &pool, &any, None, ALL)?;
            let mut all = Vec::new();
            for ListedWorker { group, id, .. } in listed {
                let pool_id = pool.clone();
                all.extend(store::workers::get(tx, &WorkerKey { pool_id, group, id })?);
            }
            all.sort_by(|one, other| one.key.cmp(&other.key));
            Ok(all)
        })
        .await
    }

    pub(crate) async fn workers_in(&self, pool: &str, state: &str) -> Vec<WorkerKey> {
        let workers = self.workers(pool).await.into_iter();
        let found = workers.filter(|worker| worker.state.as_str() == state);
        found.map(|worker| worker.into_stored().key).collect()
    }

    /// `1 requested, 2 running`
    pub(crate) async fn states(&self, pool: &str) -> String {
        let workers = self.workers(pool).await;
        let states = ["requested", "running", "stopping", "stopped"];
        let counted = states.iter().filter_map(|state| {
            let is_so = |worker: &&Worker| worker.state.as_str() == *state;
            let count = workers.iter().filter(is_so).count();
            (count > 0).then(|| format!("{count} {state}"))
        });
        counted.collect::<Vec<_>>().join(", ")
    }

    /// Why this worker was ended.
    pub(crate) async fn end_reason(&self, key: &WorkerKey) -> String {
        let worker = self.worker(key).await.unwrap();
        worker.into_stored().terms.end_reason.unwrap_or_default()
    }

    /// Oldest first.
    pub(crate) async fn launches(&self, pool: &str) -> Vec<Launch> {
        let pool: PoolId = pool.parse().unwrap();
        self.read(move |tx| {
            let mut all = store::launches::list(tx, &pool, ALL)?;
            all.sort_by_key(|launch| (launch.created, launch.plan));
            Ok(all)
        })
        .await
    }

    /// Newest first.
    pub(crate) async fn plans(&self, pool: &str) -> Vec<PlanRecord> {
        let pool: PoolId = pool.parse().unwrap();
        self.read(move |tx| store::plans::list(tx, &pool, ALL))
            .await
    }

    pub(crate) async fn stored_pool(&self, pool: &str) -> Option<Pool> {
        let pool: PoolId = pool.parse().unwrap();
        self.read(move |tx| store::pools::get(tx, &pool)).await
    }

    /// Of each report about the pool, newest first, its kind and the code of its cause.
    pub(crate) async fn errors(&self, pool: &str) -> Vec<(String, String)> {
        let path = format!("/worker-pool-errors/{}", in_path(pool));
        let reply = self.get(&path).await.expect(200);
        let reports = reply["workerPoolErrors"].as_array().unwrap().iter();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        reports
            .map(|report| (text(&report["kind"]), text(&report["extra"]["code"])))
            .collect()
    }

    /// The workers of the task's runs, and the states of the runs.
    pub(crate) async fn runs(&self, number: u32) -> Vec<String> {
        let path = format!("queue:/task/{}/status", task_id(number));
        let reply = self.get(&path).await.expect(200);
        let runs = reply["status"]["runs"].as_array().unwrap().iter();
        runs.map(|run| run["state"].as_str().unwrap().to_owned())
            .collect()
    }

    pub(crate) async fn explain_pool(&self, pool: &str) -> Value {
        let path = format!("fleetwright:/explain/pool/{}", in_path(pool));
        self.get(&path).await.expect(200)
    }

    pub(crate) async fn explain_worker(&self, key: &WorkerKey) -> Value {
        let path = format!(
            "fleetwright:/explain/worker/{}/{}/{}",
            in_path(key.pool_id.as_str()),
            key.group,
            key.id
        );
        self.get(&path).await.expect(200)
    }
}

pub(crate) fn worker_path(key: &WorkerKey) -> String {
    let pool = in_path(key.pool_id.as_str());
    format!("/workers/{pool}/{}/{}", key.group, key.id)
}
