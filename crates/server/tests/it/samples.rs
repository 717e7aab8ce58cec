//! Sample requests and rows.

use domain::Version;
use domain::id::WorkerKey;
use domain::time::Timestamp;
use domain::worker::{StoredWorker, Terms, Worker, WorkerState};
use serde_json::{Value, json};

use crate::world::START_MS;

/// The proof of identity of a static worker.
pub(crate) const STATIC_SECRET: &str = "ssssssssssssssssssssssssssssssssssssssssssss";
pub(crate) const DAY_MS: i64 = 86_400_000;

pub(crate) fn pool(provider: &str, config: Value) -> Value {
    json!({
        "providerId": provider,
        "description": "for tests",
        "config": config,
        "owner": "ops@example.com",
        "emailOnError": false,
    })
}

pub(crate) fn static_pool() -> Value {
    pool("static", json!({"workerConfig": {"a": 1}}))
}

/// A pool without launch configs, workers and resources: its creation is one event.
pub(crate) fn null_pool() -> Value {
    pool("null-provider", json!({}))
}

/// A pool of the fake cloud `aws` with these launch configs.
pub(crate) fn aws_pool(launch_configs: &[Value]) -> Value {
    pool(
        "aws",
        json!({"minCapacity": 0, "maxCapacity": 10, "launchConfigs": launch_configs}),
    )
}

/// A launch config for `aws`; `image` distinguishes it from others.
pub(crate) fn launch_config(id: Option<&str>, image: &str) -> Value {
    let mut config = json!({
        "region": "us-west-2",
        "launchConfig": {"ImageId": image},
        "capacityPerInstance": 1,
    });
    if let Some(id) = id {
        config["workerManager"] = json!({ "launchConfigId": id });
    }
    config
}

pub(crate) fn static_worker() -> Value {
    json!({
        "expires": "2026-12-01T00:00:00.000Z",
        "providerInfo": {"staticSecret": STATIC_SECRET},
    })
}

pub(crate) fn key(pool: &str, group: &str, id: &str) -> WorkerKey {
    WorkerKey {
        pool_id: pool.parse().unwrap(),
        group: group.parse().unwrap(),
        id: id.parse().unwrap(),
    }
}

/// A worker as a provider would have requested it.
pub(crate) fn worker(pool: &str, group: &str, id: &str) -> Worker {
    let now = Timestamp::from_millis(START_MS);
    Worker::from_stored(StoredWorker {
        key: key(pool, group, id),
        provider_id: "google".parse().unwrap(),
        launch_config_id: None,
        state: WorkerState::Requested,
        capacity: 1,
        price: None,
        created: now,
        expires: now.plus_millis(7 * DAY_MS),
        last_modified: now,
        last_checked: now,
        terms: Terms::default(),
        provider_data: json!({}),
        secret: None,
        previous_secret: None,
        version: Version::FIRST,
    })
}
