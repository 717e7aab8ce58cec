//! A world with one pool, and the steps that can happen in it.

use std::collections::BTreeMap;
use std::sync::Arc;

use cloud::Call;
use domain::id::WorkerKey;
use domain::launch::Cause;
use domain::time::Timestamp;
use serde_json::{Value, json};
use server::background::driver::BackgroundTask;
use server::background::{Learner, WaitAccounts};
use testing::Chance;

use super::mutants::Mutant;
use super::observer::{Look, MachineLife, Observer};
use crate::database::Database;
use crate::fleet_world::{Fleet, POOL, Running};
use crate::queue_samples::task_id;

/// Idle workers are kept, and no worker is too slow, in the hours of a run.
const LONG_S: i64 = 400_000;
const SCAN_MS: i64 = 10_000;
const LONGER_THAN_GAPS_MS: i64 = 100_000;
/// Long before a claim ends.
const RECLAIM_S: i64 = 300;
/// No task waits for so long.
const DEADLINE_S: i64 = 72_000;

/// A worker that has registered.
struct Worker {
    running: Running,
    claim: Option<Value>,
    /// When it claimed its task, or reclaimed it.
    claimed: i64,
}

pub(super) struct WaitWorld {
    pub(super) fleet: Fleet,
    pub(super) chance: Chance,
    pub(super) mutant: Option<Mutant>,
    pub(super) observer: Observer,
    pub(super) trace: Vec<String>,
    start: i64,
    max: u64,
    n_tasks: u32,
    /// Since when each pending task waits.
    pending: BTreeMap<String, i64>,
    /// Tasks that wait for another one, each with the time of its creation.
    dependent: BTreeMap<String, (String, i64)>,
    machines: BTreeMap<WorkerKey, MachineLife>,
    workers: Vec<Worker>,
    refuses: Option<(Cause, &'static str)>,
    refusal: Option<&'static str>,
    paused_until: Option<i64>,
    is_spent: bool,
    promises: Vec<Promise>,
    pub(super) n_promises: usize,
    /// The promises that were not kept, for people.
    pub(super) broken: Vec<String>,
}

/// The server said that the cause of a wait changes, or is decided anew, by then.
struct Promise {
    task: String,
    cause: String,
    by: i64,
}

impl WaitWorld {
    pub(super) async fn open(seed: u64, database: Database, mutant: Option<Mutant>) -> Self {
        let fleet = Fleet::open(database).await;
        let chance = Chance::new(seed);
        let start = fleet.now().as_millis();
        let mut world = Self {
            fleet,
            chance,
            mutant,
            observer: Observer::default(),
            trace: Vec::new(),
            start,
            max: 3,
            n_tasks: 0,
            pending: BTreeMap::new(),
            dependent: BTreeMap::new(),
            machines: BTreeMap::new(),
            workers: Vec::new(),
            refuses: None,
            refusal: None,
            paused_until: None,
            is_spent: false,
            promises: Vec::new(),
            n_promises: 0,
            broken: Vec::new(),
        };
        let definition = world.definition();
        world.fleet.make_pool(POOL, definition).await;
        world.round().await;
        world
    }

    fn definition(&self) -> Value {
        let worker = json!({"fleetwright": {"idleTimeoutSeconds": LONG_S}});
        let config = json!({"workerConfig": worker,
            "workerManager": {"launchConfigId": "a", "capacityPerInstance": 1}});
        let mut pool = crate::fleet_world::pool("one", 0, 1, &[config]);
        pool["config"]["maxCapacity"] = json!(self.max);
        pool["config"]["strategy"] = json!("aws-provisioner");
        pool["config"]["literal"] = json!(true);
        pool["config"]["scalingRatio"] = json!(0);
        pool["config"]["lifecycle"] = json!({"registrationTimeout": LONG_S,
            "queueInactivityTimeout": LONG_S, "reregistrationTimeout": LONG_S,
            "firstClaimTimeout": LONG_S});
        pool
    }

    /// Seconds since the start of the world.
    pub(super) fn now(&self) -> i64 {
        (self.fleet.now().as_millis() - self.start) / 1_000
    }

    pub(super) fn note(&mut self, text: impl Into<String>) {
        let line = format!("{:6} {}", self.now(), text.into());
        self.trace.push(line);
    }

    pub(super) async fn step(&mut self) {
        self.reclaim().await;
        match self.chance.below(100) {
            0..22 => self.create_tasks().await,
            22..28 => self.create_dependent().await,
            28..45 => self.round().await,
            45..58 => self.register().await,
            58..69 => self.claim().await,
            69..77 => self.complete().await,
            77..80 => self.lose_run().await,
            80..83 => self.cancel_one().await,
            83..88 => self.change_the_weather(),
            88..91 => self.pause_or_resume().await,
            91..93 => self.change_maximum().await,
            93..96 => self.spend_or_give_money().await,
            96..97 => self.pass(130, 400),
            97..98 => self.restart().await,
            _ => self.charge().await,
        }
        if self.chance.percent(15) {
            self.explain_one().await;
        }
        if self.chance.percent(70) {
            self.pass(1, 20);
        }
    }

    fn pass(&mut self, least: i64, most: i64) {
        let seconds = self.chance.between(least, most);
        self.fleet.pass_ms(seconds * 1_000);
    }

    /// Asks why a task waits, and remembers by when that changes.
    async fn explain_one(&mut self) {
        let ids: Vec<String> = self.pending.keys().cloned().collect();
        let Some(task) = self.chance.pick(&ids).cloned() else {
            return;
        };
        let path = format!("fleetwright:/explain/task/{task}");
        let explained = self.fleet.get(&path).await.expect(200);
        let latest: Timestamp = explained["latest"].as_str().unwrap().parse().unwrap();
        let cause = explained["cause"].as_str().unwrap().to_owned();
        let by = (latest.as_millis() - self.start) / 1_000;
        self.note(format!("{task} waits because of {cause}, until {by}"));
        self.promises.push(Promise { task, cause, by });
    }

    /// Checks the promises for this moment, after the planner has looked.
    fn check_promises(&mut self, was_asked: bool, cause: &str) {
        let now = self.now();
        let promises = std::mem::take(&mut self.promises);
        let (due, later): (Vec<Promise>, Vec<Promise>) =
            promises.into_iter().partition(|promise| promise.by <= now);
        self.promises = later;
        for Promise {
            task,
            cause: promised,
            by,
        } in due
        {
            self.n_promises += 1;
            let waits = self.pending.contains_key(&task);
            if waits && !was_asked && cause == promised {
                let broken = format!("{task} was to wait for {cause} until {by}, and still does");
                self.note(&broken);
                self.broken.push(broken);
            }
        }
    }

    async fn create_tasks(&mut self) {
        for _ in 0..self.chance.between(1, 3) {
            let id = self.create(json!({})).await;
            self.pending.insert(id, self.now());
        }
    }

    async fn create_dependent(&mut self) {
        let ids: Vec<String> = self.pending.keys().cloned().collect();
        let Some(required) = self.chance.pick(&ids).cloned() else {
            return;
        };
        let changes = json!({"dependencies": [required], "requires": "all-resolved"});
        let id = self.create(changes).await;
        self.note(format!("{id} needs {required}"));
        self.dependent.insert(id, (required, self.now()));
    }

    async fn create(&mut self, mut changes: Value) -> String {
        self.n_tasks += 1;
        let deadline = self.fleet.now().plus_millis(DEADLINE_S * 1_000);
        changes["taskQueueId"] = json!(POOL);
        changes["deadline"] = json!(deadline.to_string());
        changes["retries"] = json!(49);
        self.fleet.created(self.n_tasks, changes).await;
        let id = task_id(self.n_tasks);
        self.note(format!("{id} is created"));
        id
    }

    /// The planner looks at the pool.
    pub(super) async fn round(&mut self) {
        let engine = &self.fleet.app.engine;
        // After a gap, no worker counts as silent: idle ones would claim, if they asked for work.
        let ahead = self.fleet.now().plus_millis(LONGER_THAN_GAPS_MS);
        engine.availability.since(ahead);
        let mut learner = Learner::new(Arc::clone(engine), SCAN_MS);
        learner.activate().await.unwrap();
        let now = self.now();
        self.observer.noted(now);
        let calls = self.fleet.one.fake.n_calls(Call::Launch);
        let requested = self.fleet.workers_in(POOL, "requested").await;
        let busy = self.workers.iter().filter(|worker| worker.claim.is_some());
        let idle = (self.workers.len() - busy.count()) as u64;
        let (booting, pending) = (requested.len() as u64, self.pending.len() as u64);
        let existing = booting + self.workers.len() as u64;
        self.fleet.round().await;
        let was_asked = self.fleet.one.fake.n_calls(Call::Launch) > calls;
        let after = self.fleet.workers_in(POOL, "requested").await;
        for key in &after {
            let life = MachineLife {
                asked: now,
                made: now,
                registered: i64::MAX,
                first_claim: i64::MAX,
            };
            self.machines.entry(key.clone()).or_insert(life);
        }
        let wanted = pending.saturating_sub(booting);
        let room = self.max.saturating_sub(existing);
        let asked = if was_asked { wanted.min(room) } else { 0 };
        let look = Look {
            pending,
            idle,
            booting,
            existing,
            max: self.max,
            is_paused: self.paused_until.is_some_and(|until| now < until),
            is_spent: self.is_spent,
            asked,
            refusal: self.refusal,
        };
        let cause = self.observer.looked(now, &look);
        if was_asked {
            self.refusal = self.refuses.map(|(_, cause)| cause);
        }
        self.check_promises(was_asked, cause);
        self.note(format!("the planner looks: {cause}, {look:?}"));
    }

    async fn register(&mut self) {
        let requested = self.fleet.workers_in(POOL, "requested").await;
        let Some(key) = self.chance.pick(&requested).cloned() else {
            return;
        };
        let running = self.fleet.register(&key).await;
        let now = self.now();
        self.machines.get_mut(&key).unwrap().registered = now;
        self.note(format!("{key} registers"));
        self.workers.push(Worker {
            running,
            claim: None,
            claimed: now,
        });
    }

    async fn claim(&mut self) {
        let free: Vec<usize> = (0..self.workers.len())
            .filter(|at| self.workers[*at].claim.is_none())
            .collect();
        if let Some(at) = self.chance.pick(&free).copied() {
            self.claim_with(at).await;
        }
    }

    /// Nothing happens if no task is pending.
    async fn claim_with(&mut self, at: usize) {
        if self.pending.is_empty() {
            return;
        }
        let worker = &self.workers[at].running;
        let claim = self.fleet.claim_with(worker).await;
        let id = claim["status"]["taskId"].as_str().unwrap().to_owned();
        let key = worker.key.clone();
        self.workers[at].claim = Some(claim);
        self.workers[at].claimed = self.now();
        let since = self.pending.remove(&id).unwrap();
        let now = self.now();
        let machine = self.machines.get_mut(&key).unwrap();
        machine.first_claim = machine.first_claim.min(now);
        let machine = *machine;
        self.observer.ended(since, now, Some(machine));
        self.note(format!("{key} claims {id}, pending since {since}"));
    }

    /// Workers keep their tasks.
    async fn reclaim(&mut self) {
        let now = self.now();
        for worker in &mut self.workers {
            let is_due = now - worker.claimed >= RECLAIM_S;
            if let Some(claim) = worker.claim.as_mut().filter(|_| is_due) {
                let reply = self.fleet.report(claim, "reclaim", json!({})).await;
                *claim = reply.expect(200);
                worker.claimed = now;
            }
        }
    }

    async fn complete(&mut self) {
        let Some(at) = self.pick_busy() else {
            return;
        };
        let claim = self.workers[at].claim.take().unwrap();
        self.fleet.complete(&claim).await;
        let id = claim["status"]["taskId"].as_str().unwrap().to_owned();
        self.note(format!("{id} is completed"));
        self.release(&id);
        if self.pending.is_empty() {
            self.leave(at).await;
        } else {
            self.claim_with(at).await;
        }
    }

    /// The worker stops, and its task waits again.
    async fn lose_run(&mut self) {
        let Some(at) = self.pick_busy() else {
            return;
        };
        let claim = self.workers[at].claim.take().unwrap();
        let body = json!({"reason": "worker-shutdown"});
        self.fleet
            .report(&claim, "exception", body)
            .await
            .expect(200);
        let id = claim["status"]["taskId"].as_str().unwrap().to_owned();
        self.note(format!("{id} is lost"));
        self.pending.insert(id, self.now());
        self.leave(at).await;
    }

    fn pick_busy(&self) -> Option<usize> {
        let busy: Vec<usize> = (0..self.workers.len())
            .filter(|at| self.workers[*at].claim.is_some())
            .collect();
        self.chance.pick(&busy).copied()
    }

    async fn leave(&mut self, at: usize) {
        let worker = self.workers.remove(at);
        self.fleet.leave(&worker.running).await;
        for _ in 0..2 {
            self.fleet.scan().await;
            self.fleet.end().await;
        }
        self.note(format!(
            "{} has left: {}",
            worker.running.key,
            self.fleet.states(POOL).await
        ));
    }

    async fn cancel_one(&mut self) {
        let ids: Vec<String> = self.pending.keys().cloned().collect();
        if let Some(id) = self.chance.pick(&ids).cloned() {
            self.cancel(&id).await;
        }
    }

    async fn cancel(&mut self, id: &str) {
        self.fleet
            .post(&format!("queue:/task/{id}/cancel"), json!({}))
            .await
            .expect(200);
        let since = self.pending.remove(id).unwrap();
        self.observer.ended(since, self.now(), None);
        self.note(format!("{id} is canceled, pending since {since}"));
        self.release(id);
    }

    /// The tasks that waited for this one are pending now.
    fn release(&mut self, id: &str) {
        let now = self.now();
        let free: Vec<String> = self
            .dependent
            .iter()
            .filter(|(_, (required, _))| required == id)
            .map(|(id, _)| id.clone())
            .collect();
        for id in free {
            let (_, since) = self.dependent.remove(&id).unwrap();
            self.observer.depended(since, now);
            self.pending.insert(id, now);
        }
    }

    fn change_the_weather(&mut self) {
        self.refuses = match self.chance.below(3) {
            0 => None,
            1 => Some((Cause::Capacity, "refused")),
            _ => Some((Cause::Quota, "quota")),
        };
        match self.refuses {
            None => self.fleet.one.fake.behave(),
            Some((cause, _)) => self.fleet.one.fake.refuse_launches_of("a", cause),
        }
        self.note(format!("the cloud refuses: {:?}", self.refuses));
    }

    async fn pause_or_resume(&mut self) {
        if self.paused_until.is_some() && self.chance.percent(60) {
            self.fleet.delete("/override/freeze").await;
            self.paused_until = None;
            self.note("resumed");
            return;
        }
        // A longer pause makes no earlier answer untrue.
        self.promises.retain(|promise| promise.cause != "paused");
        let seconds = self.chance.between(20, 200);
        let until = self.fleet.now().plus_millis(seconds * 1_000).to_string();
        let pause = json!({"workerPoolId": POOL, "pause": true, "reason": "r", "until": until});
        self.fleet.put("/override/freeze", pause).await.expect(200);
        self.paused_until = Some(self.now() + seconds);
        self.note(format!("paused for {seconds} s"));
    }

    /// A budget of nothing stops launches, until it is deleted.
    async fn spend_or_give_money(&mut self) {
        self.is_spent = !self.is_spent;
        if self.is_spent {
            let budget = json!({"workerPools": POOL, "per": "day", "limit": 0.0});
            self.fleet.put("/budget/none", budget).await.expect(200);
        } else {
            self.fleet.delete("/budget/none").await.expect(200);
        }
        self.note(format!("money is spent: {}", self.is_spent));
    }

    /// No server works for a while, and another one goes on.
    async fn restart(&mut self) {
        self.note("the server stops");
        self.pass(0, 300);
        self.fleet.restart().await;
        self.note("a new server starts");
    }

    async fn change_maximum(&mut self) {
        self.max = u64::try_from(self.chance.between(1, 6)).unwrap();
        let definition = self.definition();
        self.fleet.change_pool(POOL, definition).await;
        self.note(format!("the maximum is {}", self.max));
    }

    /// Publishes the events, and charges the waits in them.
    pub(super) async fn charge(&mut self) {
        self.fleet.events().await;
        let mut accounts = WaitAccounts::new(Arc::clone(&self.fleet.app));
        accounts.activate().await.unwrap();
        if let Some(mutant) = self.mutant {
            mutant.act(&self.fleet, &self.chance);
        }
    }

    /// All that still waits is cancelled, and charged.
    pub(super) async fn end(&mut self) {
        loop {
            let ids: Vec<String> = self.pending.keys().cloned().collect();
            if ids.is_empty() {
                break;
            }
            for id in ids {
                self.cancel(&id).await;
            }
        }
        for at in 0..self.workers.len() {
            if let Some(claim) = self.workers[at].claim.take() {
                let id = claim["status"]["taskId"].as_str().unwrap().to_owned();
                self.fleet.complete(&claim).await;
                self.release(&id);
            }
        }
        let ids: Vec<String> = self.pending.keys().cloned().collect();
        for id in ids {
            self.cancel(&id).await;
        }
        // The times without a planner are known up to here.
        self.fleet.pass_ms(20_000);
        self.round().await;
        self.charge().await;
        self.charge().await;
    }

    /// Seconds by cause, as the server reports them.
    pub(super) async fn accounts(&self, query: &str) -> BTreeMap<String, i64> {
        let path = format!("fleetwright:/waits?{query}");
        let report = self.fleet.get(&path).await.expect(200);
        let rows = report["causes"].as_array().unwrap().iter();
        let millis = |row: &Value| row["ms"].as_i64().unwrap();
        rows.map(|row| (row["cause"].as_str().unwrap().to_owned(), millis(row)))
            .collect()
    }
}
