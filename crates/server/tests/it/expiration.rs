//! Which data expires, and which is kept.

use domain::audit::{AuditEntry, EntityType};
use domain::error_report::ErrorReport;
use domain::worker::{StoredWorker, Worker};
use serde_json::{Value, json};

use crate::database::on_both;
use crate::samples::{
    DAY_MS, aws_pool, key, launch_config, null_pool, static_pool, static_worker, worker,
};
use crate::world::World;

async fn pools(world: &World) -> Vec<String> {
    let listed = world.get("/worker-pools").await.expect(200);
    let pools = listed["workerPools"].as_array().unwrap().iter();
    pools
        .map(|pool| pool["workerPoolId"].as_str().unwrap().to_owned())
        .collect()
}

on_both!(with_nothing_to_forget_nothing_happens, |world| {
    // Root sent a request, and its use is recorded; nothing is deleted.
    assert_eq!(world.keep_house().await, Value::Null);
});

on_both!(
    a_deleted_pool_disappears_once_no_provider_has_workers_in_it,
    |world| {
        for id in ["real", "busy", "gone"] {
            world
                .put(&format!("/worker-pool/pp%2F{id}"), static_pool())
                .await
                .expect(200);
        }
        world
            .put("/workers/pp%2Fbusy/g/w", static_worker())
            .await
            .expect(200);
        world.delete("/worker-pool/pp%2Fbusy").await.expect(200);
        world.delete("/worker-pool/pp%2Fgone").await.expect(200);
        world.keep_house().await;
        assert_eq!(pools(world).await, ["pp/busy", "pp/real"]);
        world.delete("/workers/pp%2Fbusy/g/w").await.expect(200);
        world.keep_house().await;
        world.keep_house().await;
        assert_eq!(pools(world).await, ["pp/real"]);
        // Its workers' rows and errors expire on their own.
        world.get("/workers/pp%2Fbusy/g/w").await.expect(200);
    }
);

on_both!(
    a_former_provider_of_a_pool_is_kept_while_it_has_workers,
    |world| {
        world
            .put("/worker-pool/pp%2Fee", static_pool())
            .await
            .expect(200);
        world
            .put("/workers/pp%2Fee/g/w", static_worker())
            .await
            .expect(200);
        world
            .post("/worker-pool/pp%2Fee", aws_pool(&[]))
            .await
            .expect(200);
        for expected in [vec!["static"], vec![]] {
            world.keep_house().await;
            let pool = world
                .read(|tx| store::pools::get(tx, &"pp/ee".parse().unwrap()))
                .await
                .unwrap();
            let left: Vec<_> = pool
                .previous_provider_ids
                .iter()
                .map(|id| id.as_str())
                .collect();
            assert_eq!(left, expected);
            world.delete("/workers/pp%2Fee/g/w").await.expect(200);
        }
    }
);

async fn launch_configs(world: &World) -> Vec<String> {
    let path = "/worker-pool/pp%2Fee/launch-configs?includeArchived=true";
    let listed = world.get(path).await.expect(200);
    let configs = listed["workerPoolLaunchConfigs"].as_array().unwrap().iter();
    configs
        .map(|config| config["launchConfigId"].as_str().unwrap().to_owned())
        .collect()
}

on_both!(
    an_archived_launch_config_stays_as_long_as_a_worker_has_it,
    |world| {
        let configs: Vec<Value> = ["active", "used", "unused"]
            .map(|id| launch_config(Some(id), id))
            .to_vec();
        world
            .put("/worker-pool/pp%2Fee", aws_pool(&configs))
            .await
            .expect(200);
        world
            .post("/worker-pool/pp%2Fee", aws_pool(&configs[..1]))
            .await
            .expect(200);
        let launch_config_id = Some("used".parse().unwrap());
        world
            .insert(Worker::from_stored(StoredWorker {
                launch_config_id,
                ..worker("pp/ee", "g", "w").into_stored()
            }))
            .await;
        world.keep_house().await;
        assert_eq!(launch_configs(world).await, ["active", "used"]);
        // Its last worker's row expires, and then the pool is deleted, too.
        world.clock.advance_ms(8 * DAY_MS);
        world.keep_house().await;
        assert_eq!(launch_configs(world).await, ["active"]);
    }
);

on_both!(the_audit_log_is_kept_for_two_years, |world| {
    let path = "/worker-pool/pp%2Faudited";
    world.put(path, static_pool()).await.expect(200);
    let old = world.now();
    let days_ago = move |days: i64| old.plus_millis(-days * 86_400_000);
    world
        .write(move |tx| {
            [730, 731].into_iter().try_for_each(|days| {
                let entry = AuditEntry {
                    entity_type: EntityType::WorkerPool,
                    entity_id: "pp/audited".to_owned(),
                    action: format!("{days} days ago"),
                    client_id: "me".to_owned(),
                    created: days_ago(days),
                    source_ip: None,
                    request_id: None,
                    detail: Value::Null,
                };
                store::audit::insert(tx, &entry)
            })
        })
        .await;
    let actions = async || {
        let read = world
            .read(|tx| store::audit::by_entity(tx, EntityType::WorkerPool, "pp/audited", None, 9));
        let actions = read.await.into_iter().map(|(_, entry)| entry.action);
        actions.collect::<Vec<_>>()
    };
    assert_eq!(actions().await, ["created", "730 days ago", "731 days ago"]);
    assert_eq!(world.keep_house().await["audit"], 1);
    assert_eq!(actions().await, ["created", "730 days ago"]);
});

on_both!(expired_workers_go_whatever_their_state, |world| {
    let past = world.now().plus_millis(-1);
    world
        .insert(Worker::from_stored(StoredWorker {
            expires: past,
            ..worker("pp/ee", "g", "old").into_stored()
        }))
        .await;
    world
        .insert(Worker::from_stored(StoredWorker {
            expires: world.now(),
            ..worker("pp/ee", "g", "now").into_stored()
        }))
        .await;
    world.insert(worker("pp/ee", "g", "young")).await;
    let done = world.keep_house().await;
    assert_eq!(done["workers"], 1);
    assert!(world.worker(&key("pp/ee", "g", "old")).await.is_none());
    assert!(world.worker(&key("pp/ee", "g", "now")).await.is_some());
    assert!(world.worker(&key("pp/ee", "g", "young")).await.is_some());
});

on_both!(errors_are_kept_for_a_week, |world| {
    for (number, age) in [('A', 7 * DAY_MS + 1), ('B', 7 * DAY_MS), ('C', 0)] {
        let report = ErrorReport {
            pool_id: "pp/ee".parse().unwrap(),
            error_id: format!("{number}AAAAAAAQACAAAAAAAAAAA").parse().unwrap(),
            reported: world.now().plus_millis(-age),
            kind: "k".to_owned(),
            title: "t".to_owned(),
            description: "d".to_owned(),
            extra: serde_json::Map::new(),
            launch_config_id: None,
        };
        world
            .write(move |tx| store::worker_errors::insert(tx, &report))
            .await;
    }
    world.keep_house().await;
    let listed = world.get("/worker-pool-errors/pp%2Fee").await.expect(200);
    assert_eq!(listed["workerPoolErrors"].as_array().unwrap().len(), 2);
});

on_both!(
    told_events_are_kept_for_a_day_and_untold_ones_for_ever,
    |world| {
        world
            .put("/worker-pool/pp%2Fee", null_pool())
            .await
            .expect(200);
        assert_eq!(world.events().await.len(), 1);
        world.read_outcomes().await;
        world
            .put("/worker-pool/pp%2Fff", null_pool())
            .await
            .expect(200);
        world.clock.advance_ms(DAY_MS + 1);
        assert_eq!(world.keep_house().await["events"], 1);
        assert_eq!(world.events().await.len(), 1);
    }
);

on_both!(
    clients_that_wish_it_are_deleted_once_they_have_expired,
    |world| {
        for (id, delete) in [("going", true), ("staying", false)] {
            let body = json!({"expires": "2026-09-22T00:00:00.000Z", "description": "",
            "deleteOnExpiration": delete});
            world
                .put(&format!("auth:/clients/{id}"), body)
                .await
                .expect(200);
        }
        world.keep_house().await;
        world.get("auth:/clients/going").await.expect(200);
        world.clock.advance_ms(DAY_MS);
        world.keep_house().await;
        world
            .get("auth:/clients/going")
            .await
            .refused(404, "ResourceNotFound", "Client not found");
        world.get("auth:/clients/staying").await.expect(200);
        let history = world.get("auth:/audit/client/going").await.expect(200);
        let entries = history["auditHistory"].as_array().unwrap();
        let actions: Vec<_> = entries.iter().map(|entry| &entry["actionType"]).collect();
        assert_eq!(actions, ["created", "expired"]);
        assert_eq!(entries[1]["clientId"], "static/taskcluster/worker-manager");
    }
);

on_both!(when_a_client_was_last_used_is_written_down, |world| {
    let used = world
        .client("used", &["worker-manager:list-providers"])
        .await;
    let path = "auth:/clients/used";
    let made = world.get(path).await.expect(200);
    world.clock.advance_ms(60_000);
    world.get("/providers").by(&used).await.expect(200);
    world.keep_house().await;
    let shown = world.get(path).await.expect(200);
    assert_eq!(shown["lastDateUsed"], "2026-09-21T14:14:20.000Z");
    assert_eq!(shown["lastModified"], made["lastModified"]);
});
