//! Measures how many tasks per second are claimed while many workers wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use access::slugid;
use anyhow::Context as _;
use api_client::{Call, QUEUE};
use domain::id::PoolId;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use store::StoreError;
use tokio::task::JoinSet;

use super::fill::{make_pool, task};
use super::host::{Host, Open};
use crate::load::Connection;
use crate::machine::{self, Stopwatch};

const WORKERS: usize = 64;
const TASKS: usize = 20_000;
const BATCH: usize = 500;

pub(crate) async fn measure(host: &Host) -> anyhow::Result<Value> {
    let now = machine::now();
    let pool = pool_id();
    // Nothing is launched in it: its workers are simulated here.
    make_pool(host, &pool, 0, now).await?;
    for batch in 0..TASKS / BATCH {
        let pool = pool.clone();
        let write = host.app.engine.store.write("bench_tasks", move |tx| {
            let mut random = StdRng::seed_from_u64(batch as u64);
            (0..BATCH).try_for_each(|_| {
                let id = slugid::nice(&mut random).parse();
                let task = task(id.expect("a slugid is a task id"), &pool, now);
                store::tasks::insert(tx, &task, task.definition.created).map(drop)
            })
        });
        let written: Result<(), StoreError> = write.await;
        written.context("cannot make the tasks")?;
    }
    let open = Arc::new(host.open().await?);
    let claimed = Arc::new(AtomicUsize::new(0));
    let watch = Stopwatch::start();
    let mut workers = JoinSet::new();
    for number in 0..WORKERS {
        let (open, claimed) = (Arc::clone(&open), Arc::clone(&claimed));
        workers.spawn(async move { claim_all(&open, number, &claimed).await });
    }
    while let Some(ended) = workers.join_next().await {
        ended.context("a worker panicked")??;
    }
    let seconds = watch.elapsed().as_secs_f64();
    if let Some(open) = Arc::into_inner(open) {
        open.close().await;
    }
    let n_claimed = claimed.load(Ordering::Relaxed);
    let count = f64::from(u32::try_from(n_claimed).unwrap_or(u32::MAX));
    Ok(json!({
        "workers": WORKERS,
        "claimed": n_claimed,
        "perSecond": count / seconds.max(f64::MIN_POSITIVE),
    }))
}

fn pool_id() -> PoolId {
    "bench-claims/all".parse().expect("this is a pool id")
}

/// Claims tasks one by one until all have been claimed.
async fn claim_all(open: &Open, number: usize, claimed: &AtomicUsize) -> anyhow::Result<()> {
    let mut connection = Connection::open(open.address).await?;
    let pool = pool_id();
    let body = json!({"tasks": 1, "workerGroup": "bench", "workerId": format!("w{number}")});
    let call = Call::post(QUEUE, &["claim-work", pool.as_str()], &body);
    while claimed.load(Ordering::Relaxed) < TASKS {
        let request = open.request(&call);
        // The remaining workers would wait for nothing: the workers that got the last tasks count
        // them.
        let wait = connection.send(request);
        let done = async {
            while claimed.load(Ordering::Relaxed) < TASKS {
                machine::pause(std::time::Duration::from_millis(20)).await;
            }
        };
        let (status, body) = tokio::select! {
            answer = wait => answer?,
            () = done => return Ok(()),
        };
        if !status.is_success() {
            let problem = String::from_utf8_lossy(&body).into_owned();
            anyhow::bail!("claiming failed: {problem}");
        }
        let reply: Value = serde_json::from_slice(&body).context("the reply is not JSON")?;
        let n_claimed = reply["tasks"].as_array().map_or(0, Vec::len);
        claimed.fetch_add(n_claimed, Ordering::Relaxed);
    }
    Ok(())
}
