//! Hosts that people declare live until somebody removes them, and learn when their configuration
//! changes.

use serde_json::{Value, json};
use testing::sizes_around;

use crate::ask::Who;
use crate::database::on_both;
use crate::samples::{DAY_MS, STATIC_SECRET, aws_pool, pool, static_pool, static_worker};
use crate::world::World;

const POOL: &str = "/worker-pool/pp%2Fee";
const WORKER: &str = "/workers/pp%2Fee/g/w";
const YEAR_MS: i64 = 365 * DAY_MS;
/// Of housekeeping.
const BATCH: usize = 25;

impl World {
    async fn declare_host(&self) {
        self.put(POOL, static_pool()).await.expect(200);
        self.put(WORKER, static_worker()).await.expect(200);
    }

    async fn register_host(&self) -> Value {
        let proof = json!({"workerPoolId": "pp/ee", "providerId": "static", "workerGroup": "g",
            "workerId": "w", "workerIdentityProof": {"staticSecret": STATIC_SECRET}});
        let registered = self.post("/worker/register", proof).anonymously().await;
        registered.expect(200)
    }

    async fn host_expires_in_days(&self) -> i64 {
        let host = self.get(WORKER).await.expect(200);
        let expires = host["expires"].as_str().unwrap().parse().unwrap();
        self.now().millis_since(expires) / -DAY_MS
    }

    async fn host_config(&self, who: &Who) -> Value {
        let path = format!("{WORKER}/launch-config");
        self.get(&path).by(who).await.expect(200)
    }
}

on_both!(a_declared_host_lives_for_years, |world| {
    world.declare_host().await;
    for _ in 0..2 * 52 {
        world.clock.advance_ms(7 * DAY_MS);
        world.keep_house().await;
        assert!((6..=71).contains(&world.host_expires_in_days().await));
    }
    world.register_host().await;
    // The events of its life: none, as nothing happened to it.
    let removed = world.delete(WORKER).await;
    removed.expect(200);
    world.clock.advance_ms(9 * DAY_MS);
    world.keep_house().await;
    assert_eq!(world.get(WORKER).await.status, 404);
});

on_both!(a_declared_host_outlives_an_outage_of_two_years, |world| {
    world.declare_host().await;
    let registered = world.register_host().await;
    world.clock.advance_ms(2 * YEAR_MS);
    // It may be back before the first housekeeping.
    let again = world.register_host().await;
    assert_ne!(again["secret"], registered["secret"]);
    world.keep_house().await;
    assert_eq!(world.host_expires_in_days().await, 8);
    // Its meter runs on.
    let (_, counts) = world.counted(world.keep_house()).await;
    assert_eq!(
        counts.rows("worker_keep_declared"),
        0,
        "moved once in a while only"
    );
    world.register_host().await;
});

on_both!(a_host_that_its_pool_has_left_expires, |world| {
    world.declare_host().await;
    world.post(POOL, aws_pool(&[])).await.expect(200);
    world.clock.advance_ms(YEAR_MS);
    world.keep_house().await;
    assert_eq!(world.get(WORKER).await.status, 404);
    // As one of a pool that was deleted.
    world.post(POOL, static_pool()).await.expect(200);
    let mut host = static_worker();
    host["expires"] = json!(world.now().plus_millis(DAY_MS).to_string());
    world.put(WORKER, host).await.expect(200);
    world.delete(POOL).await.expect(200);
    world.keep_house().await;
    assert_eq!(world.get(WORKER).await.status, 200);
    world.clock.advance_ms(2 * DAY_MS);
    world.keep_house().await;
    assert_eq!(world.get(WORKER).await.status, 404);
    // And one of a pool that has the provider beside another stays.
    let mut both = aws_pool(&[]);
    both["config"]["providers"] = json!(["aws", "static"]);
    world.keep_house().await;
    world.put(POOL, both).await.expect(200);
    let mut host = static_worker();
    host["expires"] = json!(world.now().plus_millis(DAY_MS).to_string());
    world.put(WORKER, host).await.expect(200);
    world.clock.advance_ms(YEAR_MS);
    world.keep_house().await;
    assert_eq!(world.get(WORKER).await.status, 200);
});

on_both!(many_declared_hosts_are_kept_in_batches, |world| {
    world.put(POOL, static_pool()).await.expect(200);
    let mut known = 0;
    for size in sizes_around("server::background::housekeeping::BATCH", BATCH) {
        for number in known..size {
            let path = format!("/workers/pp%2Fee/g/w{number}");
            let expires = world.now().plus_millis(DAY_MS).to_string();
            let mut host = static_worker();
            host["expires"] = json!(expires);
            world.put(&path, host).await.expect(200);
        }
        known = known.max(size);
        world.clock.advance_ms(YEAR_MS);
        let done = world.keep_house().await;
        // A count of none is left out.
        let kept = done["workers_kept"].as_u64().unwrap_or(0);
        assert_eq!(kept, known as u64);
        assert_eq!(done["workers"], Value::Null);
    }
    let listed = world.get("/workers/pp%2Fee?limit=1").await.expect(200);
    assert_eq!(listed["workers"].as_array().unwrap().len(), 1);
});

on_both!(a_host_learns_that_its_configuration_changed, |world| {
    world.declare_host().await;
    let who = Who::registered(&world.register_host().await);
    let first = world.host_config(&who).await;
    assert_eq!(first["state"], "active");
    let id = first["launchConfigId"].as_str().unwrap();
    assert!(id.starts_with("lc-") && id.len() == 23, "{id}");
    // Other members of the pool are not its configuration.
    let mut renamed = static_pool();
    renamed["description"] = json!("another description");
    world.post(POOL, renamed).await.expect(200);
    assert_eq!(world.host_config(&who).await, first);
    let other = pool("static", json!({"workerConfig": {"a": 2}}));
    world.post(POOL, other).await.expect(200);
    let changed = world.host_config(&who).await;
    assert_eq!(
        (&changed["state"], &changed["launchConfigId"]),
        (&json!("archived"), &json!(id))
    );
    let reason = changed["reason"].as_str().unwrap();
    assert!(
        reason.contains("it gets the new one when it registers again"),
        "{reason}"
    );
    // As it was before: its host has the right one.
    world.post(POOL, static_pool()).await.expect(200);
    assert_eq!(world.host_config(&who).await, first);
    let other = pool("static", json!({"workerConfig": {"a": 2}}));
    world.post(POOL, other).await.expect(200);
    let registered = world.register_host().await;
    assert_eq!(registered["workerConfig"], json!({"a": 2}));
    let again = world.host_config(&Who::registered(&registered)).await;
    assert_eq!(again["state"], "active");
    assert_ne!(again["launchConfigId"], id);
});
