//! Worker pools: created, updated, deleted, and their events.
//!
//! Taskcluster answers 500 when it cannot publish a committed change. Here events are written in
//! the transaction of the change, so that cannot happen and needs no test.

use serde_json::{Value, json};

use crate::database::{assert_snapshot, on_both, on_sqlite_first};
use crate::samples::{aws_pool, launch_config, pool, static_pool};

const POOL: &str = "/worker-pool/pp%2Fee";

/// The ids of a pool's launch configs, sorted.
fn ids(pool: &Value) -> Vec<&str> {
    let configs = pool["config"]["launchConfigs"].as_array();
    let mut ids: Vec<&str> = configs
        .into_iter()
        .flatten()
        .map(|config| config["workerManager"]["launchConfigId"].as_str().unwrap())
        .collect();
    ids.sort_unstable();
    ids
}

/// The fields of a pool that its author wrote, without times, counts and ids.
fn definition(pool: &Value) -> Value {
    let mut definition = pool.clone();
    let names = [
        "providerId",
        "description",
        "config",
        "owner",
        "emailOnError",
    ];
    definition
        .as_object_mut()
        .unwrap()
        .retain(|name, _| names.contains(&name.as_str()));
    definition
}

on_sqlite_first!(a_created_pool_is_shown_with_its_counts, |world| {
    let answer = world.put(POOL, static_pool()).await;
    assert_snapshot!(answer.text, @r#"
    {
      "workerPoolId": "pp/ee",
      "providerId": "static",
      "description": "for tests",
      "created": "2026-09-21T14:13:20.000Z",
      "lastModified": "2026-09-21T14:13:20.000Z",
      "config": {
        "workerConfig": {
          "a": 1
        }
      },
      "owner": "ops@example.com",
      "emailOnError": false,
      "currentCapacity": 0,
      "requestedCount": 0,
      "runningCount": 0,
      "stoppingCount": 0,
      "stoppedCount": 0,
      "requestedCapacity": 0,
      "runningCapacity": 0,
      "stoppingCapacity": 0,
      "stoppedCapacity": 0
    }
    "#);
    assert_eq!(world.get(POOL).await.expect(200), answer.body());
    assert_snapshot!(world.told().await, @r#"
    worker-pool-created primary._._._._._._._ {"providerId":"static","workerPoolId":"pp/ee"}
    launch-config-created primary.static.pp.ee._._.lc-07397d1e8be6e8fcd6be._ {"launchConfigId":"lc-07397d1e8be6e8fcd6be","providerId":"static","workerPoolId":"pp/ee"}
    "#);
});

on_both!(
    a_repeated_creation_succeeds_and_is_published_once,
    |world| {
        let first = world.put(POOL, static_pool()).await.expect(200);
        world.events().await;
        world.clock.advance_ms(5_000);
        assert_eq!(world.put(POOL, static_pool()).await.expect(200), first);
        assert_eq!(world.told().await, "");
        world
            .put("/worker-pool/pp%2Fother", static_pool())
            .await
            .expect(200);
    }
);

on_sqlite_first!(
    creating_a_pool_that_exists_differently_is_a_conflict,
    |world| {
        let first = world.put(POOL, static_pool()).await.expect(200);
        for (name, value) in [
            ("description", json!("another")),
            ("owner", json!("dev@example.com")),
            ("emailOnError", json!(true)),
            ("config", json!({})),
            ("providerId", json!("null-provider")),
        ] {
            let mut different = static_pool();
            different[name] = value;
            let text = "Worker pool already exists";
            world
                .put(POOL, different)
                .await
                .refused(409, "RequestConflict", text);
        }
        assert_eq!(world.get(POOL).await.expect(200), first);
    }
);

on_both!(a_creation_with_launch_configs_can_be_repeated, |world| {
    let wanted = aws_pool(&[
        launch_config(None, "ami-1"),
        launch_config(Some("lc-b"), "ami-2"),
    ]);
    let first = world.put(POOL, wanted.clone()).await.expect(200);
    assert_eq!(world.put(POOL, wanted).await.expect(200), first);
});

on_sqlite_first!(a_launch_config_without_an_id_gets_one, |world| {
    let made = world
        .put(POOL, aws_pool(&[launch_config(None, "ami-1")]))
        .await
        .expect(200);
    assert_eq!(ids(&made), ["lc-1db9b08793a264e9e74d"]);
    let mut without_id = made["config"].clone();
    without_id["launchConfigs"][0]
        .as_object_mut()
        .unwrap()
        .remove("workerManager");
    assert_eq!(
        without_id,
        aws_pool(&[launch_config(None, "ami-1")])["config"]
    );
    assert_snapshot!(world.told().await, @r#"
    worker-pool-created primary._._._._._._._ {"providerId":"aws","workerPoolId":"pp/ee"}
    launch-config-created primary.aws.pp.ee._._.lc-1db9b08793a264e9e74d._ {"launchConfigId":"lc-1db9b08793a264e9e74d","providerId":"aws","workerPoolId":"pp/ee"}
    "#);
});

on_sqlite_first!(
    the_defaults_of_a_lifecycle_are_stored_and_returned,
    |world| {
        let mut wanted = aws_pool(&[]);
        wanted["config"]["lifecycle"] = json!({"registrationTimeout": 1800});
        let made = world.put(POOL, wanted).await.expect(200);
        let lifecycle = json!({"registrationTimeout": 1800, "reregistrationTimeout": 345_600,
        "queueInactivityTimeout": 7200});
        assert_eq!(made["config"]["lifecycle"], lifecycle);
        assert_eq!(
            world.get(POOL).await.expect(200)["config"]["lifecycle"],
            lifecycle
        );
        // Without a lifecycle there is nothing to put defaults into.
        let made = world
            .put("/worker-pool/pp%2Fother", aws_pool(&[]))
            .await
            .expect(200);
        assert_eq!(made["config"].get("lifecycle"), None);
        let made = world
            .put("/worker-pool/pp%2Fthird", static_pool())
            .await
            .expect(200);
        assert_eq!(made["config"], json!({"workerConfig": {"a": 1}}));
    }
);

on_sqlite_first!(
    an_empty_list_of_launch_configs_is_read_back_as_none,
    |world| {
        let made = world.put(POOL, aws_pool(&[])).await.expect(200);
        assert_eq!(made["config"], json!({"minCapacity": 0, "maxCapacity": 10}));
    }
);

on_both!(
    an_update_replaces_the_definition_and_keeps_the_creation_date,
    |world| {
        let made = world.put(POOL, static_pool()).await.expect(200);
        world.events().await;
        world.clock.advance_ms(60_000);
        let mut wanted = aws_pool(&[]);
        wanted["description"] = json!("changed");
        wanted["emailOnError"] = json!(true);
        let mut sent = wanted.clone();
        sent["workerPoolId"] = json!("pp/ee");
        sent["created"] = json!("2001-01-01T00:00:00.000Z");
        sent["lastModified"] = json!("2001-01-01T00:00:00.000Z");
        let updated = world.post(POOL, sent).await.expect(200);
        wanted["config"]
            .as_object_mut()
            .unwrap()
            .remove("launchConfigs");
        assert_eq!(definition(&updated), wanted);
        assert_eq!(updated["created"], made["created"]);
        assert_eq!(updated["lastModified"], "2026-09-21T14:14:20.000Z");
        assert_eq!(world.get(POOL).await.expect(200), updated);
        assert_snapshot!(world.told().await, @r#"
        worker-pool-updated primary._._._._._._._ {"previousProviderId":"static","providerId":"aws","workerPoolId":"pp/ee"}
        launch-config-archived primary.aws.pp.ee._._.lc-07397d1e8be6e8fcd6be._ {"launchConfigId":"lc-07397d1e8be6e8fcd6be","providerId":"aws","workerPoolId":"pp/ee"}
        "#);
    }
);

on_sqlite_first!(a_pool_that_was_read_can_be_sent_back, |world| {
    let made = world
        .put(POOL, aws_pool(&[launch_config(None, "ami-1")]))
        .await
        .expect(200);
    let mut sent = definition(&made);
    for name in ["workerPoolId", "created", "lastModified"] {
        sent[name] = made[name].clone();
    }
    assert_eq!(world.post(POOL, sent).await.expect(200), made);
});

on_sqlite_first!(
    an_update_tells_which_launch_configs_stay_come_and_go,
    |world| {
        let (one, two, three) = (
            launch_config(Some("lc1"), "ami-1"),
            launch_config(Some("lc2"), "ami-2"),
            launch_config(Some("lc3"), "ami-3"),
        );
        world
            .put(POOL, aws_pool(&[one.clone(), two.clone()]))
            .await
            .expect(200);
        assert_snapshot!(world.told().await, @r#"
    worker-pool-created primary._._._._._._._ {"providerId":"aws","workerPoolId":"pp/ee"}
    launch-config-created primary.aws.pp.ee._._.lc1._ {"launchConfigId":"lc1","providerId":"aws","workerPoolId":"pp/ee"}
    launch-config-created primary.aws.pp.ee._._.lc2._ {"launchConfigId":"lc2","providerId":"aws","workerPoolId":"pp/ee"}
    "#);
        let updated = world.post(POOL, aws_pool(&[one, three])).await.expect(200);
        assert_eq!(ids(&updated), ["lc1", "lc3"]);
        assert_snapshot!(world.told().await, @r#"
    worker-pool-updated primary._._._._._._._ {"previousProviderId":"aws","providerId":"aws","workerPoolId":"pp/ee"}
    launch-config-updated primary.aws.pp.ee._._.lc1._ {"launchConfigId":"lc1","providerId":"aws","workerPoolId":"pp/ee"}
    launch-config-created primary.aws.pp.ee._._.lc3._ {"launchConfigId":"lc3","providerId":"aws","workerPoolId":"pp/ee"}
    launch-config-archived primary.aws.pp.ee._._.lc2._ {"launchConfigId":"lc2","providerId":"aws","workerPoolId":"pp/ee"}
    "#);
        let updated = world.post(POOL, aws_pool(&[])).await.expect(200);
        assert_eq!(ids(&updated), Vec::<&str>::new());
        assert_snapshot!(world.told().await, @r#"
    worker-pool-updated primary._._._._._._._ {"previousProviderId":"aws","providerId":"aws","workerPoolId":"pp/ee"}
    launch-config-archived primary.aws.pp.ee._._.lc1._ {"launchConfigId":"lc1","providerId":"aws","workerPoolId":"pp/ee"}
    launch-config-archived primary.aws.pp.ee._._.lc3._ {"launchConfigId":"lc3","providerId":"aws","workerPoolId":"pp/ee"}
    "#);
        let updated = world.post(POOL, aws_pool(&[two])).await.expect(200);
        assert_eq!(ids(&updated), ["lc2"]);
        assert_snapshot!(world.told().await, @r#"
    worker-pool-updated primary._._._._._._._ {"previousProviderId":"aws","providerId":"aws","workerPoolId":"pp/ee"}
    launch-config-updated primary.aws.pp.ee._._.lc2._ {"launchConfigId":"lc2","providerId":"aws","workerPoolId":"pp/ee"}
    "#);
    }
);

on_sqlite_first!(weights_and_limits_change_without_a_new_id, |world| {
    let mut config = launch_config(None, "ami-1");
    let made = world
        .put(POOL, aws_pool(std::slice::from_ref(&config)))
        .await
        .expect(200);
    config["workerManager"] = json!({"initialWeight": 0.3, "maxCapacity": 4});
    let updated = world.post(POOL, aws_pool(&[config])).await.expect(200);
    assert_eq!(ids(&updated), ids(&made));
    let steering = &updated["config"]["launchConfigs"][0]["workerManager"];
    assert_eq!(
        (&steering["initialWeight"], &steering["maxCapacity"]),
        (&json!(0.3), &json!(4))
    );
    assert_eq!(world.get(POOL).await.expect(200), updated);
});

on_sqlite_first!(
    one_launch_config_id_for_two_contents_is_a_conflict,
    |world| {
        let text = "Launch config with ID `lc1` already exists with different configuration";
        let twice = [
            launch_config(Some("lc1"), "ami-1"),
            launch_config(Some("lc1"), "ami-2"),
        ];
        world
            .put(POOL, aws_pool(&twice))
            .await
            .refused(409, "RequestConflict", text);
        let gone = "Worker pool does not exist";
        world.get(POOL).await.refused(404, "ResourceNotFound", gone);

        let [first, second] = twice;
        let made = world.put(POOL, aws_pool(&[first])).await.expect(200);
        world.events().await;
        let mut wanted = aws_pool(&[second]);
        wanted["description"] = json!("changed");
        world
            .post(POOL, wanted)
            .await
            .refused(409, "RequestConflict", text);
        assert_eq!(world.get(POOL).await.expect(200), made);
        assert_eq!(world.told().await, "");
    }
);

on_sqlite_first!(two_pools_may_use_the_same_launch_config_id, |world| {
    let one = aws_pool(&[launch_config(Some("lc1"), "ami-1")]);
    let two = aws_pool(&[launch_config(Some("lc1"), "ami-2")]);
    world.put(POOL, one).await.expect(200);
    let other = world.put("/worker-pool/pp%2Fother", two).await.expect(200);
    assert_eq!(ids(&other), ["lc1"]);
});

on_sqlite_first!(an_unknown_provider_is_refused, |world| {
    let wanted = pool("nosuch", json!({}));
    world
        .put(POOL, wanted.clone())
        .await
        .refused(400, "InputError", "Invalid Provider");
    world.put(POOL, static_pool()).await.expect(200);
    world
        .post(POOL, wanted)
        .await
        .refused(400, "InputError", "Invalid Provider");
});

on_sqlite_first!(a_provider_out_of_service_is_tried_again, |world| {
    let text = |why: &str| {
        format!(
            "The provider shaky is out of service: {why}. Nothing was changed. The server tries to \
             set it up again every minute; `fleetwright provider list` shows its state"
        )
    };
    let wanted = pool("shaky", json!({}));
    world.put(POOL, wanted.clone()).await.refused(
        503,
        "ProviderSetupFailed",
        &text("the cloud is on holiday"),
    );
    world.set_up_providers().await;
    world.put(POOL, wanted.clone()).await.refused(
        503,
        "ProviderSetupFailed",
        &text("the cloud is on holiday"),
    );
    world
        .shaky
        .works
        .store(true, std::sync::atomic::Ordering::Release);
    assert_eq!(
        world.set_up_providers().await,
        json!({"in_service": ["shaky"]})
    );
    world.put(POOL, wanted).await.expect(200);
});

on_sqlite_first!(a_body_for_another_pool_is_refused, |world| {
    world.put(POOL, static_pool()).await.expect(200);
    let mut wanted = static_pool();
    wanted["workerPoolId"] = json!("pp/other");
    let text = "Incorrect workerPoolId in request body";
    world
        .post(POOL, wanted.clone())
        .await
        .refused(400, "InputError", text);
    // Creation has no such key at all.
    let answer = world.put(POOL, wanted).await;
    answer.refused_with(
        400,
        "InputValidationError",
        "must NOT have additional properties",
    );
});

on_sqlite_first!(
    a_config_that_its_provider_does_not_take_is_refused,
    |world| {
        let mut wanted = aws_pool(&[]);
        wanted["config"]["lifecycle"] = json!({"queueInactivityTimeout": 2});
        let part = "queueInactivityTimeout must be >= 1200";
        world
            .put(POOL, wanted)
            .await
            .refused_with(400, "InputValidationError", part);
        let unknown = pool("static", json!({"surprise": true}));
        let part = "/schemas/worker-manager/v1/config-static.json#\nErrors:\n  * data must NOT have \
                additional properties: \"surprise\"";
        world
            .put(POOL, unknown.clone())
            .await
            .refused_with(400, "InputValidationError", part);
        world.put(POOL, static_pool()).await.expect(200);
        world
            .post(POOL, unknown)
            .await
            .refused_with(400, "InputValidationError", part);
    }
);

on_sqlite_first!(updating_or_deleting_a_missing_pool_is_not_found, |world| {
    let text = "Worker pool does not exist";
    world
        .post(POOL, static_pool())
        .await
        .refused(404, "ResourceNotFound", text);
    world
        .delete(POOL)
        .await
        .refused(404, "ResourceNotFound", text);
});

on_sqlite_first!(
    a_deleted_pool_has_the_null_provider_and_no_launch_configs,
    |world| {
        let made = aws_pool(&[
            launch_config(Some("lc1"), "ami-1"),
            launch_config(Some("lc2"), "ami-2"),
        ]);
        world.put(POOL, made.clone()).await.expect(200);
        world.events().await;
        let deleted = world.delete(POOL).await.expect(200);
        assert_eq!(deleted["providerId"], "null-provider");
        assert_eq!(ids(&deleted), Vec::<&str>::new());
        assert_eq!(deleted["owner"], "ops@example.com");
        assert_eq!(deleted["description"], "for tests");
        assert_snapshot!(world.told().await, @r#"
    worker-pool-updated primary._._._._._._._ {"previousProviderId":"aws","providerId":"null-provider","workerPoolId":"pp/ee"}
    launch-config-archived primary.null-provider.pp.ee._._.lc1._ {"launchConfigId":"lc1","providerId":"null-provider","workerPoolId":"pp/ee"}
    launch-config-archived primary.null-provider.pp.ee._._.lc2._ {"launchConfigId":"lc2","providerId":"null-provider","workerPoolId":"pp/ee"}
    "#);
        // Until it is deleted, an update restores it.
        let revived = world.post(POOL, made).await.expect(200);
        assert_eq!(ids(&revived), ["lc1", "lc2"]);
    }
);

on_sqlite_first!(
    a_pool_may_be_updated_to_the_null_provider_with_any_config,
    |world| {
        world.put(POOL, static_pool()).await.expect(200);
        let wanted = pool("null-provider", json!({"any": ["thing"]}));
        let updated = world.post(POOL, wanted).await.expect(200);
        assert_eq!(updated["config"], json!({"any": ["thing"]}));
    }
);

on_sqlite_first!(changes_of_a_pool_are_in_its_history, |world| {
    world.put(POOL, static_pool()).await.expect(200);
    world.clock.advance_ms(1_000);
    world.post(POOL, static_pool()).await.expect(200);
    world.clock.advance_ms(1_000);
    world.delete(POOL).await.expect(200);
    let history = world
        .get("auth:/audit/worker-pool/pp%2Fee")
        .await
        .expect(200);
    assert_snapshot!(summary(&history), @r"
    worker-pool pp/ee created by static/root at 2026-09-21T14:13:20.000Z
    worker-pool pp/ee updated by static/root at 2026-09-21T14:13:21.000Z
    worker-pool pp/ee deleted by static/root at 2026-09-21T14:13:22.000Z
    ");
});

fn summary(history: &Value) -> String {
    let entries = history["auditHistory"].as_array().unwrap().iter();
    let lines = entries.map(|entry| {
        let text = |name: &str| entry[name].as_str().unwrap();
        format!(
            "{} {} {} by {} at {}",
            text("entityType"),
            text("entityId"),
            text("actionType"),
            text("clientId"),
            text("created")
        )
    });
    lines.collect::<Vec<_>>().join("\n")
}

on_both!(a_full_google_pool_can_be_created, |world| {
    let wanted = pool(
        "google",
        json!({
            "minCapacity": 0,
            "maxCapacity": 100,
            "scalingRatio": 0.5,
            "lifecycle": {"registrationTimeout": 3600, "queueInactivityTimeout": 1200},
            "launchConfigs": [{
                "region": "us-east1",
                "zone": "us-east1-b",
                "machineType": "zones/us-east1-b/machineTypes/n2-standard-8",
                "disks": [{"type": "PERSISTENT", "boot": true, "autoDelete": true,
                    "initializeParams": {"sourceImage": "global/images/worker", "diskSizeGb": 75}}],
                "networkInterfaces": [{"accessConfigs": [{"type": "ONE_TO_ONE_NAT"}]}],
                "scheduling": {"onHostMaintenance": "terminate"},
                "workerConfig": {"genericWorker": {"config": {"idleTimeoutSecs": 600}}},
                "workerManager": {"capacityPerInstance": 1, "initialWeight": 1, "maxCapacity": 20},
            }],
        }),
    );
    let made = world.put(POOL, wanted).await.expect(200);
    assert_eq!(made["config"]["launchConfigs"][0]["zone"], "us-east1-b");
});
