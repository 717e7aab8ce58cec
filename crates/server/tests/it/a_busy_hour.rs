//! An hour of a pool of spot and on-demand machines in two regions, with prices that move and
//! interruptions: the accounts equal the cloud's bill and the tasks' own times.

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::id::WorkerKey;
use domain::time::Timestamp;
use serde_json::{Value, json};
use server::background::driver::BackgroundTask;
use server::background::{Costs, WaitAccounts};
use testing::Chance;

use crate::fleet_world::{
    Fleet, MINUTE_MS, POOL, Running, fleet_in_long, fleet_test, machine, pool,
};
use crate::queue_samples::task_id;

const STEP_MS: i64 = 12_000;
const SPOT_PRICE: f64 = 0.031;
const PRICE: f64 = 0.096;

struct Hour<'w> {
    fleet: &'w Fleet,
    chance: Chance,
    n_tasks: u32,
    workers: Vec<(Running, Option<Value>)>,
    interrupted: u32,
}

fn launch_config(name: &str, region: &str, price: f64) -> Value {
    let mut config = machine(name);
    config["region"] = json!(region);
    config["price"] = json!(price);
    config
}

impl Hour<'_> {
    async fn step(&mut self) {
        self.fleet.listen_ms(STEP_MS);
        if self.chance.percent(40) {
            let count = u32::try_from(self.chance.between(1, 3)).unwrap();
            self.n_tasks = self.fleet.tasks(POOL, count).await;
        }
        if self.chance.percent(20) {
            self.move_prices();
        }
        self.fleet.round().await;
        self.register().await;
        if self.chance.percent(6) {
            self.interrupt();
        }
        self.work().await;
        self.fleet.scan().await;
        self.fleet.end().await;
        if self.chance.percent(20) {
            self.charge().await;
        }
    }

    /// Spot is dearer than on-demand now and then.
    fn move_prices(&self) {
        let factor = f64::from(u32::try_from(self.chance.between(60, 400)).unwrap()) / 100.0;
        let fake = &self.fleet.one.fake;
        fake.set_price(&"spot".parse().unwrap(), SPOT_PRICE * factor);
    }

    /// Half of those that boot register in each step.
    async fn register(&mut self) {
        for key in self.fleet.workers_in(POOL, "requested").await {
            if self.chance.percent(50) && self.fleet.one.fake.is_up(&key) {
                self.workers.push((self.fleet.register(&key).await, None));
            }
        }
    }

    /// The cloud takes a machine back, and its run is lost with it.
    fn interrupt(&mut self) {
        if self.workers.is_empty() {
            return;
        }
        let at = self.chance.below(self.workers.len());
        let (worker, _) = self.workers.remove(at);
        self.fleet.kill(&worker.key);
        self.interrupted += 1;
    }

    /// Some end their task, idle ones ask for one, and those that are to stop leave.
    async fn work(&mut self) {
        for (worker, claim) in std::mem::take(&mut self.workers) {
            match claim {
                Some(claim) if self.chance.percent(15) => {
                    self.fleet.complete(&claim).await;
                    self.workers.push((worker, None));
                }
                Some(claim) => self.workers.push((worker, Some(claim))),
                None if self.fleet.advice(&worker).await.starts_with("go") => {
                    self.fleet.leave(&worker).await;
                }
                None => {
                    let claim = match self.n_pending().await {
                        // The server would wait for a task.
                        0 => None,
                        _ => Some(self.fleet.claim_with(&worker).await),
                    };
                    self.workers.push((worker, claim));
                }
            }
        }
    }

    async fn n_pending(&self) -> u64 {
        let path = format!("queue:/pending/{}", POOL.replace('/', "%2F"));
        let reply = self.fleet.get(&path).await.expect(200);
        reply["pendingTasks"].as_u64().unwrap()
    }

    async fn charge(&self) {
        self.fleet.events().await;
        self.fleet.read_outcomes().await;
        let mut waits = WaitAccounts::new(Arc::clone(&self.fleet.app));
        waits.activate().await.unwrap();
        let mut costs = Costs(Arc::clone(&self.fleet.app.engine));
        costs.activate().await.unwrap();
    }

    /// Milliseconds that runs waited, by the times in the statuses of their tasks.
    async fn waited(&self) -> (i64, usize) {
        let (mut waited, mut n_runs) = (0, 0);
        for number in 1..=self.n_tasks {
            let path = format!("queue:/task/{}/status", task_id(number));
            let status = self.fleet.get(&path).await.expect(200);
            for run in status["status"]["runs"].as_array().unwrap() {
                let time = |name: &str| -> Option<Timestamp> { run[name].as_str()?.parse().ok() };
                let end = time("started").or_else(|| time("resolved")).unwrap();
                waited += end.millis_since(time("scheduled").unwrap());
                n_runs += 1;
            }
        }
        (waited, n_runs)
    }
}

/// The accounts of so many minutes, in which at least this many machines are taken back and runs
/// end.
async fn check_accounts(fleet: &Fleet, minutes: i64, least_interrupted: u32, least_runs: usize) {
    fleet.one.fake.keep_bill();
    let configs = [
        launch_config("spot", "east", SPOT_PRICE),
        launch_config("on-demand", "west", PRICE),
    ];
    fleet.make_pool(POOL, pool("one", 0, 12, &configs)).await;
    let mut hour = Hour {
        fleet,
        chance: Chance::new(14),
        n_tasks: 0,
        workers: Vec::new(),
        interrupted: 0,
    };
    for _ in 0..minutes * MINUTE_MS / STEP_MS {
        hour.step().await;
    }
    // All that waits is cancelled, all that runs is ended, and the machines stop.
    for number in 1..=hour.n_tasks {
        let path = format!("queue:/task/{}/cancel", task_id(number));
        fleet.post(&path, json!({})).await;
    }
    let keys: Vec<WorkerKey> = fleet.machines().into_iter().map(|it| it.key).collect();
    for key in keys {
        fleet.kill(&key);
    }
    fleet.listen_ms(2 * MINUTE_MS);
    fleet.scan().await;
    fleet.round().await;
    fleet.listen_ms(MINUTE_MS);
    hour.charge().await;
    hour.charge().await;

    let bill = fleet.one.fake.bill();
    let billed: i64 = bill.iter().filter_map(|machine| machine.micros).sum();
    let costs = fleet.get("fleetwright:/cost?by=launch-config").await;
    let costs = costs.expect(200);
    assert_eq!(costs["total"]["costMicros"], billed);
    let mut by_config: BTreeMap<&str, i64> = BTreeMap::new();
    for machine in &bill {
        let config = machine.launch_config_id.as_ref().unwrap().as_str();
        *by_config.entry(config).or_default() += machine.micros.unwrap();
    }
    assert!(
        by_config.len() == 2 && hour.interrupted >= least_interrupted,
        "{by_config:?}"
    );
    for line in costs["lines"].as_array().unwrap() {
        let config = line["launchConfigId"].as_str().unwrap();
        assert_eq!(line["costMicros"], by_config[config], "{config}");
    }

    let (waited, n_runs) = hour.waited().await;
    assert!(n_runs >= least_runs, "{n_runs} runs");
    let waits = fleet.get("fleetwright:/waits?by=cause").await.expect(200);
    assert_eq!(waits["totalMs"], waited, "{waits:#}");
}

fleet_test!(
    minutes_with_moving_prices_and_interruptions_are_accounted_to_the_unit,
    |fleet| {
        check_accounts(fleet, 12, 1, 20).await;
    }
);

fleet_in_long!(
    an_hour_with_moving_prices_and_interruptions_is_accounted_to_the_unit,
    |fleet| {
        check_accounts(fleet, 60, 6, 101).await;
    }
);
