//! The requests and the background work that are measured, one after the other.

use std::sync::Arc;

use anyhow::Context as _;
use api_client::{Call, QUEUE, WORKER_MANAGER};
use async_trait::async_trait;
use engine::fleet::Scanner;
use serde_json::{Value, json};
use server::background::ProvisionRounds;
use server::background::driver::{ActivationResult, BackgroundTask};

use super::super::host::{Host, Open};
use super::super::round::LONGEST_SCAN;
use super::Parts;
use super::report::{Report, Step};
use crate::load::Connection;
use crate::machine::{self, Stopwatch};
use crate::prepare::create_task;

const N_POOLS: usize = 400;
const SECRET: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQR";
const ROUNDS: usize = 3;

/// Sends requests, and notes what they cost.
struct Client<'a> {
    host: &'a Host,
    open: &'a Open,
    connection: Connection<http_body_util::Full<hyper::body::Bytes>>,
    report: &'a mut Report,
    n_pools: usize,
    parts: Parts,
}

impl Client<'_> {
    /// Returns the replies.
    async fn repeat(
        &mut self,
        name: &'static str,
        times: usize,
        call: impl Fn(usize) -> Call,
    ) -> anyhow::Result<Vec<Value>> {
        let times = match self.parts {
            Parts::Requests | Parts::All => times,
            Parts::Once => times.min(1),
        };
        let store = &self.host.app.engine.store;
        let (mut seconds, mut replies) = (Vec::new(), Vec::new());
        store.take_counts();
        for number in 0..times {
            let request = self.open.request(&call(number));
            let watch = Stopwatch::start();
            let (status, body) = self.connection.send(request).await?;
            seconds.push(watch.elapsed().as_secs_f64());
            let text = String::from_utf8_lossy(&body);
            anyhow::ensure!(status.is_success(), "{name} was answered {status}: {text}");
            replies.push(serde_json::from_slice(&body).unwrap_or_default());
        }
        let counts = store.take_counts();
        self.report.add(Step {
            name,
            seconds,
            counts,
        });
        Ok(replies)
    }

    /// The pools with many workers and those with few come in turn.
    fn pool(&self, number: usize) -> String {
        let pool = if number.is_multiple_of(3) { 0 } else { number };
        format!("year/pool-{}", pool % self.n_pools)
    }
}

pub(super) async fn requests(
    host: &Host,
    divisor: u32,
    parts: Parts,
    report: &mut Report,
) -> anyhow::Result<()> {
    let open = host.serve().await?;
    let mut client = Client {
        host,
        open: &open,
        connection: Connection::open(open.address).await?,
        report,
        n_pools: (N_POOLS / divisor as usize).max(1),
        parts,
    };
    read_pools(&mut client).await?;
    write_pools(&mut client).await?;
    run_tasks(&mut client).await?;
    read_queues(&mut client).await?;
    open.close().await;
    Ok(())
}

async fn read_pools(client: &mut Client<'_>) -> anyhow::Result<()> {
    let pools: Vec<String> = (0..200).map(|number| client.pool(number)).collect();
    let manager = |segments: &[&str]| Call::get(WORKER_MANAGER, segments);
    let of_pool = |before: &'static [&'static str], after: &'static [&'static str]| {
        let pools = &pools;
        move |number: usize| {
            let pool = pools[number].as_str();
            let segments: Vec<&str> = [before, &[pool], after].concat();
            manager(&segments)
        }
    };
    client
        .repeat("workerPool", 200, of_pool(&["worker-pool"], &[]))
        .await?;
    let page = |call: Call, limit: u32| call.query("limit", Some(limit));
    let list = |_| page(manager(&["worker-pools"]), 100);
    client.repeat("listWorkerPools (100)", 20, list).await?;
    let configs = of_pool(&["worker-pool"], &["launch-configs"]);
    client
        .repeat("listWorkerPoolLaunchConfigs", 100, configs)
        .await?;
    let stats = of_pool(&["worker-pool"], &["stats"]);
    client.repeat("workerPoolStats", 100, stats).await?;
    let errors = of_pool(&["worker-pool-errors"], &[]);
    let errors = |number| page(errors(number), 100);
    client
        .repeat("listWorkerPoolErrors (100)", 50, errors)
        .await?;
    let workers = of_pool(&["workers"], &[]);
    let listed = |number| page(workers(number), 100);
    let replies = client
        .repeat("listWorkersForWorkerPool (100)", 100, listed)
        .await?;
    let running = |number| workers(number).query("state", Some("running"));
    client
        .repeat("listWorkersForWorkerPool (running)", 20, running)
        .await?;
    let found: Vec<Value> = replies
        .iter()
        .filter_map(|reply| reply["workers"].get(0).cloned())
        .collect();
    let text = |worker: &Value, key: &str| worker[key].as_str().unwrap_or_default().to_owned();
    let one = |number: usize| {
        let worker = &found[number % found.len()];
        let [pool, group, id] =
            ["workerPoolId", "workerGroup", "workerId"].map(|key| text(worker, key));
        manager(&["workers", &pool, &group, &id])
    };
    client.repeat("worker", 100, one).await?;
    let advice = |number: usize| {
        let worker = &found[number % found.len()];
        let [pool, group, id] =
            ["workerPoolId", "workerGroup", "workerId"].map(|key| text(worker, key));
        manager(&["workers", &pool, &group, &id, "should-terminate"])
    };
    client.repeat("shouldWorkerTerminate", 100, advice).await?;
    Ok(())
}

async fn write_pools(client: &mut Client<'_>) -> anyhow::Result<()> {
    let body = |provider: &str, config: Value| {
        json!({"providerId": provider, "description": "", "owner": "bench@example.com",
            "emailOnError": false, "config": config})
    };
    let machines = |most: usize| {
        let config = |zone: &str| json!({"region": zone, "workerConfig": {}, "workerManager": {"capacityPerInstance": 1}});
        json!({"minCapacity": 0, "maxCapacity": most,
            "launchConfigs": [config("region-1"), config("region-2")]})
    };
    let pool = |number: usize| format!("year/new-{number}");
    let create = |number: usize| {
        let body = body("cloud", machines(10));
        Call::put(WORKER_MANAGER, &["worker-pool", &pool(number)], &body)
    };
    client.repeat("createWorkerPool", 100, create).await?;
    let update = |number: usize| {
        let body = body("cloud", machines(11));
        Call::post(WORKER_MANAGER, &["worker-pool", &pool(number)], &body)
    };
    client.repeat("updateWorkerPool", 100, update).await?;
    let fixed = body("static", json!({}));
    let own = |_| Call::put(WORKER_MANAGER, &["worker-pool", "year/static"], &fixed);
    client.repeat("createWorkerPool (static)", 1, own).await?;
    let expires = machine::now().plus_seconds(24 * 60 * 60).to_string();
    let worker = |number: usize| format!("w{number}");
    let created = json!({"expires": expires, "providerInfo": {"staticSecret": SECRET}});
    let create = |number: usize| {
        let segments = ["workers", "year/static", "bench", &worker(number)];
        Call::put(WORKER_MANAGER, &segments, &created)
    };
    client.repeat("createWorker", 200, create).await?;
    let register = |number: usize| {
        let body = json!({"workerPoolId": "year/static", "providerId": "static",
            "workerGroup": "bench", "workerId": worker(number),
            "workerIdentityProof": {"staticSecret": SECRET}});
        Call::post(WORKER_MANAGER, &["worker", "register"], &body)
    };
    client.repeat("registerWorker", 200, register).await?;
    let update = json!({"expires": expires, "capacity": 2});
    let update = |number: usize| {
        let segments = ["workers", "year/static", "bench", &worker(number)];
        Call::post(WORKER_MANAGER, &segments, &update)
    };
    client.repeat("updateWorker", 100, update).await?;
    let remove = |number: usize| {
        let segments = ["workers", "year/static", "bench", &worker(number)];
        Call::to(
            hyper::Method::DELETE,
            Call::get(WORKER_MANAGER, &segments).resource,
        )
    };
    client.repeat("removeWorker", 100, remove).await?;
    Ok(())
}

async fn run_tasks(client: &mut Client<'_>) -> anyhow::Result<()> {
    let pools: Vec<String> = (0..300).map(|number| client.pool(number)).collect();
    let new: Vec<(String, Call)> = pools
        .iter()
        .map(|pool| create_task(pool, &["true"]))
        .collect();
    client
        .repeat("createTask", 300, |number| new[number].1.clone())
        .await?;
    let status = |number: usize| Call::get(QUEUE, &["task", &new[number].0, "status"]);
    client.repeat("status", 300, status).await?;
    let claim = |number: usize| {
        let body = json!({"tasks": 1, "workerGroup": "bench", "workerId": format!("c{number}")});
        Call::post(QUEUE, &["claim-work", &pools[number]], &body)
    };
    let claims = client.repeat("claimWork", 300, claim).await?;
    let claimed: Vec<(String, String)> = claims
        .iter()
        .filter_map(|reply| reply["tasks"].get(0))
        .map(|task| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            (text(&task["status"]["taskId"]), task["runId"].to_string())
        })
        .collect();
    anyhow::ensure!(!claimed.is_empty(), "no task was claimed");
    let report = |what: &'static str| {
        let claimed = &claimed;
        move |number: usize| {
            let (task, run) = &claimed[number];
            Call::post(QUEUE, &["task", task, "runs", run, what], &json!({}))
        }
    };
    let n_claimed = claimed.len();
    client
        .repeat("reclaimTask", n_claimed, report("reclaim"))
        .await?;
    client
        .repeat("reportCompleted", n_claimed, report("completed"))
        .await?;
    let cancel = |number: usize| Call::post(QUEUE, &["task", &new[number].0, "cancel"], &json!({}));
    client.repeat("cancelTask", 100, cancel).await?;
    Ok(())
}

async fn read_queues(client: &mut Client<'_>) -> anyhow::Result<()> {
    let pools: Vec<String> = (0..100).map(|number| client.pool(number)).collect();
    let limited = |call: Call| call.query("limit", Some(100));
    let pending = |number: usize| Call::get(QUEUE, &["pending", &pools[number]]);
    client.repeat("pendingTasks", 100, pending).await?;
    let counts = |number: usize| Call::get(QUEUE, &["task-queues", &pools[number], "counts"]);
    client.repeat("taskQueueCounts", 100, counts).await?;
    let waiting = |number: usize| {
        limited(Call::get(
            QUEUE,
            &["task-queues", &pools[number], "pending"],
        ))
    };
    client.repeat("listPendingTasks (100)", 50, waiting).await?;
    let running = |number: usize| {
        limited(Call::get(
            QUEUE,
            &["task-queues", &pools[number], "claimed"],
        ))
    };
    client.repeat("listClaimedTasks (100)", 50, running).await?;
    let queues = |_| limited(Call::get(QUEUE, &["task-queues"]));
    client.repeat("listTaskQueues (100)", 20, queues).await?;
    let workers = |number: usize| {
        let (provisioner, kind) = pools[number].split_once('/').unwrap_or_default();
        limited(Call::get(
            QUEUE,
            &["provisioners", provisioner, "worker-types", kind, "workers"],
        ))
    };
    client.repeat("listWorkers (100)", 50, workers).await?;
    Ok(())
}

/// Rounds over all pools, and scans of all machines.
pub(super) async fn background(host: &Host, report: &mut Report) -> anyhow::Result<()> {
    let engine = &host.app.engine;
    let mut rounds = ProvisionRounds(Arc::clone(engine));
    activate(host, report, "first round", 1, &mut rounds).await?;
    activate(host, report, "round", ROUNDS, &mut rounds).await?;
    let last = engine.providers.listed().last();
    let (provider_id, _) = last.context("no provider is configured")?;
    let mut scans = CompleteScans(Scanner::new(Arc::clone(engine), provider_id.clone()));
    activate(host, report, "first scan", 1, &mut scans).await?;
    activate(host, report, "scan", ROUNDS, &mut scans).await?;
    Ok(())
}

/// Scans that leave nothing to the next one.
struct CompleteScans(Scanner);

#[async_trait]
impl BackgroundTask for CompleteScans {
    fn name(&self) -> String {
        "scan".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        self.0.scan_for(LONGEST_SCAN).await?;
        Ok(Value::Null)
    }
}

async fn activate(
    host: &Host,
    report: &mut Report,
    name: &'static str,
    times: usize,
    task: &mut impl BackgroundTask,
) -> anyhow::Result<()> {
    crate::output::note(&format!("measuring: {name}"));
    let store = &host.app.engine.store;
    store.take_counts();
    let mut seconds = Vec::new();
    for _ in 0..times {
        let watch = Stopwatch::start();
        task.activate().await.map_err(anyhow::Error::msg)?;
        seconds.push(watch.elapsed().as_secs_f64());
    }
    let counts = store.take_counts();
    report.add(Step {
        name,
        seconds,
        counts,
    });
    Ok(())
}
