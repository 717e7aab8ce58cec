//! Workers: listed by pool and group, shown, with what the queue knows of them.

use domain::queue_worker::{QuarantineEntry, QueueWorker, TaskRun};
use domain::worker::{Advice, StoredWorker, Terms, Worker, WorkerState};
use serde_json::{Value, json};

use crate::database::{assert_snapshot, on_both, on_sqlite_first};
use crate::samples::{DAY_MS, key, static_pool, worker};
use crate::world::World;

const LIST: &str = "/workers/pp%2Fee";

/// Four workers, the later ones newer.
async fn populate(world: &World) {
    world
        .put("/worker-pool/pp%2Fee", static_pool())
        .await
        .expect(200);
    let workers = [
        ("g1", "w1", WorkerState::Running, Some("lc-1")),
        ("g1", "w2", WorkerState::Stopped, Some("lc-1")),
        ("g2", "w3", WorkerState::Running, Some("lc-2")),
        ("g2", "w4", WorkerState::Requested, None),
    ];
    for (age, (group, id, state, config)) in workers.into_iter().enumerate() {
        let fresh = worker("pp/ee", group, id);
        world
            .insert(Worker::from_stored(StoredWorker {
                state,
                launch_config_id: config.map(|id| id.parse().unwrap()),
                created: fresh.created.plus_seconds(age.try_into().unwrap()),
                ..fresh.into_stored()
            }))
            .await;
    }
    world.insert(worker("pp/other", "g1", "elsewhere")).await;
}

fn ids(listed: &Value) -> Vec<&str> {
    let workers = listed["workers"].as_array().unwrap().iter();
    workers
        .map(|worker| worker["workerId"].as_str().unwrap())
        .collect()
}

on_sqlite_first!(the_workers_of_a_missing_pool_are_not_found, |world| {
    let text = "Worker Pool does not exist";
    for query in ["", "?state=running", "?state=standalone"] {
        let path = format!("{LIST}{query}");
        world
            .get(&path)
            .await
            .refused(404, "ResourceNotFound", text);
    }
});

on_sqlite_first!(a_pool_without_workers_has_an_empty_list, |world| {
    world
        .put("/worker-pool/pp%2Fee", static_pool())
        .await
        .expect(200);
    assert_eq!(world.get(LIST).await.expect(200), json!({"workers": []}));
});

on_both!(the_workers_of_a_pool_are_listed_newest_first, |world| {
    populate(world).await;
    let listed = world.get(LIST).await.expect(200);
    assert_eq!(ids(&listed), ["w4", "w3", "w2", "w1"]);
    assert_snapshot!(format!("{:#}", listed["workers"][1]), @r#"
    {
      "capacity": 1,
      "created": "2026-09-21T14:13:22.000Z",
      "expires": "2026-09-28T14:13:20.000Z",
      "lastChecked": "2026-09-21T14:13:20.000Z",
      "lastModified": "2026-09-21T14:13:20.000Z",
      "launchConfigId": "lc-2",
      "providerId": "google",
      "state": "running",
      "workerGroup": "g2",
      "workerId": "w3",
      "workerPoolId": "pp/ee"
    }
    "#);
    assert_eq!(listed["workers"][0].get("launchConfigId"), None);
    let shown = world.get("/workers/pp%2Fee/g2/w3").await.expect(200);
    assert_eq!(shown, listed["workers"][1]);
});

on_both!(filters_work_alone_and_together, |world| {
    populate(world).await;
    for (query, expected) in [
        ("state=running", vec!["w3", "w1"]),
        ("state=stopped", vec!["w2"]),
        ("state=stopping", vec![]),
        ("state=standalone", vec![]),
        ("launchConfigId=lc-1", vec!["w2", "w1"]),
        ("launchConfigId=nosuch", vec![]),
        ("launchConfigId=lc-1&state=running", vec!["w1"]),
        ("state=running&launchConfigId=lc-2", vec!["w3"]),
    ] {
        let listed = world.get(&format!("{LIST}?{query}")).await.expect(200);
        assert_eq!(ids(&listed), expected, "{query}");
    }
});

on_sqlite_first!(the_workers_of_a_group_are_only_those, |world| {
    populate(world).await;
    let listed = world.get("/workers/pp%2Fee/g1").await.expect(200);
    assert_eq!(ids(&listed), ["w2", "w1"]);
    let listed = world.get("/workers/pp%2Fee/nosuch").await.expect(200);
    assert_eq!(listed, json!({"workers": []}));
    // The pool need not exist either.
    let listed = world.get("/workers/pp%2Fnosuch/g1").await.expect(200);
    assert_eq!(listed, json!({"workers": []}));
});

on_sqlite_first!(a_worker_gets_the_last_decision_about_it, |world| {
    let path = |id: &str| format!("/workers/pp%2Fee/g/{id}/should-terminate");
    for (id, terminate, reason) in [("go", true, "over capacity"), ("stay", false, "needed")] {
        let advice = Advice {
            terminate,
            reason: reason.to_owned(),
            decided_at: 0,
        };
        let terms = Terms {
            advice: Some(advice),
            ..Terms::default()
        };
        world
            .insert(Worker::from_stored(StoredWorker {
                terms,
                ..worker("pp/ee", "g", id).into_stored()
            }))
            .await;
        let told = world.get(&path(id)).await.expect(200);
        assert_eq!(told, json!({"terminate": terminate, "reason": reason}));
    }
    world.insert(worker("pp/ee", "g", "none")).await;
    let told = world.get(&path("none")).await.expect(200);
    assert_eq!(told, json!({"terminate": false, "reason": "none"}));
    let text = "Worker not found";
    world
        .get(&path("nosuch"))
        .await
        .refused(404, "ResourceNotFound", text);
});

fn seen(world: &World, group: &str, id: &str) -> QueueWorker {
    let now = world.now();
    QueueWorker {
        key: key("pp/ee", group, id),
        first_claim: now.plus_millis(-DAY_MS),
        last_date_active: Some(now.plus_millis(-60_000)),
        last_task_ended: None,
        expires: now.plus_millis(DAY_MS),
        recent_tasks: ["A", "B"]
            .map(|task| TaskRun {
                task_id: task_id(task),
                run_id: 1,
            })
            .to_vec(),
        quarantine_until: None,
        quarantine_details: Vec::new(),
    }
}

fn task_id(first: &str) -> String {
    format!("{first}AAAAAAAQACAAAAAAAAAAA")
}

async fn note(world: &World, seen: QueueWorker) {
    world
        .write(move |tx| store::queue_workers::upsert(tx, &seen))
        .await;
}

const QUEUE_LIST: &str = "/provisioners/pp/worker-types/ee/workers";

on_both!(a_worker_is_shown_with_the_queues_data, |world| {
    populate(world).await;
    note(world, seen(world, "g1", "w1")).await;
    note(world, seen(world, "g9", "alone")).await;
    let shown = world.get(&format!("{QUEUE_LIST}/g1/w1")).await.expect(200);
    assert_snapshot!(format!("{shown:#}"), @r#"
    {
      "capacity": 1,
      "expires": "2026-09-22T14:13:20.000Z",
      "firstClaim": "2026-09-20T14:13:20.000Z",
      "lastDateActive": "2026-09-21T14:12:20.000Z",
      "launchConfigId": "lc-1",
      "providerId": "google",
      "provisionerId": "pp",
      "quarantineDetails": [],
      "recentTasks": [
        {
          "runId": 1,
          "taskId": "AAAAAAAAQACAAAAAAAAAAA"
        },
        {
          "runId": 1,
          "taskId": "BAAAAAAAQACAAAAAAAAAAA"
        }
      ],
      "state": "running",
      "workerGroup": "g1",
      "workerId": "w1",
      "workerPoolId": "pp/ee",
      "workerType": "ee"
    }
    "#);
    let shown = world
        .get(&format!("{QUEUE_LIST}/g9/alone"))
        .await
        .expect(200);
    assert_eq!(
        (&shown["state"], &shown["capacity"], &shown["providerId"]),
        (&json!("standalone"), &json!(0), &json!("none"))
    );
});

on_sqlite_first!(
    a_worker_that_the_queue_does_not_know_is_not_found,
    |world| {
        populate(world).await;
        let text = "Worker with workerId `w1`, workerGroup `g1`,worker-type `ee` and provisioner `pp` \
                not found. Are you sure it was created?";
        world
            .get(&format!("{QUEUE_LIST}/g1/w1"))
            .await
            .refused(404, "ResourceNotFound", text);
        let old = QueueWorker {
            expires: world.now().plus_millis(-1),
            ..seen(world, "g1", "w1")
        };
        note(world, old.clone()).await;
        world
            .get(&format!("{QUEUE_LIST}/g1/w1"))
            .await
            .refused(404, "ResourceNotFound", text);
        // A quarantine keeps it from being deleted.
        let quarantine_until = Some(world.now().plus_millis(1));
        note(
            world,
            QueueWorker {
                quarantine_until,
                ..old
            },
        )
        .await;
        world.get(&format!("{QUEUE_LIST}/g1/w1")).await.expect(200);
    }
);

on_both!(quarantine_is_shown_and_filtered_by, |world| {
    populate(world).await;
    note(world, seen(world, "g1", "w1")).await;
    let past = world.now().plus_millis(-1);
    note(
        world,
        QueueWorker {
            quarantine_until: Some(past),
            ..seen(world, "g1", "w2")
        },
    )
    .await;
    let until = world.now().plus_millis(DAY_MS);
    let entry = QuarantineEntry {
        updated_at: world.now().to_string(),
        client_id: "admin".to_owned(),
        quarantine_until: until.to_string(),
        quarantine_info: "odd noises".to_owned(),
    };
    let quarantined = QueueWorker {
        quarantine_until: Some(until),
        quarantine_details: vec![entry],
        ..seen(world, "g2", "w3")
    };
    note(world, quarantined).await;
    let shown = world.get(&format!("{QUEUE_LIST}/g2/w3")).await.expect(200);
    assert_eq!(shown["quarantineUntil"], until.to_string());
    assert_eq!(
        shown["quarantineDetails"][0]["quarantineInfo"],
        "odd noises"
    );
    for (query, expected) in [
        ("", vec!["w1", "w2", "w3"]),
        ("?quarantined=true", vec!["w3"]),
        ("?quarantined=false", vec!["w1", "w2", "w3"]),
    ] {
        let listed = world.get(&format!("{QUEUE_LIST}{query}")).await.expect(200);
        assert_eq!(ids(&listed), expected, "{query}");
    }
});

on_both!(the_queues_workers_are_filtered_by_our_data, |world| {
    populate(world).await;
    for (group, id) in [("g1", "w1"), ("g1", "w2"), ("g2", "w3"), ("g9", "alone")] {
        note(world, seen(world, group, id)).await;
    }
    let listed = world.get(QUEUE_LIST).await.expect(200);
    assert_eq!(ids(&listed), ["w1", "w2", "w3", "alone"]);
    assert_snapshot!(format!("{:#}", listed["workers"][0]), @r#"
    {
      "capacity": 1,
      "firstClaim": "2026-09-20T14:13:20.000Z",
      "lastDateActive": "2026-09-21T14:12:20.000Z",
      "latestTask": {
        "runId": 1,
        "taskId": "BAAAAAAAQACAAAAAAAAAAA"
      },
      "launchConfigId": "lc-1",
      "providerId": "google",
      "state": "running",
      "workerGroup": "g1",
      "workerId": "w1",
      "workerPoolId": "pp/ee"
    }
    "#);
    assert_snapshot!(format!("{:#}", listed["workers"][3]), @r#"
    {
      "capacity": 0,
      "firstClaim": "2026-09-20T14:13:20.000Z",
      "lastDateActive": "2026-09-21T14:12:20.000Z",
      "latestTask": {
        "runId": 1,
        "taskId": "BAAAAAAAQACAAAAAAAAAAA"
      },
      "providerId": "none",
      "state": "standalone",
      "workerGroup": "g9",
      "workerId": "alone",
      "workerPoolId": "pp/ee"
    }
    "#);
    for (query, expected) in [
        ("workerState=running", vec!["w1", "w3"]),
        ("launchConfigId=lc-1", vec!["w1", "w2"]),
        ("launchConfigId=lc-1&workerState=stopped", vec!["w2"]),
    ] {
        let listed = world
            .get(&format!("{QUEUE_LIST}?{query}"))
            .await
            .expect(200);
        assert_eq!(ids(&listed), expected, "{query}");
    }
});

on_sqlite_first!(workers_of_an_invalid_pool_are_an_empty_list, |world| {
    let path = "/provisioners/no%20pool/worker-types/UPPER/workers";
    assert_eq!(world.get(path).await.expect(200), json!({"workers": []}));
    let answer = world.get(&format!("{path}/g/w")).await;
    answer.refused_with(404, "ResourceNotFound", "Are you sure it was created?");
});
