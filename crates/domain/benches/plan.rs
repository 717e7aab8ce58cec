//! Benchmark: plans a pool with 100 launch configs and 10,000 workers, from its facts.
//!
//! The bare baseline sorts 10,000 idle times: the least that letting workers go, longest idle
//! first, can take.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints its results"
)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::demand::Demand;
use domain::facts::{
    ClaimSource, Facts, LaunchRecord, MarketFacts, Rooms, RunningWorker, Starting, learns,
};
use domain::id::{LaunchConfigId, PoolId, WorkerKey};
use domain::launch_config::LaunchConfig;
use domain::market::{OfferingId, OfferingMemory, OfferingNews, PoolMemory, Trouble};
use domain::plan::{Bid, Bids, Health, Input, Snapshot, StrategyDefaults, Tries};
use domain::pool::{Pool, PoolDefinition};
use domain::supply::{Group, Horizon};
use domain::time::{MINUTE_MS, SECOND_MS, Timestamp};
use domain::version::Version;
use domain::worker::WorkerState;
use serde_json::{Map, Value, json};

/// The allocator of the product.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const N_CONFIGS: u64 = 100;
const N_WORKERS: u64 = 10_000;
const N_PENDING: u64 = 2_000;
const ROUNDS: usize = 200;
/// 2026-09-21T14:13:20Z
const NOW_MS: i64 = 1_790_000_000_000;

fn main() {
    println!("{N_CONFIGS} launch configs, {N_WORKERS} workers; medians of {ROUNDS}");
    for strategy in ["weighted", "aws-provisioner", "balanced"] {
        for (name, pending) in [("workers go", 0), ("machines come", N_WORKERS + N_PENDING)] {
            measure(&format!("{strategy}, {name}"), strategy, pending);
        }
    }
}

/// Times snapshot and plan, and in each round the baseline beside them.
fn measure(name: &str, strategy: &str, pending: u64) {
    let facts = facts(strategy, pending);
    let running = running();
    let bids = bids();
    let mut taken = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        let workers = running.clone();
        let snapshot = timed(&mut taken[0], || snapshot(&facts, &bids, workers));
        let plan = timed(&mut taken[1], || Input::plan(&snapshot, 7));
        assert!(!plan.is_idle(), "{}", plan.text());
        black_box(plan);
        let mut idle: Vec<i64> = (0..N_WORKERS).map(idle_seconds).collect();
        timed(&mut taken[2], || idle.sort_unstable());
        black_box(idle);
    }
    let [snapshot, plan, baseline] = taken.map(median);
    let all = snapshot + plan;
    let ratio = all.as_secs_f64() / baseline.as_secs_f64();
    println!(
        "{name}: {all:?} (snapshot {snapshot:?}, plan {plan:?}), \
         {ratio:.1} times sorting idle times ({baseline:?})"
    );
}

fn timed<T>(taken: &mut Vec<Duration>, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let value = work();
    taken.push(start.elapsed());
    value
}

fn median(mut taken: Vec<Duration>) -> Duration {
    taken.sort_unstable();
    taken[taken.len() / 2]
}

fn snapshot(facts: &Facts, bids: &[Bids], running: Vec<RunningWorker>) -> Snapshot {
    let cloud = ["cloud".parse().unwrap()];
    let workers = facts.candidates(running, &ClaimSource::Store, &cloud);
    facts.snapshot(bids, &Rooms::new(), workers).unwrap()
}

fn now() -> Timestamp {
    Timestamp::from_millis(NOW_MS)
}

fn pool_id() -> PoolId {
    "proj/linux".parse().unwrap()
}

fn config_id(index: u64) -> LaunchConfigId {
    format!("lc-{index:03}").parse().unwrap()
}

fn facts(strategy: &str, pending: u64) -> Facts {
    let config = json!({
        "minCapacity": 0, "maxCapacity": 100_000, "scalingRatio": 1.0,
        "strategy": strategy, "lifecycle": {},
    });
    let Value::Object(config) = config else {
        unreachable!()
    };
    let definition = PoolDefinition {
        provider_id: "cloud".parse().unwrap(),
        further_provider_ids: Vec::new(),
        description: String::new(),
        config,
        owner: "owner@example.com".to_owned(),
        email_on_error: false,
    };
    let demand = Demand {
        pending,
        claimed: N_WORKERS / 3,
    };
    let listening_since = now().plus_millis(-60 * MINUTE_MS);
    let horizon = Horizon::new(now(), Some(listening_since));
    let mut facts = Facts::new(
        Pool::new(pool_id(), definition, now()),
        demand,
        horizon,
        StrategyDefaults::default(),
    );
    facts.launch_configs = (0..N_CONFIGS).map(launch_config).collect();
    facts.inventory.workers = (0..N_CONFIGS).map(group).collect();
    facts.records = records();
    if learns(&facts.pool, facts.defaults) {
        facts.memory = Some(memory());
    }
    facts
}

/// The memory of a pool whose demand has fallen step by step, of offerings that were refused a
/// while ago, and machines that are starting.
fn memory() -> MarketFacts {
    let mut pool = PoolMemory::default();
    let ago = |seconds: i64| now().plus_millis(-seconds * SECOND_MS);
    for step in 0..300 {
        pool.add_task(600_000);
        pool.reach_level(u64::try_from(5_000 - 10 * step).unwrap(), ago(400 - step));
    }
    pool.learn(180_000.0, now());
    let offering = |place: i64| {
        let id = OfferingId::new(&"cloud".parse().unwrap(), &format!("zone-{place}"));
        let mut memory = OfferingMemory::new(&id);
        let trouble = Trouble::Capacity;
        memory.observe(OfferingNews::Failed { trouble }, ago(900 + place));
        memory.observe(OfferingNews::Registered { after_ms: 90_000 }, ago(300));
        (id, memory)
    };
    let starting = |index: u64| Starting {
        launch_config_id: config_id(index),
        provider_id: "cloud".parse().unwrap(),
        since: ago(60),
        machines: 3,
        capacity_each: 1,
        offering: None,
    };
    MarketFacts {
        pool: pool.news(),
        offerings: (0..6).map(offering).collect(),
        starting: (0..N_CONFIGS).map(starting).collect(),
        rivals: Vec::new(),
        ordinary_runs: None,
    }
}

fn launch_config(index: u64) -> Arc<LaunchConfig> {
    Arc::new(LaunchConfig {
        pool_id: pool_id(),
        id: config_id(index),
        archived: false,
        position: u32::try_from(index).unwrap(),
        configuration: Map::new(),
        created: now(),
        last_modified: now(),
        version: Version(1),
    })
}

fn group(index: u64) -> Group {
    Group {
        pool_id: pool_id(),
        launch_config_id: Some(config_id(index)),
        state: WorkerState::Running,
        draining: false,
        count: N_WORKERS / N_CONFIGS,
        capacity: N_WORKERS / N_CONFIGS,
    }
}

fn records() -> BTreeMap<LaunchConfigId, LaunchRecord> {
    let record = |index: u64| LaunchRecord {
        health: Health {
            attempted: 10,
            created: 9,
            registered: 9,
            failed: index % 3,
            ..Health::default()
        },
        tries: Tries::default(),
        claimed: 9,
    };
    (0..N_CONFIGS)
        .map(|index| (config_id(index), record(index)))
        .collect()
}

fn bids() -> Vec<Bids> {
    let bid = |index: u64| Bid {
        price: Some(0.01 + index as f64 / 1_000.0),
        ..Bid::plain(format!("zone-{}", index % 6))
    };
    (0..N_CONFIGS).map(|index| Ok(vec![bid(index)])).collect()
}

fn idle_seconds(index: u64) -> i64 {
    i64::try_from(index * 7_919 % N_WORKERS).unwrap()
}

/// A third of them has a task.
fn running() -> Vec<RunningWorker> {
    let worker = |index: u64| {
        let ended = now().plus_millis(-idle_seconds(index) * SECOND_MS);
        RunningWorker {
            key: WorkerKey {
                pool_id: pool_id(),
                group: "zone-1".parse().unwrap(),
                id: format!("i-{index:017x}").parse().unwrap(),
            },
            provider_id: "cloud".parse().unwrap(),
            launch_config_id: Some(config_id(index % N_CONFIGS)),
            offering: None,
            capacity: 1,
            created: ended.plus_millis(-MINUTE_MS),
            registered: Some(ended),
            idle_hold_ms: Some(0),
            advice: None,
            price: None,
            last_asked: Some(now()),
            last_task_ended: Some(ended),
            quarantined_since: None,
            claimed: u64::from(index.is_multiple_of(3)),
        }
    };
    (0..N_WORKERS).map(worker).collect()
}
