//! Published events, and metrics.

use std::sync::Arc;

use serde_json::{Value, json};
use server::background::driver::BackgroundTask;
use server::background::{EventPublisher, Measure};

use crate::database::{on_both, on_sqlite_first};
use crate::samples::{
    STATIC_SECRET, aws_pool, launch_config, null_pool, static_pool, static_worker, worker,
};
use crate::world::World;

async fn publish(world: &World) {
    let told = EventPublisher(Arc::clone(&world.app))
        .activate()
        .await
        .unwrap();
    assert_eq!(told, Value::Null);
}

/// The events that were written to the log.
fn told(world: &World) -> Vec<String> {
    let lines = world.log.lines("server::background::publish: ");
    let names = lines.iter().map(|line| {
        let rest = line.split("publish: ").nth(1).unwrap();
        rest.split(' ').next().unwrap().to_owned()
    });
    names.collect()
}

on_both!(events_are_published_once_and_in_order, |world| {
    let configs = [launch_config(Some("a"), "1"), launch_config(Some("b"), "2")];
    world
        .put("/worker-pool/pp%2Fee", aws_pool(&configs))
        .await
        .expect(200);
    publish(world).await;
    let first = [
        "worker-pool-created",
        "launch-config-created",
        "launch-config-created",
    ];
    assert_eq!(told(world), first);
    publish(world).await;
    assert_eq!(told(world).len(), 3);
    world.delete("/worker-pool/pp%2Fee").await.expect(200);
    publish(world).await;
    let then = [
        "worker-pool-updated",
        "launch-config-archived",
        "launch-config-archived",
    ];
    assert_eq!(told(world)[3..], then);
    assert_eq!(world.told().await, "");
});

on_both!(many_events_are_published_in_batches, |world| {
    for number in 0..210 {
        let path = format!("/worker-pool/pp%2Fp{number}");
        world.put(&path, null_pool()).await.expect(200);
    }
    publish(world).await;
    assert_eq!(told(world).len(), 210);
});

on_sqlite_first!(events_contain_no_secrets, |world| {
    world
        .put("/worker-pool/pp%2Fee", static_pool())
        .await
        .expect(200);
    world
        .put("/workers/pp%2Fee/g/w", static_worker())
        .await
        .expect(200);
    let claim = json!({"workerPoolId": "pp/ee", "providerId": "static", "workerGroup": "g",
        "workerId": "w", "workerIdentityProof": {"staticSecret": STATIC_SECRET}});
    let registered = world.post("/worker/register", claim).await.expect(200);
    let client = world.client("ci", &[]).await;
    publish(world).await;
    let log = world.log.text();
    assert!(log.contains("client-created"));
    let secret = registered["secret"].as_str().unwrap();
    for secret in [STATIC_SECRET, secret, client.token.expose()] {
        assert!(!log.contains(secret));
    }
});

on_both!(refused_changes_tell_nothing, |world| {
    world
        .put("/worker-pool/pp%2Fee", static_pool())
        .await
        .expect(200);
    world.events().await;
    let mut other = static_pool();
    other["description"] = json!("different");
    world
        .put("/worker-pool/pp%2Fee", other.clone())
        .await
        .expect(409);
    world
        .post("/worker-pool/pp%2Fnosuch", other)
        .await
        .expect(404);
    world.delete("/workers/pp%2Fee/g/w").await.expect(404);
    world
        .put("auth:/clients/static%2Froot", json!({}))
        .await
        .expect(400);
    world.delete("auth:/roles/nosuch").await.expect(204);
    assert_eq!(world.told().await, "");
    let history = world
        .get("auth:/audit/worker-pool/pp%2Fee")
        .await
        .expect(200);
    assert_eq!(history["auditHistory"].as_array().unwrap().len(), 1);
});

on_both!(pools_workers_and_waiting_events_are_measured, |world| {
    world
        .put("/worker-pool/measured%2Fpool", static_pool())
        .await
        .expect(200);
    for id in ["a", "b"] {
        world.insert(worker("measured/pool", "g", id)).await;
    }
    // Its provider is not the pool's.
    Measure(Arc::clone(&world.app)).activate().await.unwrap();
    let metrics = world.get("root:/metrics").locally().await.text;
    let capacity = "worker_manager_requested_capacity{workerPoolId=\"measured/pool\",\
                    providerId=\"google\"} 2";
    assert!(metrics.contains(capacity), "{metrics}");
    assert!(metrics.contains(&capacity.replace("google", "static").replace("} 2", "} 0")));
    assert!(metrics.contains("fleetwright_outbox_events "));
});

on_sqlite_first!(requests_are_counted_by_endpoint_and_status, |world| {
    world.get("/worker-pool/counted%2Fpool").await.expect(404);
    let metrics = world.get("root:/metrics").locally().await.text;
    let count = "http_requests_total{service=\"worker-manager\",name=\"workerPool\",method=\"GET\",\
                 status=\"404\"}";
    assert!(metrics.contains(count), "{metrics}");
    // Labels have no values that clients choose, because their number would be unbounded.
    assert!(!metrics.contains("counted/pool"));
});
