//! Pools whose workers would store artifacts in an object service are refused.

use serde_json::{Value, json};

use crate::configurations::{BUILD, build, rule, with_rule, zones};
use crate::database::{Database, on_sqlite_first};
use crate::samples::{aws_pool, launch_config, pool, static_pool};
use crate::world::World;

const POOL: &str = "/worker-pool/pp%2Fee";
const SETTING: &str = "workerConfig/genericWorker/config/createObjectArtifacts must not be true";

fn generic_worker(setting: bool) -> Value {
    json!({"genericWorker": {"config": {"createObjectArtifacts": setting}}})
}

fn with_object_artifacts(mut launch_config: Value) -> Value {
    launch_config["workerConfig"] = generic_worker(true);
    launch_config
}

on_sqlite_first!(
    a_pool_whose_workers_need_an_object_service_is_refused,
    |world| {
        let plain = launch_config(None, "ami-1");
        let configs = [
            plain.clone(),
            with_object_artifacts(launch_config(None, "ami-2")),
        ];
        let refused = world.put(POOL, aws_pool(&configs)).await;
        let text =
            format!("/launchConfigs/1/{SETTING}: the queue of this server has no object service");
        refused.refused_with(400, "InputValidationError", &text);
        assert_eq!(world.get(POOL).await.status, 404);
        // Declared workers get the pool's own.
        let hosts = pool("static", json!({"workerConfig": generic_worker(true)}));
        world
            .put(POOL, hosts.clone())
            .await
            .refused_with(400, "InputValidationError", SETTING);
        let hosts_without = pool("static", json!({"workerConfig": generic_worker(false)}));
        world.put(POOL, hosts_without).await.expect(200);
        // An update that is refused changes nothing.
        let before = world.get(POOL).await.text;
        world
            .post(POOL, hosts)
            .await
            .refused_with(400, "InputValidationError", SETTING);
        assert_eq!(world.get(POOL).await.text, before);
        world.post(POOL, static_pool()).await.expect(200);
        // With several providers, each checks its own.
        let mut several = aws_pool(&[with_object_artifacts(plain)]);
        several["config"]["providers"] = json!(["aws", "static"]);
        let refused = world.put("/worker-pool/pp%2Ftwo", several).await;
        refused.refused_with(400, "InputValidationError", "createObjectArtifacts");
    }
);

on_sqlite_first!(
    rules_that_need_an_object_service_are_named,
    zones,
    |world| {
        let values = json!({"aws": {"workerConfig": generic_worker(true)}});
        let bad = rule("objects", json!({"provider": "aws"}), values);
        let refused = world.put(BUILD, with_rule(build(), bad)).await;
        let body = refused.expect(400);
        let text = body["message"].as_str().unwrap();
        for part in [
            "createObjectArtifacts",
            "objects",
            "has no object service",
            "Nothing was changed",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
);

/// The queue of another deployment may have an object service.
#[tokio::test]
async fn workers_of_another_queue_may_use_its_object_service() {
    let world = World::open(Database::sqlite(), |config| {
        config.queue.taskcluster = Some(server::config::OutsideQueue {
            root_url: "https://tc.example.com".to_owned(),
            client_id: "me".to_owned(),
            access_token: Some(access::Secret::new("0123456789012345678901")),
            access_token_file: None,
            pulse: None,
        });
    })
    .await;
    let hosts = pool("static", json!({"workerConfig": generic_worker(true)}));
    world.put(POOL, hosts).await.expect(200);
}
