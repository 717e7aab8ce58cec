//! The queue's view of workers: listed, shown, quarantined, declared.

use domain::queue_worker::{QueueWorker, TaskRun};
use serde_json::{Value, json};

use crate::database::on_both;
use crate::runs::TASK;
use crate::samples::{DAY_MS, key};
use crate::world::World;

const WORKERS: &str = "queue:/provisioners/pp/worker-types/ee/workers";
const WORKER: &str = "queue:/provisioners/pp/worker-types/ee/workers/g/w1";

impl World {
    /// A worker that asked for work, and got some.
    async fn seen(&self, id: &str) {
        let now = self.now();
        let mut worker = QueueWorker::new(key("pp/ee", "g", id), now, now.plus_millis(DAY_MS));
        worker.last_date_active = Some(now);
        worker.recent_tasks = vec![TaskRun {
            task_id: TASK.to_owned(),
            run_id: 3,
        }];
        self.write(move |tx| store::queue_workers::upsert(tx, &worker))
            .await;
    }

    async fn quarantine(&self, id: &str, until: &str) -> Value {
        let body = json!({"quarantineUntil": until, "quarantineInfo": "too hot"});
        self.put(&format!("{WORKERS}/g/{id}"), body)
            .await
            .expect(200)
    }
}

fn ids(list: &Value) -> Vec<&str> {
    let workers = list["workers"].as_array().unwrap().iter();
    workers
        .map(|worker| worker["workerId"].as_str().unwrap())
        .collect()
}

on_both!(a_worker_is_shown_as_the_queue_knows_it, |world| {
    let text = "Worker with workerId `w1`, workerGroup `g`, worker-type `ee` and provisionerId `pp` \
                not found. Are you sure it was created?";
    world
        .get(WORKER)
        .await
        .refused(404, "ResourceNotFound", text);
    world.seen("w1").await;
    let shown = world.get(WORKER).await.expect(200);
    let expected = json!({
        "provisionerId": "pp", "workerType": "ee", "taskQueueId": "pp/ee",
        "workerGroup": "g", "workerId": "w1",
        "firstClaim": "2026-09-21T14:13:20.000Z",
        "lastDateActive": "2026-09-21T14:13:20.000Z",
        "expires": "2026-09-22T14:13:20.000Z",
        "recentTasks": [{"taskId": TASK, "runId": 3}],
        "quarantineUntil": "2016-09-23T14:13:20.000Z",
        "quarantineDetails": [],
    });
    assert_eq!(shown, expected);
    world.clock.advance_ms(DAY_MS + 1);
    assert_eq!(world.get(WORKER).await.status, 404);
});

on_both!(
    workers_are_listed_by_whether_they_are_quarantined,
    |world| {
        for id in ["w3", "w1", "w2"] {
            world.seen(id).await;
        }
        world.quarantine("w2", "2026-09-30T00:00:00.000Z").await;
        world.quarantine("w3", "2026-09-20T00:00:00.000Z").await;
        let list = world.get(WORKERS).await.expect(200);
        assert_eq!(ids(&list), ["w1", "w2", "w3"]);
        let expected = json!({"workerGroup": "g", "workerId": "w2",
        "firstClaim": "2026-09-21T14:13:20.000Z", "lastDateActive": "2026-09-21T14:13:20.000Z",
        "latestTask": {"taskId": TASK, "runId": 3},
        "quarantineUntil": "2026-09-30T00:00:00.000Z"});
        assert_eq!(list["workers"][1], expected);
        assert_eq!(list["workers"][2].get("quarantineUntil"), None);
        let held = world
            .get(&format!("{WORKERS}?quarantined=true"))
            .await
            .expect(200);
        assert_eq!(ids(&held), ["w2"]);
        let free = world
            .get(&format!("{WORKERS}?quarantined=false"))
            .await
            .expect(200);
        assert_eq!(ids(&free), ["w1", "w3"]);
        let bad = world.get(&format!("{WORKERS}?quarantined=perhaps")).await;
        bad.refused_with(400, "InvalidRequestArguments", "quarantined");
        let page = world.get(&format!("{WORKERS}?limit=2")).await.expect(200);
        assert_eq!(ids(&page), ["w1", "w2"]);
        let token = page["continuationToken"].as_str().unwrap();
        let next = format!("{WORKERS}?limit=2&continuationToken={token}");
        assert_eq!(ids(&world.get(&next).await.expect(200)), ["w3"]);
        // An invalid queue has no workers, and an expired worker is deleted unless it is
        // quarantined.
        let none = world
            .get("queue:/provisioners/pp/worker-types/E_E/workers")
            .await
            .expect(200);
        assert_eq!(none, json!({"workers": []}));
        world.clock.advance_ms(DAY_MS + 1);
        assert_eq!(ids(&world.get(WORKERS).await.expect(200)), ["w2"]);
    }
);

on_both!(a_quarantine_is_kept_with_who_and_why, |world| {
    let body = json!({"quarantineUntil": "2026-09-30T00:00:00.000Z"});
    let unknown = world.put(WORKER, body.clone()).await;
    unknown.refused_with(404, "ResourceNotFound", "Are you sure it was created?");
    let no_queue = WORKER.replace("/ee/", "/E_E/");
    assert_eq!(world.put(&no_queue, body.clone()).await.status, 404);
    world.seen("w1").await;
    world.clock.advance_ms(DAY_MS - 1_000);
    world.app.engine.wakeups.take_pools();
    let held = world.put(WORKER, body).await.expect(200);
    assert_eq!(held["quarantineUntil"], "2026-09-30T00:00:00.000Z");
    // At least a day from now on.
    assert_eq!(held["expires"], "2026-09-23T14:13:19.000Z");
    let woken: Vec<String> = world
        .app
        .engine
        .wakeups
        .take_pools()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(woken, ["pp/ee"]);
    let free = world.quarantine("w1", "2026-09-01T00:00:00.000Z").await;
    let details = json!([
        {"clientId": "static/root", "updatedAt": "2026-09-22T14:13:19.000Z",
            "quarantineUntil": "2026-09-30T00:00:00.000Z", "quarantineInfo": "[unspecified]"},
        {"clientId": "static/root", "updatedAt": "2026-09-22T14:13:19.000Z",
            "quarantineUntil": "2026-09-01T00:00:00.000Z", "quarantineInfo": "too hot"},
    ]);
    assert_eq!(free["quarantineDetails"], details);
    assert_eq!(world.get(WORKER).await.expect(200), free);
    let long = json!({"quarantineUntil": "2026-09-30T00:00:00.000Z",
        "quarantineInfo": "x".repeat(4_001)});
    world
        .put(WORKER, long)
        .await
        .refused_with(400, "InputValidationError", "quarantineInfo");
    let bad = json!({"quarantineUntil": "tomorrow"});
    world
        .put(WORKER, bad)
        .await
        .refused_with(400, "InputValidationError", "date-time");
    let history = world
        .get("auth:/audit/worker/pp%2Fee%2Fg%2Fw1")
        .await
        .expect(200);
    let actions: Vec<&Value> = history["auditHistory"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| &entry["actionType"])
        .collect();
    assert_eq!(actions, ["quarantined", "quarantined"]);
});

on_both!(a_worker_can_be_declared_before_it_asks, |world| {
    let declared = "queue:/provisioners/pp/worker-types/ee/g/w1";
    let body = |expires: &str| json!({ "expires": expires });
    let made = world
        .put(declared, body("2026-09-25T00:00:00.000Z"))
        .await
        .expect(200);
    assert_eq!(made["expires"], "2026-09-25T00:00:00.000Z");
    assert_eq!(made["firstClaim"], "2026-09-21T14:13:20.000Z");
    assert_eq!(made.get("lastDateActive"), None);
    assert_eq!(world.get(WORKER).await.expect(200), made);
    // Its queue is known, too, and its expiration never moves to an earlier time.
    world.get("queue:/task-queues/pp%2Fee").await.expect(200);
    let again = world
        .put(declared, body("2026-09-22T00:00:00.000Z"))
        .await
        .expect(200);
    assert_eq!(again, made);
    let later = world
        .put(declared, body("2026-09-26T00:00:00.000Z"))
        .await
        .expect(200);
    assert_eq!(later["expires"], "2026-09-26T00:00:00.000Z");
    world
        .put(declared, json!({}))
        .await
        .refused_with(400, "InputValidationError", "expires");
    let bad = world.put(
        "queue:/provisioners/pp/worker-types/E_E/g/w1",
        body("2026-09-25T00:00:00Z"),
    );
    assert_eq!(bad.await.status, 400);
});
