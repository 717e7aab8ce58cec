//! Fills a database with pools of busy workers, and one waiting task per pool.

use anyhow::Context as _;
use domain::Version;
use domain::id::{PoolId, TaskId};
use domain::launch_config::LaunchConfig;
use domain::pool::{Pool, PoolDefinition};
use domain::task::{Priority, Requires, Task, TaskDefinition};
use domain::time::{DAY_MS, HOUR_MS, Timestamp};
use serde_json::{Map, Value, json};
use store::{StoreError, Tx};

use super::Size;
use super::cloud::PROVIDER;
use super::host::Host;
use crate::machine::{self, Stopwatch};

const LAUNCH_CONFIGS: u32 = 4;
const FILL: &str = include_str!("fill.sql");

/// Adds pools until this many exist. The database makes the rows: one after the other, a million
/// workers would take several minutes.
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
    let values = [
        ("#first", (already * each).to_string()),
        ("#end", (pools * each).to_string()),
        ("#each", each.to_string()),
        ("#provider", PROVIDER.to_owned()),
        ("#now", now.as_millis().to_string()),
        ("#iso", now.to_string()),
        ("#until", now.plus_millis(HOUR_MS).to_string()),
        ("#deadline", now.plus_millis(DAY_MS).to_string()),
        ("#expires", now.plus_millis(10 * DAY_MS).to_string()),
    ];
    let fill = |sql: String, (name, value): &(&str, String)| sql.replace(name, value);
    let sql = values.iter().fold(FILL.to_owned(), fill);
    let filled = store::year_old::run(&host.app.engine.store, sql).await;
    filled.context("cannot fill the database")?;
    Ok(json!({"seconds": watch.elapsed().as_secs_f64()}))
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
