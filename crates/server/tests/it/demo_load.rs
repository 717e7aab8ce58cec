//! A demo load: tasks, machines that boot, and workers that act as ours do, for hours of the clock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use domain::id::WorkerKey;
use domain::queue_worker::QueueWorker;
use domain::time::Timestamp;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use server::background::Learner;
use server::background::driver::BackgroundTask;

use crate::fleet_world::{Fleet, POOL, Running, pool};

const SECOND_MS: i64 = 1_000;
const MINUTE_MS: i64 = 60 * SECOND_MS;
const STEP_MS: i64 = 5 * SECOND_MS;
const ROUND_MS: i64 = 10 * SECOND_MS;
const SCAN_MS: i64 = 20 * SECOND_MS;
const LEARN_MS: i64 = 30 * SECOND_MS;
/// Our worker asks before each claim, and a claim waits for tasks this long.
const ASK_MS: i64 = 20 * SECOND_MS;
/// Machines boot for a time between these.
const BOOT_MS: (i64, i64) = (60 * SECOND_MS, 150 * SECOND_MS);

/// A load while it runs.
pub(crate) struct Demo<'a> {
    fleet: &'a Fleet,
    draws: StdRng,
    now_ms: i64,
    /// When tasks come, and how long they take.
    arrivals: VecDeque<(i64, i64)>,
    durations: BTreeMap<String, i64>,
    n_pending: usize,
    n_done: usize,
    machines: BTreeMap<WorkerKey, Machine>,
}

enum Machine {
    Boots {
        until_ms: i64,
    },
    /// Waits for tasks, and asks now and then whether it should stop.
    Waits {
        worker: Running,
        since_ms: i64,
        asks_ms: i64,
    },
    Works {
        worker: Running,
        claim: Value,
        until_ms: i64,
    },
}

/// Tasks at random times, some of them in bursts.
fn arrivals(draws: &mut StdRng, hours: i64) -> VecDeque<(i64, i64)> {
    let end_ms = hours * 60 * MINUTE_MS;
    let mut all = Vec::new();
    let mut at_ms = 0;
    while at_ms < end_ms {
        at_ms += draws.random_range(0..120 * SECOND_MS);
        all.push((at_ms, draws.random_range(60 * SECOND_MS..8 * MINUTE_MS)));
    }
    for burst in 0..hours * 3 / 2 {
        let at_ms = burst * 40 * MINUTE_MS + draws.random_range(0..30 * MINUTE_MS);
        for _ in 0..draws.random_range(6..16) {
            all.push((at_ms, draws.random_range(2 * MINUTE_MS..6 * MINUTE_MS)));
        }
    }
    all.sort_unstable();
    all.into()
}

/// A launch config of the first cloud with this price.
fn priced(region: &str, price: f64) -> Value {
    json!({"region": region, "price": price,
        "workerConfig": {"fleetwright": {"idleTimeoutSeconds": 60}},
        "workerManager": {"launchConfigId": region}})
}

/// A pool with two launch configs and this strategy.
pub(crate) fn demo_pool(strategy: &str, max: u32) -> Value {
    let configs = [priced("east", 0.40), priced("west", 0.44)];
    let mut definition = pool("one", 0, max, &configs);
    definition["config"]["strategy"] = json!(strategy);
    definition
}

impl<'a> Demo<'a> {
    pub(crate) fn new(fleet: &'a Fleet, seed: u64, hours: i64) -> Self {
        let mut draws = StdRng::seed_from_u64(seed);
        Self {
            fleet,
            now_ms: 0,
            arrivals: arrivals(&mut draws, hours),
            draws,
            durations: BTreeMap::new(),
            n_pending: 0,
            n_done: 0,
            machines: BTreeMap::new(),
        }
    }

    /// Runs until all tasks have ended and all machines have stopped. Returns the number of tasks.
    pub(crate) async fn run(mut self) -> usize {
        let n_tasks = self.arrivals.len();
        while self.n_done < n_tasks || !self.machines.is_empty() {
            assert!(self.now_ms < 24 * 60 * MINUTE_MS, "the load never ends");
            self.step().await;
        }
        // The last stopped machines are noticed.
        for _ in 0..2 * SCAN_MS / STEP_MS {
            self.step().await;
        }
        n_tasks
    }

    async fn step(&mut self) {
        self.now_ms += STEP_MS;
        self.fleet.pass_ms(STEP_MS);
        self.fleet
            .app
            .engine
            .availability
            .note_answer(self.fleet.now());
        self.create_tasks().await;
        // A worker that waits in a claim gets a task before it asks again.
        self.give_tasks().await;
        self.find_machines().await;
        self.run_machines().await;
        self.fleet.provision().await;
        let is_time = |interval_ms: i64| self.now_ms % interval_ms == 0;
        if is_time(ROUND_MS) {
            self.fleet.round().await;
            self.fleet.end().await;
            self.record().await;
        }
        if is_time(SCAN_MS) {
            self.fleet.scan().await;
        }
        if is_time(LEARN_MS) {
            let engine = Arc::clone(&self.fleet.app.engine);
            Learner::new(engine, SCAN_MS).activate().await.unwrap();
        }
        self.find_machines().await;
    }

    /// Reads the outcomes of runs from the stream of events.
    async fn record(&self) {
        self.fleet
            .write(|tx| store::events::assign_positions(tx, 10_000))
            .await;
        self.fleet.read_outcomes().await;
    }

    async fn create_tasks(&mut self) {
        while let Some((_, duration_ms)) = self
            .arrivals
            .front()
            .copied()
            .filter(|(at_ms, _)| *at_ms <= self.now_ms)
        {
            self.arrivals.pop_front();
            let number = self.fleet.tasks(POOL, 1).await;
            self.durations
                .insert(crate::queue_samples::task_id(number), duration_ms);
            self.n_pending += 1;
        }
    }

    async fn find_machines(&mut self) {
        for key in self.fleet.workers_in(POOL, "requested").await {
            let (least, most) = BOOT_MS;
            let boot_ms = self.draws.random_range(least..most);
            let until_ms = self.now_ms + boot_ms;
            let boots = Machine::Boots { until_ms };
            self.machines.entry(key).or_insert(boots);
        }
    }

    async fn run_machines(&mut self) {
        for (key, machine) in std::mem::take(&mut self.machines) {
            let next = match machine {
                Machine::Boots { until_ms } if until_ms <= self.now_ms => {
                    let worker = self.fleet.register(&key).await;
                    Some(self.wait(worker))
                }
                Machine::Works {
                    worker,
                    claim,
                    until_ms,
                } if until_ms <= self.now_ms => {
                    self.fleet.complete(&claim).await;
                    self.n_done += 1;
                    self.ask(worker, self.now_ms).await
                }
                Machine::Waits {
                    worker,
                    since_ms,
                    asks_ms,
                } if asks_ms <= self.now_ms => self.ask(worker, since_ms).await,
                other @ (Machine::Boots { .. } | Machine::Works { .. } | Machine::Waits { .. }) => {
                    Some(other)
                }
            };
            self.machines.extend(next.map(|machine| (key, machine)));
        }
        self.give_tasks().await;
    }

    fn wait(&self, worker: Running) -> Machine {
        Machine::Waits {
            worker,
            since_ms: self.now_ms,
            asks_ms: self.now_ms + ASK_MS,
        }
    }

    /// Asks whether it should stop. `None`: it stops.
    async fn ask(&self, worker: Running, since_ms: i64) -> Option<Machine> {
        if self.fleet.advice(&worker).await.starts_with("go") {
            self.fleet.leave(&worker).await;
            return None;
        }
        self.note_seen(&worker.key).await;
        Some(Machine::Waits {
            worker,
            since_ms,
            asks_ms: self.now_ms + ASK_MS,
        })
    }

    /// The worker waits in a claim.
    async fn note_seen(&self, key: &WorkerKey) {
        let (key, now): (WorkerKey, Timestamp) = (key.clone(), self.fleet.now());
        self.fleet
            .write(move |tx| {
                let known = store::queue_workers::get(tx, &key)?;
                let expires = now.plus_millis(24 * 60 * MINUTE_MS);
                let new = || QueueWorker::new(key.clone(), now, expires);
                let mut worker = known.unwrap_or_else(new);
                worker.last_date_active = Some(now);
                store::queue_workers::upsert(tx, &worker)?;
                store::workers::note_first_claim(tx, &key, now)
            })
            .await;
    }

    /// Gives waiting tasks to the workers that have waited longest.
    async fn give_tasks(&mut self) {
        while self.n_pending > 0 {
            let waiting = self
                .machines
                .iter()
                .filter_map(|(key, machine)| match machine {
                    Machine::Waits { since_ms, .. } => Some((*since_ms, key.clone())),
                    Machine::Boots { .. } | Machine::Works { .. } => None,
                });
            let Some((_, key)) = waiting.min() else {
                return;
            };
            let Some(Machine::Waits { worker, .. }) = self.machines.remove(&key) else {
                return;
            };
            let claim = self.fleet.claim_with(&worker).await;
            self.n_pending -= 1;
            let id = claim["status"]["taskId"].as_str().unwrap();
            let until_ms = self.now_ms + self.durations[id];
            let works = Machine::Works {
                worker,
                claim,
                until_ms,
            };
            self.machines.insert(key, works);
        }
    }
}
