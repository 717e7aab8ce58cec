//! Workers claim tasks, keep their claims, and report results.

use domain::worker::{StoredWorker, Worker, WorkerState};
use http::Method;
use serde_json::{Value, json};

use crate::ask::Who;
use crate::database::{assert_snapshot, on_both, on_sqlite_first};
use crate::queue_samples::{HOUR_MS, task_id};
use crate::samples::{key, worker};
use crate::world::World;

fn run(number: u32, run_id: u32, what: &str) -> String {
    format!("queue:/task/{}/runs/{run_id}/{what}", task_id(number))
}

fn me(worker: &str) -> Value {
    json!({"workerGroup": "g", "workerId": worker})
}

async fn quarantine(world: &World, worker: &str) {
    let path = format!("queue:/provisioners/pp/worker-types/ee/workers/g/{worker}");
    let body = json!({"quarantineUntil": world.now().plus_millis(HOUR_MS).to_string()});
    world.put(&path, body).await.expect(200);
}

on_sqlite_first!(a_claim_has_all_that_a_worker_needs, |world| {
    world
        .created(1, json!({"scopes": ["secret:x"], "tags": {"a": "b"}}))
        .await;
    world.events().await;
    let mut claim = world.claim("w", 1).await.remove(0);
    let certificate = claim["credentials"]["certificate"].take();
    let certificate: Value = serde_json::from_str(certificate.as_str().unwrap()).unwrap();
    claim["credentials"]["accessToken"] = json!("[token]");
    claim["task"] = json!("[task]");
    assert_snapshot!(format!("{claim:#}"), @r#"
    {
      "credentials": {
        "accessToken": "[token]",
        "certificate": null,
        "clientId": "task-client/00000001QACAAAAAAAAAAA/0/on/g/w/until/1790001200"
      },
      "runId": 0,
      "status": {
        "deadline": "2026-09-21T15:13:20.000Z",
        "expires": "2026-09-22T14:13:20.000Z",
        "priority": "lowest",
        "projectId": "none",
        "provisionerId": "pp",
        "retriesLeft": 5,
        "runs": [
          {
            "reasonCreated": "scheduled",
            "runId": 0,
            "scheduled": "2026-09-21T14:13:20.000Z",
            "started": "2026-09-21T14:13:20.000Z",
            "state": "running",
            "takenUntil": "2026-09-21T14:33:20.000Z",
            "workerGroup": "g",
            "workerId": "w"
          }
        ],
        "schedulerId": "-",
        "state": "running",
        "taskGroupId": "00000001QACAAAAAAAAAAA",
        "taskId": "00000001QACAAAAAAAAAAA",
        "taskQueueId": "pp/ee",
        "workerType": "ee"
      },
      "takenUntil": "2026-09-21T14:33:20.000Z",
      "task": "[task]",
      "workerGroup": "g",
      "workerId": "w"
    }
    "#);
    assert_eq!(certificate["issuer"], "static/taskcluster/queue");
    // In the past, for clocks that are behind or are set back.
    let start = certificate["start"].as_i64().unwrap();
    assert_eq!(world.now().as_millis() - start, 495 * 60_000);
    assert_eq!(certificate["expiry"], world.now().as_millis() + 1_200_000);
    let id = task_id(1);
    assert_eq!(
        certificate["scopes"],
        json!([
            format!("queue:reclaim-task:{id}/0"),
            format!("queue:resolve-task:{id}/0"),
            format!("queue:create-artifact:{id}/0"),
            "secret:x",
        ])
    );
    let told = world
        .told()
        .await
        .replace(&claim["status"].to_string(), "[status]");
    assert_snapshot!(told, @r#"task-running primary.00000001QACAAAAAAAAAAA.0.g.w.pp.ee.-.00000001QACAAAAAAAAAAA._ {"runId":0,"status":[status],"takenUntil":"2026-09-21T14:33:20.000Z","task":{"tags":{"a":"b"}},"version":1,"workerGroup":"g","workerId":"w"}"#);
});

on_sqlite_first!(
    the_credentials_of_a_run_have_the_scopes_of_the_run_and_the_task,
    |world| {
        world
            .created(1, json!({"scopes": ["queue:get-task:*"]}))
            .await;
        world.created(2, json!({})).await;
        let claims = world.claim("w", 2).await;
        let first = Who::registered(&claims[0]);
        world
            .get(&format!("queue:/task/{}", task_id(2)))
            .by(&first)
            .await
            .expect(200);
        let other = world
            .ask(Method::POST, &run(2, 0, "reclaim"))
            .by(&first)
            .await;
        other.refused_with(403, "InsufficientScopes", "queue:reclaim-task:00000002");
        let second = Who::registered(&claims[1]);
        let refused = world
            .get(&format!("queue:/task/{}", task_id(2)))
            .by(&second)
            .await;
        refused.refused_with(403, "InsufficientScopes", "queue:get-task:");
    }
);

on_both!(several_tasks_are_claimed_at_once_in_order, |world| {
    for (number, priority) in [(1, "low"), (2, "high"), (3, "high"), (4, "lowest")] {
        world.created(number, json!({"priority": priority})).await;
    }
    let claimed = world.claim("w", 3).await;
    let ids: Vec<&Value> = claimed
        .iter()
        .map(|claim| &claim["status"]["taskId"])
        .collect();
    assert_eq!(
        ids,
        [&json!(task_id(2)), &json!(task_id(3)), &json!(task_id(1))]
    );
    assert_eq!(world.claim("v", 32).await.len(), 1);
    let bad = json!({"workerGroup": "g", "workerId": "w", "tasks": 33});
    world
        .post("queue:/claim-work/pp%2Fee", bad)
        .await
        .refused_with(400, "InputValidationError", "data/tasks must be <= 32");
});

on_both!(a_claim_is_seen_among_the_workers_of_the_queue, |world| {
    world.running(1, "w").await;
    world.clock.advance_ms(90_000);
    world.running(2, "w").await;
    let path = "queue:/provisioners/pp/worker-types/ee/workers/g/w";
    let seen = world.get(path).await.expect(200);
    assert_eq!(seen["firstClaim"], "2026-09-21T14:13:20.000Z");
    assert_eq!(seen["lastDateActive"], "2026-09-21T14:14:50.000Z");
    assert_eq!(
        seen["recentTasks"],
        json!([{"taskId": task_id(1), "runId": 0}, {"taskId": task_id(2), "runId": 0}])
    );
    let queues = world.get("queue:/task-queues").await.expect(200);
    assert_eq!(queues["taskQueues"][0]["taskQueueId"], "pp/ee");
});

on_both!(only_the_latest_tasks_of_a_worker_are_remembered, |world| {
    for number in 1..=25 {
        world.created(number, json!({})).await;
    }
    assert_eq!(world.claim("w", 25).await.len(), 25);
    let path = "queue:/provisioners/pp/worker-types/ee/workers/g/w";
    let seen = world.get(path).await.expect(200);
    let recent = seen["recentTasks"].as_array().unwrap();
    assert_eq!(recent.len(), 20);
    assert_eq!(recent[19]["taskId"], task_id(25));
});

on_both!(a_worker_keeps_its_run_by_reclaiming_it, |world| {
    let claim = world.running(1, "w").await;
    world.events().await;
    world.clock.advance_ms(600_000);
    let kept = world.report(&claim, "reclaim", json!({})).await.expect(200);
    assert_eq!(kept["takenUntil"], "2026-09-21T14:43:20.000Z");
    assert_eq!(kept["status"]["runs"][0]["takenUntil"], kept["takenUntil"]);
    assert!(kept.get("task").is_none());
    assert_eq!(world.told().await, "");
    // The new credentials last as long as the claim.
    world.clock.advance_ms(1_100_000);
    let kept = world
        .ask(Method::POST, &run(1, 0, "reclaim"))
        .by(&Who::registered(&kept));
    kept.await.expect(200);
    let old = world.report(&claim, "reclaim", json!({})).await;
    assert_eq!(old.status, 401, "{}", old.text);
    for (path, status, code, text) in [
        (
            run(9, 0, "reclaim"),
            404,
            "ResourceNotFound",
            "There is no task 00000009",
        ),
        (
            run(1, 1, "reclaim"),
            404,
            "ResourceNotFound",
            "has no run 1",
        ),
        (
            run(1, 0, "reclaim").replace("/0/", "/99999999999/"),
            404,
            "ResourceNotFound",
            "No task has a run",
        ),
        (
            run(1, 0, "reclaim").replace("/0/", "/x/"),
            400,
            "InvalidRequestArguments",
            "runId",
        ),
    ] {
        world
            .ask(Method::POST, &path)
            .await
            .refused_with(status, code, text);
    }
    world.clock.advance_ms(HOUR_MS);
    world
        .ask(Method::POST, &run(1, 0, "reclaim"))
        .await
        .refused_with(409, "RequestConflict", "which has passed");
});

on_both!(one_task_is_claimed_by_name_once, |world| {
    world.created(1, json!({})).await;
    let path = run(1, 0, "claim");
    let claim = world.post(&path, me("w")).await.expect(200);
    assert_eq!(claim["task"]["taskQueueId"], "pp/ee");
    world.events().await;
    world.post(&path, me("w")).await.expect(200);
    assert_eq!(world.told().await, "");
    world.post(&path, me("v")).await.refused(
        409,
        "RequestConflict",
        "Run 0 of task 00000001QACAAAAAAAAAAA was claimed by another worker",
    );
    world.post(&run(9, 0, "claim"), me("w")).await.refused_with(
        404,
        "ResourceNotFound",
        "no task 00000009",
    );
    world.post(&run(1, 3, "claim"), me("w")).await.refused_with(
        404,
        "ResourceNotFound",
        "has no run 3",
    );
    world
        .report(&claim, "completed", json!({}))
        .await
        .expect(200);
    world
        .post(&path, me("w"))
        .await
        .refused_with(409, "RequestConflict", "is completed");
    world.created(2, json!({})).await;
    quarantine(world, "w").await;
    world.post(&run(2, 0, "claim"), me("w")).await.refused(
        409,
        "RequestConflict",
        "Worker pp/ee/g/w is quarantined, so it gets no work",
    );
    world.clock.advance_ms(HOUR_MS + 1);
    world.post(&run(2, 0, "claim"), me("v")).await.refused_with(
        409,
        "RequestConflict",
        "which has passed",
    );
});

on_both!(
    a_result_is_reported_once_and_again_without_effect,
    |world| {
        let one = world.running(1, "w").await;
        world.events().await;
        world.clock.advance_ms(5_000);
        let done = world.report(&one, "completed", json!({})).await.expect(200);
        assert_eq!(done["status"]["state"], "completed");
        assert_eq!(
            done["status"]["runs"][0]["resolved"],
            "2026-09-21T14:13:25.000Z"
        );
        assert_eq!(
            world.news().await,
            ["task-completed 1/0", "task-group-resolved"]
        );
        assert_eq!(
            world.report(&one, "completed", json!({})).await.expect(200),
            done
        );
        assert_eq!(world.told().await, "");
        world.report(&one, "failed", json!({})).await.refused_with(
            409,
            "RequestConflict",
            "Run 0 of task 00000001QACAAAAAAAAAAA is completed",
        );
        let two = world.running(2, "w").await;
        // As old workers report it.
        let failed = world
            .report(&two, "completed", json!({"success": false}))
            .await
            .expect(200);
        assert_eq!(failed["status"]["state"], "failed");
        let three = world.running(3, "w").await;
        world.events().await;
        world.report(&three, "failed", json!({})).await.expect(200);
        assert_eq!(world.news().await[0], "task-failed 3/0");
        world.created(4, json!({})).await;
        for what in ["completed", "failed"] {
            world
                .ask(Method::POST, &run(4, 0, what))
                .await
                .refused_with(409, "RequestConflict", "is pending");
            world
                .ask(Method::POST, &run(4, 1, what))
                .await
                .refused_with(404, "ResourceNotFound", "has no run 1");
            world
                .ask(Method::POST, &run(9, 0, what))
                .await
                .refused_with(404, "ResourceNotFound", "no task");
        }
    }
);

on_both!(exceptions_are_tried_again_or_not_by_their_reason, |world| {
    for (number, reason, next) in [
        (1, "worker-shutdown", Some("retry")),
        (2, "intermittent-task", Some("task-retry")),
        (3, "malformed-payload", None),
        (4, "resource-unavailable", None),
        (5, "internal-error", None),
    ] {
        let claim = world.running(number, "w").await;
        world.events().await;
        let body = json!({"reason": reason});
        let status = world
            .report(&claim, "exception", body.clone())
            .await
            .expect(200)["status"]
            .clone();
        assert_eq!(status["runs"][0]["reasonResolved"], reason);
        assert_eq!(status["runs"][1]["reasonCreated"].as_str(), next);
        let mut news = vec![format!("task-exception {number}/0")];
        match next {
            Some(_) => {
                assert_eq!(
                    (&status["state"], &status["retriesLeft"]),
                    (&json!("pending"), &json!(4))
                );
                news.push(format!("task-pending {number}/1"));
                world.about_task(number, "cancel").await.expect(200);
                assert_eq!(world.news().await[..2], news);
            }
            None => {
                assert_eq!(status["state"], "exception");
                news.push("task-group-resolved".to_owned());
                assert_eq!(world.news().await, news);
            }
        }
        world.report(&claim, "exception", body).await.expect(200);
        let other =
            json!({"reason": if number == 5 { "malformed-payload" } else { "internal-error" }});
        if number != 5 && reason != "internal-error" {
            world.report(&claim, "exception", other).await.refused_with(
                409,
                "RequestConflict",
                "is exception",
            );
        }
    }
    let claim = world.running(6, "w").await;
    world
        .report(&claim, "exception", json!({"reason": "canceled"}))
        .await
        .refused_with(400, "InputValidationError", "data/reason");
    world
        .report(&claim, "exception", json!({}))
        .await
        .refused_with(
            400,
            "InputValidationError",
            "must have required property 'reason'",
        );
});

on_both!(a_task_is_tried_again_as_often_as_it_has_retries, |world| {
    world.created(1, json!({"retries": 2})).await;
    for left in [1, 0] {
        let claim = world.claim("w", 1).await.remove(0);
        let lost = json!({"reason": "worker-shutdown"});
        let status = world.report(&claim, "exception", lost).await.expect(200)["status"].clone();
        assert_eq!(
            (&status["state"], &status["retriesLeft"]),
            (&json!("pending"), &json!(left))
        );
    }
    let claim = world.claim("w", 1).await.remove(0);
    let lost = json!({"reason": "intermittent-task"});
    let status = world.report(&claim, "exception", lost).await.expect(200)["status"].clone();
    assert_eq!(status["state"], "exception");
    assert_eq!(status["runs"].as_array().unwrap().len(), 3);
});

on_both!(when_a_worker_became_idle_is_remembered, |world| {
    let claim = world.running(1, "w").await;
    world.clock.advance_ms(7_000);
    world
        .report(&claim, "completed", json!({}))
        .await
        .expect(200);
    let key = key("pp/ee", "g", "w");
    let seen = world
        .read(move |tx| store::queue_workers::get(tx, &key))
        .await
        .unwrap();
    assert_eq!(seen.last_task_ended, Some(world.now()));
});

on_both!(a_worker_that_is_removed_gets_no_tasks, |world| {
    world.created(1, json!({})).await;
    for (state, why) in [
        (WorkerState::Stopping, "is being removed"),
        (WorkerState::Stopped, "has been removed"),
    ] {
        let name = state.as_str();
        let worker = StoredWorker {
            state,
            ..worker("pp/ee", "g", name).into_stored()
        };
        world.insert(Worker::from_stored(worker)).await;
        let text = format!("Worker pp/ee/g/{name} is {name} and gets no tasks: it {why}");
        let asking = world.asking_for_work(name, 1);
        asking.await.refused_with(409, "RequestConflict", &text);
        let claim = world.post(&run(1, 0, "claim"), me(name));
        claim.await.refused_with(409, "RequestConflict", &text);
    }
    // Also while there is nothing to claim.
    assert_eq!(world.claim("unknown", 1).await.len(), 1);
    let asking = world.asking_for_work("stopped", 1);
    asking
        .await
        .refused_with(409, "RequestConflict", "has been removed");
});
