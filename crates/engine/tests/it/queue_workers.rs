//! Workers as the queue knows them, and what they report.

use domain::audit::EntityType;
use domain::id::WorkerKey;
use domain::time::DAY_MS;
use engine::cache_purges::{self, CachePurgeError, MAX_CACHES};
use engine::queue::{declare_worker, quarantine_worker};
use engine::workers::{WorkerError, WorkerReport, report_error};
use serde_json::Map;

use crate::world::World;

fn key() -> WorkerKey {
    WorkerKey {
        pool_id: "pp/wt".parse().unwrap(),
        group: "dc1".parse().unwrap(),
        id: "host-7".parse().unwrap(),
    }
}

#[tokio::test]
async fn only_a_worker_that_the_queue_knows_is_quarantined() {
    let world = World::new().await;
    let until = world.now().plus_millis(DAY_MS);
    let quarantine = || {
        let audit = world.audit(EntityType::Worker, &key().to_string(), "quarantined");
        quarantine_worker(&world.engine, key(), until, Some("smoke".to_owned()), audit)
    };
    assert_eq!(quarantine().await.unwrap(), None);
    let declare = |expires| declare_worker(&world.engine, world.now(), key(), expires);
    declare(until).await.unwrap();
    let again = declare(world.now()).await.unwrap();
    assert_eq!(again.expires, until, "a later end is kept");
    let worker = quarantine().await.unwrap().unwrap();
    assert!(worker.is_quarantined(world.now()));
    let name = key().to_string();
    let actions = world.actions(EntityType::Worker, &name);
    assert_eq!(actions.await, ["quarantined"]);
}

#[tokio::test]
async fn a_report_needs_a_pool() {
    let world = World::new().await;
    let report = WorkerReport {
        key: key(),
        kind: "worker-error".to_owned(),
        title: "Disk full".to_owned(),
        description: "no room".to_owned(),
        extra: Map::new(),
    };
    let refused = report_error(&world.engine, world.now(), report).await;
    let refused = refused.unwrap_err();
    assert!(matches!(refused, WorkerError::NotThere(_)), "{refused}");
    assert_eq!(world.n_events().await, 0);
}

#[tokio::test]
async fn a_pool_has_only_as_many_purge_requests_as_workers_can_read() {
    let world = World::new().await;
    let request = |number: u32| {
        let name = format!("cache-{number}");
        cache_purges::request(&world.engine, world.now(), key().pool_id, name)
    };
    for number in 0..MAX_CACHES {
        request(number).await.unwrap();
    }
    let refused = request(MAX_CACHES).await.unwrap_err();
    assert!(matches!(refused, CachePurgeError::TooMany(_)), "{refused}");
    request(0).await.unwrap();
    world.advance_ms(DAY_MS + 1);
    request(MAX_CACHES).await.unwrap();
}
