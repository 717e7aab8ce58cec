//! Fills a database with pools of busy workers, and one waiting task per pool.

use anyhow::Context as _;
use domain::Version;
use domain::id::{PoolId, TaskId, WorkerKey};
use domain::launch_config::LaunchConfig;
use domain::pool::{Pool, PoolDefinition};
use domain::queue_worker::QueueWorker;
use domain::task::{Priority, Requires, Task, TaskDefinition};
use domain::time::{DAY_MS, HOUR_MS, Timestamp};
use domain::worker::{NewWorker, Terms, Worker};
use serde_json::{Map, Value, json};
use store::{StoreError, Tx};

use super::Size;
use super::cloud::PROVIDER;
use super::host::Host;
use crate::machine::{self, Stopwatch};

const LAUNCH_CONFIGS: u32 = 4;
const BATCH: u32 = 20_000;
const LAST_ID: &str = "lc-3";

/// Adds pools until this many exist.
pub(super) async fn fill(host: &Host, size: Size) -> anyhow::Result<Value> {
    let Size {
        pools,
        workers,
        already,
        ..
    } = size;
    let watch = Stopwatch::start();
    let now = machine::now();
    let each = workers.div_ceil(pools);
    let end = pools * each;
    for first in (already * each..end).step_by(BATCH as usize) {
        let next = first.saturating_add(BATCH).min(end);
        let write = host.app.engine.store.write("bench_fill", move |tx| {
            (first..next).try_for_each(|number| nth_worker(tx, number, each, now))
        });
        let written: Result<(), StoreError> = write.await;
        written.context("cannot fill the database")?;
    }
    Ok(json!({"seconds": watch.elapsed().as_secs_f64()}))
}

/// The workers of all pools are numbered consecutively; the first worker of each pool creates it.
fn nth_worker(tx: &mut Tx<'_>, number: u32, each: u32, now: Timestamp) -> Result<(), StoreError> {
    let pool_id = pool_id(number / each);
    // Consecutive ids are written next to each other, which makes filling fast. Those of a
    // year-old database have another letter in this place.
    let task_id = |kind: char| {
        let id = format!("{number:08}QAC{kind}AAAAAAAAAA");
        id.parse().expect("this is a task id")
    };
    if number.is_multiple_of(each) {
        insert_pool(tx, &pool_id, each + 100, now)?;
        // One task of each pool waits, so that every round has something to decide.
        store::tasks::insert(tx, &task(task_id('V'), &pool_id, now), now)?;
    }
    let key = WorkerKey {
        pool_id,
        group: "bench".parse().expect("this is a group"),
        id: format!("w{:07}", number % each)
            .parse()
            .expect("this is an id"),
    };
    store::workers::insert(tx, &worker(&key, now))?;
    let mut seen = QueueWorker::new(key.clone(), now, now.plus_millis(DAY_MS));
    seen.last_date_active = Some(now);
    store::queue_workers::upsert(tx, &seen)?;
    let waiting = task(task_id('B'), &key.pool_id, now);
    let until = now.plus_millis(HOUR_MS);
    let claimed = waiting.claim(0, &key.group, &key.id, now, until);
    let claimed = claimed.expect("a task that waits can be claimed");
    store::tasks::insert(tx, &claimed.task, claimed.task.definition.created).map(drop)
}

pub(crate) fn pool_id(number: u32) -> PoolId {
    format!("bench/pool-{number:06}")
        .parse()
        .expect("this is a pool id")
}

pub(crate) async fn make_pool(
    host: &Host,
    id: &PoolId,
    max_capacity: u32,
    now: Timestamp,
) -> anyhow::Result<()> {
    let id = id.clone();
    let write = host.app.engine.store.write("bench_pool", move |tx| {
        insert_pool(tx, &id, max_capacity, now)
    });
    let written: Result<(), StoreError> = write.await;
    written.context("cannot make a pool")?;
    Ok(())
}

fn insert_pool(
    tx: &mut Tx<'_>,
    id: &PoolId,
    max_capacity: u32,
    now: Timestamp,
) -> Result<(), StoreError> {
    let config = json!({"minCapacity": 0, "maxCapacity": max_capacity, "scalingRatio": 1.0});
    let definition = PoolDefinition {
        provider_id: PROVIDER.parse().expect("this is a provider id"),
        further_provider_ids: Vec::new(),
        description: String::new(),
        config: object(config),
        owner: "bench@example.com".to_owned(),
        email_on_error: false,
    };
    store::pools::insert(tx, &Pool::new(id.clone(), definition, now))?;
    for number in 0..LAUNCH_CONFIGS {
        store::launch_configs::insert(tx, &launch_config(id, number, now))?;
    }
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

fn worker(key: &WorkerKey, now: Timestamp) -> Worker {
    let new = NewWorker {
        key: key.clone(),
        provider_id: PROVIDER.parse().expect("this is a provider id"),
        launch_config_id: Some(LAST_ID.parse().expect("this is an id")),
        capacity: 1,
        price: Some(0.096),
        expires: now.plus_millis(10 * DAY_MS),
        terms: Terms {
            terminate_after: Some(now.plus_millis(4 * DAY_MS).as_millis()),
            registered_at: Some(now.as_millis()),
            ..Terms::default()
        },
        provider_data: json!({"region": "region-3", "zone": "a"}),
    };
    new.declare(now)
}

pub(crate) fn task(id: TaskId, pool_id: &PoolId, now: Timestamp) -> Task {
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
    value.as_object().cloned().unwrap_or_default()
}
