//! Disks that have outlived their machines.

use serde_json::{Value, json};

use super::fake::{OnFake, simple};
use crate::{Machines as _, Region};

impl OnFake {
    async fn disks(&self) -> Vec<String> {
        let disks = self.google.read("disks").await;
        serde_json::from_value(disks).unwrap()
    }

    async fn clean(&self) -> Vec<String> {
        let region = Region::Group("us-central1".parse().unwrap());
        let removed = self.provider.remove_leftovers(&region).await.unwrap();
        self.settle_all().await;
        removed
            .into_iter()
            .map(|it| format!("{} {}", it.kind, it.name))
            .collect()
    }

    /// Time passes until machines are made and ended.
    async fn settle_all(&self) {
        for _ in 0..3 {
            self.google.act("settle", &json!({})).await;
        }
    }
}

/// With a disk that outlives its machine.
fn with_disk(labels: Value) -> Value {
    let mut configuration = simple();
    let disk = json!({"type": "PERSISTENT", "autoDelete": false,
        "initializeParams": {"diskSizeGb": "10", "labels": labels}});
    configuration["disks"].as_array_mut().unwrap().push(disk);
    configuration
}

#[tokio::test]
async fn a_disk_that_no_machine_uses_is_removed_after_an_hour() {
    let world = OnFake::start().await;
    let made = json!({"time": "2026-09-21T07:13:20.000-07:00"});
    world.google.act("disk-time", &made).await;
    let mut workers = Vec::new();
    for (token, labels, provider) in [
        (
            "BBBBBBBBQQCBBBBBBBBBBQ",
            json!({"fleetwright-keep": "false"}),
            &world.provider,
        ),
        ("CCCCCCCCQQCCCCCCCCCCCQ", json!({}), &world.provider),
        (
            "DDDDDDDDQQCDDDDDDDDDDQ",
            json!({"fleetwright-keep": "false"}),
            &world.stranger,
        ),
    ] {
        let launched = world.launch_by(provider, token, 1, with_disk(labels));
        workers.push((launched.await.unwrap().remove(0), provider));
    }
    world.settle_all().await;
    assert_eq!(world.disks().await.len(), 6);
    world.clock.advance_ms(2 * 3_600_000);
    assert!(world.clean().await.is_empty(), "their machines exist");
    for (worker, provider) in &workers {
        provider.end(worker).await.unwrap();
    }
    world.settle_all().await;
    let left = world.disks().await;
    assert_eq!(
        left.len(),
        3,
        "boot disks end with their machines: {left:?}"
    );
    let removed = world.clean().await;
    let [removed] = removed.try_into().unwrap();
    assert!(removed.starts_with("disk test-pool-bbbb"), "{removed}");
    assert_eq!(world.disks().await.len(), 2);
    assert!(world.clean().await.is_empty());
}

#[tokio::test]
async fn a_disk_that_was_detached_lately_stays_and_one_that_is_in_use_hides_no_other() {
    let world = OnFake::start().await;
    world
        .google
        .act("disk-time", &json!({"time": "2026-09-21T14:13:20.000Z"}))
        .await;
    let worker = world.launch_by(
        &world.provider,
        "BBBBBBBBQQCBBBBBBBBBBQ",
        1,
        with_disk(json!({"fleetwright-keep": "false"})),
    );
    let worker = worker.await.unwrap().remove(0);
    world.settle_all().await;
    world.clock.advance_ms(2 * 3_600_000);
    world
        .google
        .act("disk-time", &json!({"time": "2026-09-21T16:00:00.000Z"}))
        .await;
    world.provider.end(&worker).await.unwrap();
    world.settle_all().await;
    assert!(world.clean().await.is_empty(), "detached 13 minutes ago");
    world.clock.advance_ms(3_600_000);
    let fault = json!({"status": 503, "reason": "backendError"});
    world.google.fail("disks.delete", fault).await;
    let region = Region::Group("us-central1".parse().unwrap());
    world.provider.remove_leftovers(&region).await.unwrap_err();
    assert_eq!(world.clean().await.len(), 1);
}
