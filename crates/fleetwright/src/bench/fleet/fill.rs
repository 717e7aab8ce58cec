//! Fills a database: pools with workers of which each is busy, and one task more than there are workers.

use access::slugid;
use anyhow::Context as _;
use domain::Version;
use domain::id::{PoolId, TaskId, WorkerKey};
use domain::launch_config::LaunchConfig;
use domain::pool::{Pool, PoolDefinition};
use domain::task::{Priority, Requires, Task, TaskDefinition};
use domain::time::{DAY_MS, HOUR_MS, Timestamp};
use domain::worker::{Terms, Worker, WorkerState};
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::{Map, Value, json};
use store::{StoreError, Tx};

use super::cloud::PROVIDER;
use super::host::Host;
use crate::failure::Failure;
use crate::machine::{self, Stopwatch};

/// How many ways to start a worker a pool has.
const LAUNCH_CONFIGS: u32 = 4;
/// Workers in one transaction.
const BATCH: u32 = 500;
const LAST_ID: &str = "lc-3";

pub(super) async fn fill(host: &Host, pools: u32, workers: u32) -> Result<Value, Failure> {
    let watch = Stopwatch::start();
    let now = machine::now();
    let each = workers.div_ceil(pools);
    for number in 0..pools {
        let id = pool_id(number);
        make_pool(host, &id, each + 100, now).await?;
        let mut first = 0;
        while first < each {
            let next = (first + BATCH).min(each);
            let (pool, seed) = (id.clone(), u64::from(number) << 32 | u64::from(first));
            let write = host.app.store.write("bench_fill", move |tx| {
                let mut random = StdRng::seed_from_u64(seed);
                (first..next)
                    .try_for_each(|worker| busy_worker(tx, &pool, worker, now, &mut random))
            });
            let written: Result<(), StoreError> = write.await;
            written.context("cannot fill the database")?;
            first = next;
        }
    }
    Ok(json!({"seconds": watch.elapsed().as_secs_f64()}))
}

pub(super) fn pool_id(number: u32) -> PoolId {
    format!("bench/pool-{number:06}")
        .parse()
        .expect("this is a pool id")
}

pub(super) async fn make_pool(
    host: &Host,
    id: &PoolId,
    max_capacity: u32,
    now: Timestamp,
) -> Result<(), Failure> {
    let config = json!({"minCapacity": 0, "maxCapacity": max_capacity, "scalingRatio": 1.0});
    let definition = PoolDefinition {
        provider_id: PROVIDER.parse().context("this is a provider id")?,
        description: String::new(),
        config: object(config),
        owner: "bench@example.com".to_owned(),
        email_on_error: false,
    };
    let pool = Pool::new(id.clone(), definition, now);
    let write = host.app.store.write("bench_pool", move |tx| {
        store::pool_insert(tx, &pool)?;
        for number in 0..LAUNCH_CONFIGS {
            store::launch_config_insert(tx, &launch_config(&pool.id, number, now))?;
        }
        Ok(())
    });
    let written: Result<(), StoreError> = write.await;
    written.context("cannot make a pool")?;
    Ok(())
}

fn launch_config(pool_id: &PoolId, number: u32, now: Timestamp) -> LaunchConfig {
    let configuration = json!({
        "region": format!("region-{number}"),
        "workerConfig": {"genericWorker": {"config": {"idleTimeoutSecs": 600}}},
        "workerManager": {"capacityPerInstance": 1, "initialWeight": 1.0},
    });
    LaunchConfig {
        pool_id: pool_id.clone(),
        id: format!("lc-{number}").parse().expect("this is an id"),
        archived: false,
        position: number,
        configuration: object(configuration),
        created: now,
        last_modified: now,
        version: Version::FIRST,
    }
}

fn busy_worker(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    number: u32,
    now: Timestamp,
    random: &mut StdRng,
) -> Result<(), StoreError> {
    let key = WorkerKey {
        pool_id: pool_id.clone(),
        group: "bench".parse().expect("this is a group"),
        id: format!("w{number:07}").parse().expect("this is an id"),
    };
    store::worker_insert(tx, &worker(&key, now))?;
    let waiting = task(pool_id, now, random);
    store::task_insert(tx, &waiting)?;
    if number == 0 {
        // One task of each pool waits, so that every round has something to think about.
        let further = task(pool_id, now, random);
        store::task_insert(tx, &further)?;
    }
    let until = now.plus_millis(HOUR_MS);
    let claimed = waiting.clone().claim(0, &key.group, &key.id, now, until);
    if let Ok(moved) = claimed {
        store::task_update(tx, &waiting, &moved.task)?;
    }
    Ok(())
}

fn worker(key: &WorkerKey, now: Timestamp) -> Worker {
    Worker {
        key: key.clone(),
        provider_id: PROVIDER.parse().expect("this is a provider id"),
        launch_config_id: Some(LAST_ID.parse().expect("this is an id")),
        state: WorkerState::Running,
        capacity: 1,
        created: now,
        expires: now.plus_millis(10 * DAY_MS),
        last_modified: now,
        last_checked: now,
        terms: Terms {
            terminate_after: Some(now.plus_millis(4 * DAY_MS).as_millis()),
            registered_at: Some(now.as_millis()),
            ..Terms::default()
        },
        provider_data: json!({"region": "region-3", "zone": "a"}),
        secret: None,
        previous_secret: None,
        version: Version::FIRST,
    }
}

/// A task that waits.
pub(super) fn task(pool_id: &PoolId, now: Timestamp, random: &mut StdRng) -> Task {
    let id: TaskId = slugid::nice(random).parse().expect("a slugid is a task id");
    let definition = TaskDefinition {
        task_queue_id: pool_id.clone(),
        scheduler_id: "-".parse().expect("this is a scheduler id"),
        project_id: "none".parse().expect("this is a project id"),
        task_group_id: id.as_str().parse().expect("a task id is a group id"),
        dependencies: Vec::new(),
        requires: Requires::AllCompleted,
        routes: Vec::new(),
        priority: Priority::Lowest,
        retries: 5,
        created: now,
        deadline: now.plus_millis(DAY_MS),
        expires: now.plus_millis(10 * DAY_MS),
        scopes: Vec::new(),
        payload: json!({"command": ["true"], "maxRunTime": 60}),
        metadata: json!({"name": "bench", "description": "", "owner": "bench@example.com",
            "source": "https://example.com"}),
        tags: std::collections::BTreeMap::new(),
        extra: json!({}),
    };
    let task = Task::new(id, definition);
    match task.clone().schedule(now) {
        Ok(moved) => moved.task,
        Err(_) => task,
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    }
}
