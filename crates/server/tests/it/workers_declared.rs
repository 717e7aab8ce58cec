//! Workers that people declare: created, changed, removed.

use domain::worker::{StoredWorker, Worker, WorkerState};
use serde_json::{Value, json};

use crate::database::{assert_snapshot, on_both, on_sqlite_first};
use crate::samples::{STATIC_SECRET, key, pool, static_pool, static_worker, worker};
use crate::world::World;

const POOL: &str = "/worker-pool/pp%2Fee";
const WORKER: &str = "/workers/pp%2Fee/g/w";

async fn with_pool(world: &World) {
    world.put(POOL, static_pool()).await.expect(200);
    world.events().await;
}

fn with(mut body: Value, name: &str, value: Value) -> Value {
    body[name] = value;
    body
}

on_sqlite_first!(
    a_declared_worker_runs_at_once_and_shows_no_secret,
    |world| {
        with_pool(world).await;
        let answer = world.put(WORKER, static_worker()).await;
        assert_snapshot!(answer.text, @r#"
    {
      "workerPoolId": "pp/ee",
      "workerGroup": "g",
      "workerId": "w",
      "providerId": "static",
      "created": "2026-09-21T14:13:20.000Z",
      "expires": "2026-12-01T00:00:00.000Z",
      "state": "running",
      "capacity": 1,
      "lastModified": "2026-09-21T14:13:20.000Z",
      "lastChecked": "2026-09-21T14:13:20.000Z",
      "launchConfigId": "lc-07397d1e8be6e8fcd6be"
    }
    "#);
        let made = answer.expect(200);
        assert_eq!(world.get(WORKER).await.expect(200), made);
        assert_snapshot!(world.told().await, @r#"worker-running primary.static.pp.ee.g.w.lc-07397d1e8be6e8fcd6be._ {"capacity":1,"launchConfigId":"lc-07397d1e8be6e8fcd6be","providerId":"static","timestamp":"2026-09-21T14:13:20.000Z","workerGroup":"g","workerId":"w","workerPoolId":"pp/ee"}"#);
    }
);

on_sqlite_first!(a_capacity_may_be_given, |world| {
    with_pool(world).await;
    let made = world
        .put(WORKER, with(static_worker(), "capacity", json!(4)))
        .await
        .expect(200);
    assert_eq!(made["capacity"], 4);
    let stats = world.get(POOL).await.expect(200);
    assert_eq!(
        (&stats["runningCapacity"], &stats["currentCapacity"]),
        (&json!(4), &json!(4))
    );
});

on_sqlite_first!(declaring_a_worker_of_a_missing_pool_is_not_found, |world| {
    let text = "Worker pool pp/ee does not exist";
    world
        .put(WORKER, static_worker())
        .await
        .refused(404, "ResourceNotFound", text);
    world
        .post(WORKER, static_worker())
        .await
        .refused(404, "ResourceNotFound", text);
});

on_sqlite_first!(a_new_worker_must_expire_in_the_future, |world| {
    with_pool(world).await;
    let past = with(
        static_worker(),
        "expires",
        json!("2026-09-21T14:13:19.999Z"),
    );
    let text = "worker.expires must be in the future";
    world
        .put(WORKER, past)
        .await
        .refused(400, "InputError", text);
});

on_sqlite_first!(
    a_pool_whose_provider_is_not_configured_has_no_new_workers,
    |world| {
        with_pool(world).await;
        let change = |tx: &mut store::Tx<'_>| {
            let mut pool = store::pools::get(tx, &"pp/ee".parse().unwrap())?.unwrap();
            pool.definition.provider_id = "nosuch".parse().unwrap();
            store::pools::update(tx, &pool)
        };
        world.write(change).await;
        let text = "Provider nosuch for worker pool pp/ee does not exist";
        world
            .put(WORKER, static_worker())
            .await
            .refused(404, "ResourceNotFound", text);
        world
            .post(WORKER, static_worker())
            .await
            .refused(404, "ResourceNotFound", text);
    }
);

on_sqlite_first!(
    a_provider_that_launches_its_workers_takes_none_by_hand,
    |world| {
        world
            .put(
                POOL,
                pool(
                    "azure",
                    json!({"minCapacity": 0, "maxCapacity": 1, "launchConfigs": []}),
                ),
            )
            .await
            .expect(200);
        let text = "not supported for this provider";
        world
            .put(WORKER, static_worker())
            .await
            .refused(400, "InputError", text);
        let text = "Worker pp/ee/g/w does not exist";
        world
            .post(WORKER, static_worker())
            .await
            .refused(404, "ResourceNotFound", text);
        world
            .insert(Worker::from_stored(StoredWorker {
                provider_id: "azure".parse().unwrap(),
                ..worker("pp/ee", "g", "w").into_stored()
            }))
            .await;
        let text = "not supported for this provider";
        world
            .post(WORKER, static_worker())
            .await
            .refused(400, "InputError", text);
    }
);

on_sqlite_first!(a_provider_out_of_service_takes_no_workers, |world| {
    world
        .shaky
        .works
        .store(false, std::sync::atomic::Ordering::Release);
    with_pool(world).await;
    let change = |tx: &mut store::Tx<'_>| {
        let mut pool = store::pools::get(tx, &"pp/ee".parse().unwrap())?.unwrap();
        pool.definition.provider_id = "shaky".parse().unwrap();
        store::pools::update(tx, &pool)
    };
    world.write(change).await;
    let text = "Provider backend may be down or misconfigured";
    world
        .put(WORKER, static_worker())
        .await
        .refused(503, "ProviderSetupFailed", text);
    world
        .post(WORKER, static_worker())
        .await
        .refused(503, "ProviderSetupFailed", text);
    world
        .insert(Worker::from_stored(StoredWorker {
            provider_id: "shaky".parse().unwrap(),
            ..worker("pp/ee", "g", "w").into_stored()
        }))
        .await;
    world
        .delete(WORKER)
        .await
        .refused(503, "ProviderSetupFailed", text);
});

on_sqlite_first!(names_that_are_too_long_are_refused, |world| {
    with_pool(world).await;
    let long = "x".repeat(39);
    for path in [
        format!("/workers/pp%2Fee/g/{long}"),
        format!("/workers/pp%2Fee/{long}/w"),
    ] {
        let answer = world.put(&path, static_worker()).await;
        answer.refused_with(400, "InvalidRequestArguments", "must match regular");
    }
});

on_sqlite_first!(a_static_worker_needs_a_secret, |world| {
    with_pool(world).await;
    let body = json!({"expires": "2026-12-01T00:00:00.000Z"});
    let text = "no worker staticSecret provided";
    world
        .put(WORKER, body)
        .await
        .refused(400, "InputError", text);
    let short = with(
        static_worker(),
        "providerInfo",
        json!({"staticSecret": "short"}),
    );
    let answer = world.put(WORKER, short).await;
    let body = answer.body();
    answer.refused_with(400, "InputValidationError", "must match pattern");
    assert_eq!(
        body["requestInfo"]["payload"]["providerInfo"]["staticSecret"],
        "(OMITTED)"
    );
});

on_both!(
    the_same_declaration_again_succeeds_and_any_other_is_a_conflict,
    |world| {
        with_pool(world).await;
        let made = world.put(WORKER, static_worker()).await.expect(200);
        world.clock.advance_ms(1_000);
        assert_eq!(world.put(WORKER, static_worker()).await.expect(200), made);
        for (name, value) in [
            ("expires", json!("2026-12-02T00:00:00.000Z")),
            ("capacity", json!(2)),
            ("providerInfo", json!({"staticSecret": "t".repeat(44)})),
        ] {
            let different = with(static_worker(), name, value);
            let text = "Worker already exists";
            world
                .put(WORKER, different)
                .await
                .refused(409, "RequestConflict", text);
        }
        assert_eq!(world.get(WORKER).await.expect(200), made);
    }
);

on_both!(the_id_of_a_removed_worker_is_not_given_again, |world| {
    with_pool(world).await;
    world.put(WORKER, static_worker()).await.expect(200);
    world.delete(WORKER).await.expect(200);
    let text = "Worker already exists";
    world
        .put(WORKER, static_worker())
        .await
        .refused(409, "RequestConflict", text);
    // Once its row has expired, the id is free.
    world
        .post(
            WORKER,
            with(
                static_worker(),
                "expires",
                json!("2026-01-01T00:00:00.000Z"),
            ),
        )
        .await
        .expect(200);
    world.keep_house().await;
    world.put(WORKER, static_worker()).await.expect(200);
});

on_sqlite_first!(an_update_changes_expiry_capacity_and_secret, |world| {
    with_pool(world).await;
    let made = world.put(WORKER, static_worker()).await.expect(200);
    let before = world.worker(&key("pp/ee", "g", "w")).await.unwrap();
    world.clock.advance_ms(1_000);
    let body = json!({"expires": "2027-01-01T00:00:00.000Z", "capacity": 3,
        "providerInfo": {"staticSecret": "t".repeat(44)}});
    let updated = world.post(WORKER, body).await.expect(200);
    let expected = json!({"expires": "2027-01-01T00:00:00.000Z", "capacity": 3,
        "lastModified": "2026-09-21T14:13:21.000Z"});
    for (name, value) in updated.as_object().unwrap() {
        let expected = expected.get(name).unwrap_or(&made[name]);
        assert_eq!(value, expected, "{name}");
    }
    assert_eq!(world.get(WORKER).await.expect(200), updated);
    let after = world.worker(&key("pp/ee", "g", "w")).await.unwrap();
    assert_ne!(before.provider_data, after.provider_data);
});

on_sqlite_first!(an_update_keeps_omitted_fields, |world| {
    with_pool(world).await;
    world
        .put(WORKER, with(static_worker(), "capacity", json!(4)))
        .await
        .expect(200);
    let before = world.worker(&key("pp/ee", "g", "w")).await.unwrap();
    let body = json!({"expires": "2027-01-01T00:00:00.000Z"});
    let updated = world.post(WORKER, body).await.expect(200);
    assert_eq!(updated["capacity"], 4);
    let after = world.worker(&key("pp/ee", "g", "w")).await.unwrap();
    assert_eq!(before.provider_data, after.provider_data);
});

on_sqlite_first!(updating_a_missing_worker_is_not_found, |world| {
    with_pool(world).await;
    let text = "Worker pp/ee/g/w does not exist";
    world
        .post(WORKER, static_worker())
        .await
        .refused(404, "ResourceNotFound", text);
});

on_both!(a_removed_static_worker_is_stopped, |world| {
    with_pool(world).await;
    world.put(WORKER, static_worker()).await.expect(200);
    world.events().await;
    world.clock.advance_ms(1_000);
    assert_eq!(world.delete(WORKER).await.expect(200), json!({}));
    let shown = world.get(WORKER).await.expect(200);
    assert_eq!(shown["state"], "stopped");
    assert_eq!(shown["lastModified"], "2026-09-21T14:13:21.000Z");
    assert_snapshot!(world.told().await, @r#"
    worker-removed primary.static.pp.ee.g.w.lc-07397d1e8be6e8fcd6be._ {"capacity":1,"launchConfigId":"lc-07397d1e8be6e8fcd6be","providerId":"static","reason":"workerManager.removeWorker API call","timestamp":"2026-09-21T14:13:21.000Z","workerGroup":"g","workerId":"w","workerPoolId":"pp/ee"}
    worker-stopped primary.static.pp.ee.g.w.lc-07397d1e8be6e8fcd6be._ {"capacity":1,"launchConfigId":"lc-07397d1e8be6e8fcd6be","providerId":"static","timestamp":"2026-09-21T14:13:21.000Z","workerGroup":"g","workerId":"w","workerPoolId":"pp/ee"}
    "#);
    // The same again is no error, and publishes no event.
    assert_eq!(world.delete(WORKER).await.expect(200), json!({}));
    assert_eq!(world.told().await, "");
});

on_sqlite_first!(a_removed_cloud_worker_is_stopping, |world| {
    with_pool(world).await;
    let launch_config_id = Some("lc-1".parse().unwrap());
    let running = Worker::from_stored(StoredWorker {
        state: WorkerState::Running,
        launch_config_id,
        ..worker("pp/ee", "g", "w").into_stored()
    });
    world.insert(running).await;
    world.delete(WORKER).await.expect(200);
    assert_eq!(world.get(WORKER).await.expect(200)["state"], "stopping");
    assert_snapshot!(world.told().await, @r#"worker-removed primary.google.pp.ee.g.w.lc-1._ {"capacity":1,"launchConfigId":"lc-1","providerId":"google","reason":"workerManager.removeWorker API call","timestamp":"2026-09-21T14:13:20.000Z","workerGroup":"g","workerId":"w","workerPoolId":"pp/ee"}"#);
    world.delete(WORKER).await.expect(200);
    assert_eq!(world.told().await, "");
});

on_sqlite_first!(removing_a_missing_worker_is_not_found, |world| {
    world
        .delete(WORKER)
        .await
        .refused(404, "ResourceNotFound", "Worker not found");
    world
        .get(WORKER)
        .await
        .refused(404, "ResourceNotFound", "Worker not found");
    let stray = Worker::from_stored(StoredWorker {
        provider_id: "nosuch".parse().unwrap(),
        ..worker("pp/ee", "g", "w").into_stored()
    });
    world.insert(stray).await;
    let text = "Provider nosuch does not exist";
    world
        .delete(WORKER)
        .await
        .refused(404, "ResourceNotFound", text);
});

on_sqlite_first!(a_provider_that_cannot_end_a_worker_says_so, |world| {
    let stray = Worker::from_stored(StoredWorker {
        provider_id: "null-provider".parse().unwrap(),
        ..worker("pp/ee", "g", "w").into_stored()
    });
    world.insert(stray).await;
    let text = "not supported for this provider";
    world.delete(WORKER).await.refused(400, "InputError", text);
});

on_both!(
    the_secret_of_a_static_worker_is_nowhere_to_be_read,
    |world| {
        with_pool(world).await;
        let made = world.put(WORKER, static_worker()).await;
        assert!(!made.text.contains(STATIC_SECRET));
        assert!(!world.log.text().contains(STATIC_SECRET));
        if let Some(bytes) = world.database.bytes() {
            let mut windows = bytes.windows(STATIC_SECRET.len());
            assert!(!windows.any(|window| window == STATIC_SECRET.as_bytes()));
        }
    }
);
