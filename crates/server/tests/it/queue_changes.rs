//! Changes of tasks and groups by people: schedule, rerun, cancel, seal, change the priority.

use http::Method;
use serde_json::json;

use crate::database::{assert_snapshot, on_both, on_sqlite_first};
use crate::queue_samples::{HOUR_MS, task_id};
use crate::world::World;

fn group(world: &World, what: &str) -> crate::ask::Ask {
    let path = format!("queue:/task-group/{}/{what}", task_id(1));
    world.ask(Method::POST, path.trim_end_matches('/'))
}

/// A task that waits for task 1.
async fn waiting(world: &World, number: u32) {
    let changes = json!({"dependencies": [task_id(1)], "taskGroupId": task_id(1)});
    let status = world.created(number, changes).await;
    assert_eq!(status["state"], "unscheduled");
}

on_sqlite_first!(an_unscheduled_task_can_be_scheduled_by_hand, |world| {
    world.created(1, json!({})).await;
    waiting(world, 2).await;
    world.events().await;
    let status = world.about_task(2, "schedule").await.expect(200)["status"].clone();
    assert_eq!(status["state"], "pending");
    assert_eq!(world.news().await, ["task-pending 2/0"]);
    world.about_task(2, "schedule").await.expect(200);
    assert_eq!(world.told().await, "");
    world
        .about_task(9, "schedule")
        .await
        .refused_with(404, "ResourceNotFound", "no task 0000");
});

on_both!(a_task_is_cancelled_wherever_it_stands, |world| {
    world.created(1, json!({})).await;
    waiting(world, 2).await;
    for number in [1, 2] {
        let status = world.about_task(number, "cancel").await.expect(200)["status"].clone();
        let runs = status["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 1);
        assert_eq!(runs[0]["reasonResolved"], "canceled");
    }
    world.events().await;
    world.about_task(1, "cancel").await.expect(200);
    assert_eq!(world.told().await, "");
    // The worker learns it when it reclaims.
    let claim = world.running(3, "w").await;
    world.about_task(3, "cancel").await.expect(200);
    world
        .report(&claim, "reclaim", json!({}))
        .await
        .refused_with(
            409,
            "RequestConflict",
            "Run 0 of task 00000003QACAAAAAAAAAAA is exception, which does not allow this",
        );
    let counts = world
        .get("queue:/task-queues/pp%2Fee/counts")
        .await
        .expect(200);
    assert_eq!(
        (&counts["pendingTasks"], &counts["claimedTasks"]),
        (&json!(0), &json!(0))
    );
});

on_both!(
    a_resolved_task_runs_again_and_an_open_one_goes_on,
    |world| {
        let claim = world.running(1, "w").await;
        world.about_task(1, "rerun").await.expect(200);
        assert_eq!(world.state(1).await, "running");
        world
            .report(&claim, "completed", json!({}))
            .await
            .expect(200);
        world.events().await;
        let status = world.about_task(1, "rerun").await.expect(200)["status"].clone();
        assert_eq!(status["state"], "pending");
        assert_eq!(status["runs"][1]["reasonCreated"], "rerun");
        assert_eq!(world.news().await, ["task-pending 1/1"]);
    }
);

on_both!(fifty_runs_are_enough, |world| {
    world.created(1, json!({})).await;
    for _ in 1..50 {
        world.about_task(1, "cancel").await.expect(200);
        world.about_task(1, "rerun").await.expect(200);
    }
    world.about_task(1, "cancel").await.expect(200);
    world
        .about_task(1, "rerun")
        .await
        .refused_with(409, "RequestConflict", "has had 50 runs");
});

on_sqlite_first!(after_the_deadline_nothing_is_begun, |world| {
    world.created(1, json!({})).await;
    world.clock.advance_ms(HOUR_MS + 1);
    for what in ["schedule", "rerun", "cancel"] {
        world.about_task(1, what).await.refused_with(
            409,
            "RequestConflict",
            "was to be resolved by 2026-09-21T15:13:20.000Z, which has passed",
        );
    }
});

on_sqlite_first!(each_change_is_allowed_in_three_ways, |world| {
    for (number, verb) in (1..).zip(["schedule", "rerun", "cancel"]) {
        let changes = json!({"schedulerId": "s", "projectId": "p", "taskGroupId": task_id(number)});
        world.created(number, changes).await;
        let id = task_id(number);
        let exact = format!("queue:{verb}-task:s/{id}/{id}");
        let project = format!("queue:{verb}-task-in-project:p");
        let (old, scheduler) = (
            format!("queue:{verb}-task"),
            format!("assume:scheduler-id:s/{id}"),
        );
        for held in [
            vec![exact],
            vec![project],
            vec![old.clone(), scheduler.clone()],
        ] {
            let held: Vec<&str> = held.iter().map(String::as_str).collect();
            let who = world.root().temporary(None, &held, world.now());
            world.about_task(number, verb).by(&who).await.expect(200);
        }
        for held in [old, scheduler] {
            let who = world.root().temporary(None, &[&held], world.now());
            world.about_task(number, verb).by(&who).await.refused_with(
                403,
                "InsufficientScopes",
                "AnyOf",
            );
        }
    }
});

on_both!(a_higher_priority_goes_first_from_then_on, |world| {
    world.created(1, json!({})).await;
    world.created(2, json!({})).await;
    world.events().await;
    let high = json!({"newPriority": "high"});
    let status = world
        .about_task(2, "priority")
        .json(&high)
        .await
        .expect(200)["status"]
        .clone();
    assert_eq!(status["priority"], "high");
    assert_snapshot!(world.told().await.replace(&status.to_string(), "[status]"), @r#"task-priority-changed primary.00000002QACAAAAAAAAAAA._._._.pp.ee.-.00000002QACAAAAAAAAAAA._ {"newPriority":"high","oldPriority":"lowest","status":[status],"version":1}"#);
    world
        .about_task(2, "priority")
        .json(&high)
        .await
        .expect(200);
    assert_eq!(world.told().await, "");
    let claims = world.claim("w", 1).await;
    assert_eq!(claims[0]["status"]["taskId"], task_id(2));
    assert_eq!(claims[0]["task"]["priority"], "high");
    world
        .report(&claims[0], "completed", json!({}))
        .await
        .expect(200);
    world
        .about_task(2, "priority")
        .json(&high)
        .await
        .refused_with(
            409,
            "RequestConflict",
            "is resolved, so its priority does not matter any more",
        );
    let normal = json!({"newPriority": "normal"});
    world
        .about_task(1, "priority")
        .json(&normal)
        .await
        .refused_with(400, "InputValidationError", "data/newPriority");
});

on_sqlite_first!(a_group_is_shown_listed_and_sealed_once, |world| {
    world.created(1, json!({})).await;
    waiting(world, 2).await;
    let path = format!("queue:/task-group/{}", task_id(1));
    let shown = world.get(&path).await.expect(200);
    assert_snapshot!(shown, @r#"{"expires":"2026-09-23T14:13:20.000Z","schedulerId":"-","taskGroupId":"00000001QACAAAAAAAAAAA"}"#);
    let page = world.get(&format!("{path}/list?limit=1")).await.expect(200);
    assert_eq!(page["tasks"][0]["status"]["taskId"], task_id(1));
    let token = page["continuationToken"].as_str().unwrap();
    let rest = format!("{path}/list?limit=1&continuationToken={token}");
    let rest = world.get(&rest).await.expect(200);
    assert_eq!(
        rest["tasks"][0]["task"]["dependencies"],
        json!([task_id(1)])
    );
    assert!(rest.get("continuationToken").is_none());
    world.events().await;
    let sealed = group(world, "seal").await.expect(200);
    assert_eq!(sealed["sealed"], "2026-09-21T14:13:20.000Z");
    world.clock.advance_ms(1_000);
    assert_eq!(group(world, "seal").await.expect(200), sealed);
    assert_snapshot!(world.told().await, @r#"task-group-sealed primary.00000001QACAAAAAAAAAAA.-._ {"expires":"2026-09-23T14:13:20.000Z","schedulerId":"-","sealed":"2026-09-21T14:13:20.000Z","taskGroupId":"00000001QACAAAAAAAAAAA","version":1}"#);
    let missing = format!("queue:/task-group/{}", task_id(7));
    world
        .get(&missing)
        .await
        .refused_with(404, "ResourceNotFound", "no task group 00000007");
});

on_both!(a_sealed_group_is_cancelled_completely, |world| {
    let claim = world.running(1, "w").await;
    for number in 2..=150 {
        let changes = json!({"taskGroupId": task_id(1)});
        world.created(number, changes).await;
    }
    world
        .report(&claim, "completed", json!({}))
        .await
        .expect(200);
    group(world, "cancel")
        .await
        .refused_with(409, "RequestConflict", "is not sealed");
    group(world, "seal").await.expect(200);
    world.events().await;
    let cancelled = group(world, "cancel").await.expect(200);
    assert_eq!(cancelled["taskGroupSize"], 150);
    assert_eq!(cancelled["cancelledCount"], 149);
    assert_eq!(cancelled["taskIds"].as_array().unwrap().len(), 149);
    let news = world.news().await;
    assert_eq!(news.len(), 150);
    assert_eq!(news[149], "task-group-resolved");
    let again = group(world, "cancel").await.expect(200);
    assert_eq!(again["cancelledCount"], 0);
    assert_eq!(world.told().await, "");
});

on_both!(
    the_priority_of_a_group_applies_to_its_unresolved_tasks,
    |world| {
        let claim = world.running(1, "w").await;
        world.created(2, json!({"taskGroupId": task_id(1)})).await;
        world
            .report(&claim, "completed", json!({}))
            .await
            .expect(200);
        world.events().await;
        let high = json!({"newPriority": "high"});
        let changed = group(world, "priority").json(&high).await.expect(200);
        assert_snapshot!(changed, @r#"{"newPriority":"high","schedulerId":"-","taskGroupId":"00000001QACAAAAAAAAAAA","taskIds":["00000002QACAAAAAAAAAAA"],"tasksAffected":1}"#);
        assert_eq!(
            world.news().await,
            ["task-priority-changed 2", "task-group-priority-changed"]
        );
        assert_eq!(world.status(1).await["priority"], "lowest");
    }
);

on_both!(
    the_end_of_a_group_is_published_when_its_last_task_ends_and_again_after_a_rerun,
    |world| {
        let claim = world.running(1, "w").await;
        world.created(2, json!({"taskGroupId": task_id(1)})).await;
        world
            .report(&claim, "completed", json!({}))
            .await
            .expect(200);
        assert!(
            !world
                .news()
                .await
                .contains(&"task-group-resolved".to_owned())
        );
        for _ in 0..2 {
            world.about_task(2, "cancel").await.expect(200);
            assert_eq!(world.news().await.last().unwrap(), "task-group-resolved");
            world.about_task(2, "rerun").await.expect(200);
        }
    }
);
