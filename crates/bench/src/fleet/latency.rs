//! Measures the time from `createTask` to the launch request at the cloud.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use anyhow::Context as _;
use domain::id::PoolId;
use serde_json::{Value, json};
use store::Counts;

use super::Size;
use super::fill::make_pool;
use super::host::Host;
use crate::figures::Sample;
use crate::load::{Connection, timed};
use crate::machine::{self, Stopwatch};
use crate::prepare::create_task;

const POOLS: u32 = 100;
const PER_SECOND: f64 = 50.0;
/// The longest wait after the last task for the remaining launches.
const SETTLING: Duration = Duration::from_secs(2);
/// A transaction that takes this long is named in the figures.
const SLOW_MS: f64 = 5.0;
const BEAT: Duration = Duration::from_millis(20);

pub(crate) async fn measure(host: &Host, size: Size) -> anyhow::Result<Value> {
    let n_tasks = size.tasks;
    let now = machine::now();
    let n_pools = POOLS.min(n_tasks);
    for number in 0..n_pools {
        make_pool(host, &pool_id(number), n_tasks, now).await?;
    }
    let open = host.open().await?;
    host.settle(size.settling()).await;
    host.cloud.listen();
    host.app.engine.store.take_counts();
    let mut connection = Connection::open(open.address).await?;
    let mut created: BTreeMap<PoolId, VecDeque<f64>> = BTreeMap::new();
    for number in 0..n_tasks {
        let pool = pool_id(number % n_pools);
        let due = f64::from(number) / PER_SECOND;
        let early = due - host.cloud.seconds();
        if early > 0.0 {
            machine::pause(Duration::from_secs_f64(early)).await;
        }
        let request = open.request(&create_task(pool.as_str(), &["true"]).1);
        created
            .entry(pool)
            .or_default()
            .push_back(host.cloud.seconds());
        let answered = timed(&mut connection, request).await;
        answered.context("cannot create a task")?;
    }
    let watch = Stopwatch::start();
    while host.cloud.n_asked() < n_tasks && watch.elapsed() < SETTLING {
        machine::pause(BEAT).await;
    }
    let elapsed = host.cloud.seconds();
    let counts = host.app.engine.store.take_counts();
    open.close().await;
    // No worker claims here, so the n-th machine of a pool is for its n-th task.
    let mut latencies = Vec::new();
    for (pool, asked, machines) in host.cloud.asked() {
        let waiting = created.entry(pool).or_default();
        for _ in 0..machines {
            if let Some(at) = waiting.pop_front() {
                latencies.push(Duration::from_secs_f64((asked - at).max(0.0)));
            }
        }
    }
    let n_launched = latencies.len();
    let sample = Sample::new(latencies, Duration::from_secs_f64(elapsed));
    Ok(json!({
        "tasks": n_tasks,
        "launched": n_launched,
        "medianMs": sample.percentile_ms(50),
        "p99Ms": sample.percentile_ms(99),
        "slowTransactions": slow_transactions(&counts),
    }))
}

/// Those that made a launch wait for a noticeable time: the longest time of each, in milliseconds.
fn slow_transactions(counts: &Counts) -> Value {
    let most = counts.transaction_seconds().map(|(name, seconds)| {
        let most = seconds.iter().copied().fold(0.0, f64::max);
        (name.to_owned(), most * 1_000.0)
    });
    let slow = most.filter(|(_, most_ms)| *most_ms >= SLOW_MS);
    Value::Object(slow.map(|(name, most_ms)| (name, most_ms.into())).collect())
}

fn pool_id(number: u32) -> PoolId {
    let id = format!("bench-latency/pool-{number:03}");
    id.parse().expect("this is a pool id")
}
