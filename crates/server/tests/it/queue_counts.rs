//! Counts and lists of pending and claimed runs.

use serde_json::{Value, json};

use crate::database::{assert_snapshot, on_both};
use crate::queue_samples::{HOUR_MS, task_id};

fn ids(reply: &Value) -> Vec<&str> {
    let tasks = reply["tasks"].as_array().unwrap().iter();
    tasks.map(|task| task["taskId"].as_str().unwrap()).collect()
}

on_both!(pending_and_claimed_runs_are_counted, |world| {
    world.running(1, "w").await;
    for number in 2..=4 {
        world.created(number, json!({})).await;
    }
    for path in ["queue:/pending/pp%2Fee", "queue:/pending/pp/ee"] {
        let pending = world.get(path).await.expect(200);
        assert_snapshot!(pending, @r#"{"pendingTasks":3,"provisionerId":"pp","taskQueueId":"pp/ee","workerType":"ee"}"#);
    }
    let counts = world
        .get("queue:/task-queues/pp/ee/counts")
        .await
        .expect(200);
    assert_snapshot!(counts, @r#"{"claimedTasks":1,"pendingTasks":3,"provisionerId":"pp","taskQueueId":"pp/ee","workerType":"ee"}"#);
    let nothing = world
        .get("queue:/task-queues/no%2Fsuch/counts")
        .await
        .expect(200);
    assert_snapshot!(nothing, @r#"{"claimedTasks":0,"pendingTasks":0,"provisionerId":"no","taskQueueId":"no/such","workerType":"such"}"#);
    // An expired claim and a task past its deadline do not count.
    world.clock.advance_ms(HOUR_MS + 1);
    let counts = world
        .get("queue:/task-queues/pp/ee/counts")
        .await
        .expect(200);
    assert_eq!(
        (&counts["pendingTasks"], &counts["claimedTasks"]),
        (&json!(0), &json!(0))
    );
});

on_both!(many_queues_are_counted_at_once, |world| {
    world.running(1, "w").await;
    world.created(2, json!({"taskQueueId": "pp/other"})).await;
    let asked = json!({"taskQueueIds": ["pp/other", "no/such", "pp/ee"]});
    let reply = world
        .post("queue:/task-queues/counts", asked.clone())
        .await
        .expect(200);
    let counts: Vec<_> = reply["taskQueueCounts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|counts| {
            (
                counts["taskQueueId"].as_str().unwrap(),
                counts["pendingTasks"].as_u64().unwrap(),
                counts["claimedTasks"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        counts,
        [("pp/other", 1, 0), ("no/such", 0, 0), ("pp/ee", 0, 1)]
    );
    let held = ["queue:pending-count:*", "queue:claimed-count:pp/*"];
    let who = world.root().temporary(None, &held, world.now());
    world
        .post("queue:/task-queues/counts", asked)
        .by(&who)
        .await
        .refused_with(403, "InsufficientScopes", "queue:claimed-count:no/such");
    for (asked, problem) in [
        (
            json!({"taskQueueIds": ["a/b", "a/b"]}),
            "must NOT have duplicate items",
        ),
        (json!({"taskQueueIds": ["a"]}), "must match pattern"),
        (json!({}), "must have required property 'taskQueueIds'"),
        (
            json!({"taskQueueIds": (0..1_001).map(|n| format!("a/b{n}")).collect::<Vec<_>>()}),
            "must NOT have more than 1000 items",
        ),
    ] {
        world
            .post("queue:/task-queues/counts", asked)
            .await
            .refused_with(400, "InputValidationError", problem);
    }
});

on_both!(pending_runs_are_listed_in_the_order_of_claims, |world| {
    for (number, priority) in [(1, "lowest"), (2, "high"), (3, "lowest"), (4, "high")] {
        world.created(number, json!({"priority": priority})).await;
    }
    let path = "queue:/task-queues/pp%2Fee/pending";
    let page = world.get(&format!("{path}?limit=3")).await.expect(200);
    assert_eq!(ids(&page), [task_id(2), task_id(4), task_id(1)]);
    assert_eq!(page["tasks"][0]["inserted"], "2026-09-21T14:13:20.000Z");
    assert_eq!(page["tasks"][0]["task"]["priority"], "high");
    let token = page["continuationToken"].as_str().unwrap();
    let rest = world
        .get(&format!("{path}?limit=3&continuationToken={token}"))
        .await
        .expect(200);
    assert_eq!(ids(&rest), [task_id(3)]);
    assert!(rest.get("continuationToken").is_none());
    world
        .get(&format!("{path}?continuationToken=!"))
        .await
        .refused(400, "InputError", "Invalid continuation token");
});

on_both!(claimed_runs_are_listed_the_earliest_claim_first, |world| {
    for (number, worker) in [(3, "u"), (1, "v"), (2, "w")] {
        world.running(number, worker).await;
        world.clock.advance_ms(1_000);
    }
    let path = "queue:/task-queues/pp%2Fee/claimed";
    let page = world.get(&format!("{path}?limit=2")).await.expect(200);
    assert_eq!(ids(&page), [task_id(3), task_id(1)]);
    let first = &page["tasks"][0];
    assert_eq!(
        (&first["workerGroup"], &first["workerId"]),
        (&json!("g"), &json!("u"))
    );
    assert_eq!(
        (&first["runId"], &first["claimed"]),
        (&json!(0), &json!("2026-09-21T14:13:20.000Z"))
    );
    let token = page["continuationToken"].as_str().unwrap();
    let rest = world
        .get(&format!("{path}?continuationToken={token}"))
        .await
        .expect(200);
    assert_eq!(ids(&rest), [task_id(2)]);
});
