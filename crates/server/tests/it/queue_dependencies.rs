//! Tasks that wait for others.

use std::sync::Arc;

use serde_json::{Value, json};
use server::background::QueueReleases;
use server::background::driver::BackgroundTask;

use crate::database::on_both;
use crate::queue_samples::{numbered, stored_task, task_id};
use crate::world::World;

async fn waiting(world: &World, number: u32, on: &[u32], requires: &str) -> Value {
    let on: Vec<String> = on.iter().map(|number| task_id(*number)).collect();
    world
        .created(number, json!({"dependencies": on, "requires": requires}))
        .await
}

async fn release(world: &World) -> Value {
    QueueReleases(Arc::clone(&world.app.engine))
        .activate()
        .await
        .unwrap()
}

on_both!(
    a_task_waits_until_all_that_it_depends_on_is_completed,
    |world| {
        let one = world.running(1, "w").await;
        let two = world.running(2, "w").await;
        assert_eq!(
            waiting(world, 9, &[1, 2], "all-completed").await["state"],
            "unscheduled"
        );
        world.report(&one, "completed", json!({})).await.expect(200);
        assert_eq!(world.state(9).await, "unscheduled");
        world.events().await;
        world.app.engine.wakeups.take_pools();
        world.report(&two, "completed", json!({})).await.expect(200);
        assert_eq!(world.state(9).await, "pending");
        assert_eq!(
            world.news().await,
            [
                "task-completed 2/0",
                "task-pending 9/0",
                "task-group-resolved"
            ]
        );
        assert_eq!(world.app.engine.wakeups.take_pools().len(), 1);
    }
);

on_both!(
    a_failure_releases_only_those_that_wait_for_any_end,
    |world| {
        let one = world.running(1, "w").await;
        waiting(world, 8, &[1], "all-completed").await;
        waiting(world, 9, &[1], "all-resolved").await;
        world.report(&one, "failed", json!({})).await.expect(200);
        assert_eq!(world.state(8).await, "unscheduled");
        assert_eq!(world.state(9).await, "pending");
        // A second try that goes well releases the rest.
        world.about_task(9, "cancel").await.expect(200);
        world.about_task(1, "rerun").await.expect(200);
        let again = world.claim("w", 1).await;
        world
            .report(&again[0], "completed", json!({}))
            .await
            .expect(200);
        assert_eq!(world.state(8).await, "pending");
        assert_eq!(world.state(9).await, "exception");
    }
);

on_both!(resolved_dependencies_are_not_waited_for, |world| {
    let one = world.running(1, "w").await;
    world.report(&one, "completed", json!({})).await.expect(200);
    world.events().await;
    assert_eq!(
        waiting(world, 9, &[1], "all-completed").await["state"],
        "pending"
    );
    assert_eq!(world.news().await, ["task-defined 9", "task-pending 9/0"]);
});

on_both!(
    a_task_that_waits_for_itself_waits_to_be_scheduled,
    |world| {
        assert_eq!(
            waiting(world, 9, &[9], "all-completed").await["state"],
            "unscheduled"
        );
        world.about_task(9, "schedule").await.expect(200);
        let claim = world.claim("w", 1).await;
        world
            .report(&claim[0], "completed", json!({}))
            .await
            .expect(200);
        assert_eq!(world.state(9).await, "completed");
    }
);

on_both!(
    a_task_with_an_unknown_dependency_is_refused_and_leaves_nothing_behind,
    |world| {
        world.created(1, json!({})).await;
        world.events().await;
        let on = json!({"dependencies": [task_id(1), task_id(2), task_id(3)]});
        world.create_task(9, on.clone()).await.refused_with(
            400,
            "InputError",
            "`dependencies` names tasks that do not exist: 00000002QACAAAAAAAAAAA, \
             00000003QACAAAAAAAAAAA. Nothing was created",
        );
        let path = format!("queue:/task/{}", task_id(9));
        world
            .get(&path)
            .await
            .refused_with(404, "ResourceNotFound", "no task 00000009");
        assert_eq!(world.news().await, [""; 0]);
        // The id is free: another definition is no conflict.
        let status = world
            .created(9, json!({"dependencies": [task_id(1)], "priority": "high"}))
            .await;
        assert_eq!(status["state"], "unscheduled");
    }
);

on_both!(
    a_dependency_must_last_until_the_deadline_of_the_task_that_waits_for_it,
    |world| {
        let at = |millis| world.now().plus_millis(millis).to_string();
        world
            .created(1, json!({"deadline": at(1_000), "expires": at(5_000)}))
            .await;
        let on = |deadline| json!({"dependencies": [task_id(1)], "deadline": at(deadline)});
        world.create_task(9, on(5_001)).await.refused_with(
            400,
            "InputError",
            "expire before the `deadline` of this task (2026-09-21T14:13:25.001Z): \
             00000001QACAAAAAAAAAAA",
        );
        assert_eq!(world.created(9, on(5_000)).await["state"], "unscheduled");
    }
);

on_both!(
    an_unscheduled_task_that_is_run_again_waits_for_nothing,
    |world| {
        world.created(1, json!({})).await;
        waiting(world, 9, &[1], "all-completed").await;
        world.events().await;
        let answer = world.about_task(9, "rerun").await.expect(200);
        assert_eq!(answer["status"]["state"], "pending");
        assert_eq!(world.news().await, ["task-pending 9/0"]);
        // Its dependency ends later, and changes nothing any more.
        world.about_task(1, "cancel").await.expect(200);
        assert_eq!(world.state(9).await, "pending");
    }
);

on_both!(a_missed_end_is_found_by_the_second_check, |world| {
    world.created(1, json!({})).await;
    waiting(world, 8, &[1], "all-resolved").await;
    waiting(world, 9, &[1], "all-completed").await;
    let now = world.now();
    let id: domain::id::TaskId = task_id(1).parse().unwrap();
    // As it would be if neither transaction had seen the other, and the process had died then.
    world
        .write(move |tx| {
            let before = store::tasks::get(tx, &id)?.unwrap();
            let after = before.clone().cancel(now).unwrap().task;
            store::tasks::update(tx, &before, &after)?;
            store::dependencies::request_recheck(tx, &id, now)
        })
        .await;
    world.clock.advance_ms(60_000);
    assert_eq!(release(world).await, json!({"release_batches": 1}));
    assert_eq!(world.state(8).await, "pending");
    assert_eq!(world.state(9).await, "unscheduled");
    assert_eq!(release(world).await, Value::Null);
});

on_both!(of_many_unknown_dependencies_some_are_named, |world| {
    let on: Vec<String> = (100..125).map(task_id).collect();
    world
        .create_task(9, json!({"dependencies": on}))
        .await
        .refused_with(
            400,
            "InputError",
            "00000119QACAAAAAAAAAAA and 5 more. Nothing was created",
        );
});

on_both!(dependents_are_listed_in_pages, |world| {
    world.created(1, json!({})).await;
    for number in [7, 8, 9] {
        waiting(world, number, &[1], "all-completed").await;
    }
    let path = format!("queue:/task/{}/dependents", task_id(1));
    let page = world.get(&format!("{path}?limit=2")).await.expect(200);
    assert_eq!(page["taskId"], task_id(1));
    let ids: Vec<&Value> = page["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| &task["status"]["taskId"])
        .collect();
    assert_eq!(ids, [&json!(task_id(7)), &json!(task_id(8))]);
    let token = page["continuationToken"].as_str().unwrap();
    let rest = world
        .get(&format!("{path}?continuationToken={token}"))
        .await
        .expect(200);
    assert_eq!(rest["tasks"].as_array().unwrap().len(), 1);
    let missing = format!("queue:/task/{}/dependents", task_id(6));
    world
        .get(&missing)
        .await
        .refused_with(404, "ResourceNotFound", "no task 00000006");
});

on_both!(
    more_dependents_than_fit_into_one_transaction_are_released_soon,
    |world| {
        let one = world.running(1, "w").await;
        for number in 1_000..1_250 {
            waiting(world, number, &[1], "all-completed").await;
        }
        world.report(&one, "completed", json!({})).await.expect(200);
        let pending = async || {
            let counts = world
                .get("queue:/task-queues/pp%2Fee/counts")
                .await
                .expect(200);
            counts["pendingTasks"].as_u64().unwrap()
        };
        assert_eq!(pending().await, 100);
        assert_eq!(release(world).await, json!({"release_batches": 2}));
        assert_eq!(pending().await, 250);
        assert_eq!(release(world).await, Value::Null);
    }
);

on_both!(
    whom_an_end_has_freed_is_free_though_the_task_runs_again,
    |world| {
        let one = world.running(1, "w").await;
        for number in 1_000..1_101 {
            waiting(world, number, &[1], "all-completed").await;
        }
        world.report(&one, "completed", json!({})).await.expect(200);
        assert_eq!(world.state(1_100).await, "unscheduled");
        world.about_task(1, "rerun").await.expect(200);
        assert_eq!(world.state(1_100).await, "pending");
        assert_eq!(world.state(1).await, "pending");
        // A new task waits for the new outcome.
        waiting(world, 2_000, &[1], "all-completed").await;
        assert_eq!(release(world).await, Value::Null);
        assert_eq!(world.state(2_000).await, "unscheduled");
    }
);

on_both!(
    a_task_with_ten_thousand_dependencies_is_made_and_released,
    |world| {
        let now = world.now();
        let resolved = stored_task(world).cancel(now).unwrap().task;
        world
            .write(move |tx| {
                for number in 1..10_000 {
                    let task = numbered(&resolved, number);
                    assert!(store::tasks::insert(tx, &task, task.definition.created)?);
                }
                Ok(())
            })
            .await;
        world.created(0, json!({})).await;
        let all: Vec<u32> = (0..10_000).collect();
        let status = waiting(world, 20_000, &all, "all-resolved").await;
        assert_eq!(status["state"], "unscheduled");
        world.about_task(0, "cancel").await.expect(200);
        assert_eq!(world.state(20_000).await, "pending");
    }
);
