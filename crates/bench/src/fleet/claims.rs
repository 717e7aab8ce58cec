//! Measures how many tasks per second are claimed while many workers wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use access::slugid;
use anyhow::Context as _;
use api_client::{Call, QUEUE};
use domain::id::PoolId;
use http_body_util::Full;
use hyper::body::Bytes;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use store::StoreError;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Size;
use super::fill::{make_pool, task};
use super::host::{Host, Open};
use crate::figures::count;
use crate::load::Connection;
use crate::machine::{self, Stopwatch};

/// Tasks of this benchmark for each task that the benchmark of latency creates.
const TASKS_PER_TASK: u32 = 20;
const BATCH: usize = 500;
/// Open files that are not connections of workers.
const SPARE_FILES: u64 = 500;

pub(crate) async fn measure(host: &Host, size: Size) -> anyhow::Result<Value> {
    let now = machine::now();
    let pool: PoolId = format!("bench-claims/of-{}", size.waiting).parse()?;
    // Nothing is launched in it: its workers are simulated here.
    make_pool(host, &pool, 0, now).await?;
    let n_tasks = usize::try_from(size.tasks * TASKS_PER_TASK)?;
    make_tasks(host, &pool, n_tasks, u64::from(size.waiting)).await?;
    let open = Arc::new(host.open().await?);
    host.settle(size.settling()).await;
    let claims = Arc::new(Claims {
        pool,
        n_tasks,
        claimed: AtomicUsize::new(0),
        done: CancellationToken::new(),
    });
    let mut connections = Vec::new();
    for _ in 0..workers_within_limits(size.waiting)? {
        connections.push(Connection::open(open.address).await?);
    }
    let n_workers = connections.len();
    let watch = Stopwatch::start();
    let mut workers = JoinSet::new();
    for (number, connection) in connections.into_iter().enumerate() {
        let (open, claims) = (Arc::clone(&open), Arc::clone(&claims));
        workers.spawn(async move { claims.claim_all(&open, number, connection).await });
    }
    while let Some(ended) = workers.join_next().await {
        ended.context("a worker panicked")??;
    }
    let seconds = watch.elapsed().as_secs_f64();
    if let Some(open) = Arc::into_inner(open) {
        open.close().await;
    }
    let n_claimed = claims.claimed.load(Ordering::Relaxed);
    Ok(json!({
        "workers": n_workers,
        "claimed": n_claimed,
        "perSecond": count(n_claimed) / seconds.max(f64::MIN_POSITIVE),
    }))
}

/// The server and the workers are in this process, so each worker needs two open files.
fn workers_within_limits(wanted: u32) -> anyhow::Result<u64> {
    let wanted = u64::from(wanted);
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("no limit of open files")?;
    let enough = (2 * wanted + SPARE_FILES).clamp(soft, hard.max(soft));
    setrlimit(Resource::RLIMIT_NOFILE, enough, hard).context("cannot open more files")?;
    Ok(wanted.min(enough.saturating_sub(SPARE_FILES) / 2))
}

/// Tasks with other ids for each seed.
async fn make_tasks(host: &Host, pool: &PoolId, how_many: usize, seed: u64) -> anyhow::Result<()> {
    let now = machine::now();
    let mut random = StdRng::seed_from_u64(seed);
    for first in (0..how_many).step_by(BATCH) {
        let ids = (first..how_many)
            .take(BATCH)
            .map(|_| slugid::nice(&mut random).parse());
        let tasks: Vec<_> = ids
            .map(|id| task(id.expect("a slugid is a task id"), pool, now))
            .collect();
        let write = host.app.engine.store.write("bench_tasks", move |tx| {
            tasks.iter().try_fold(true, |all_new, task| {
                let is_new = store::tasks::insert(tx, task, task.definition.created)?;
                Ok(all_new && is_new)
            })
        });
        let written: Result<bool, StoreError> = write.await;
        let all_new = written.context("cannot make the tasks")?;
        anyhow::ensure!(all_new, "some of the tasks exist already");
    }
    Ok(())
}

/// The tasks of the queue, and how many of them have been claimed.
struct Claims {
    pool: PoolId,
    n_tasks: usize,
    claimed: AtomicUsize,
    /// Set with the last claim: the remaining workers would wait for nothing.
    done: CancellationToken,
}

impl Claims {
    /// Claims tasks one by one until all have been claimed.
    async fn claim_all(
        &self,
        open: &Open,
        number: usize,
        mut connection: Connection<Full<Bytes>>,
    ) -> anyhow::Result<()> {
        let body = json!({"tasks": 1, "workerGroup": "bench", "workerId": format!("w{number}")});
        let call = Call::post(QUEUE, &["claim-work", self.pool.as_str()], &body);
        loop {
            let wait = connection.send(open.request(&call));
            let (status, body) = tokio::select! {
                biased;
                () = self.done.cancelled() => return Ok(()),
                answer = wait => answer?,
            };
            if !status.is_success() {
                let problem = String::from_utf8_lossy(&body).into_owned();
                anyhow::bail!("claiming failed: {problem}");
            }
            let reply: Value = serde_json::from_slice(&body).context("the reply is not JSON")?;
            let n_claimed = reply["tasks"].as_array().map_or(0, Vec::len);
            let before = self.claimed.fetch_add(n_claimed, Ordering::Relaxed);
            if before + n_claimed >= self.n_tasks {
                self.done.cancel();
            }
        }
    }
}
