//! Changes of tasks without requests: claims expire, deadlines pass, workers stop, expired tasks
//! are deleted.

use std::sync::Arc;

use domain::time::MINUTE_MS;
use engine::queue::release_worker_claims;
use serde_json::{Value, json};
use server::background::driver::BackgroundTask;
use server::background::{QueueClaims, QueueDeadlines, QueueHousekeeping};

use crate::database::on_both;
use crate::queue_samples::{HOUR_MS, task_id};
use crate::samples::{DAY_MS, key};
use crate::world::World;

async fn expire_claims(world: &World) -> Value {
    QueueClaims(Arc::clone(&world.app.engine))
        .activate()
        .await
        .unwrap()
}

async fn miss_deadlines(world: &World) -> Value {
    QueueDeadlines(Arc::clone(&world.app.engine))
        .activate()
        .await
        .unwrap()
}

async fn forget(world: &World) -> Value {
    QueueHousekeeping::new(Arc::clone(&world.app.engine))
        .activate()
        .await
        .unwrap()
}

async fn lose(world: &World, worker: &'static str) -> u64 {
    let gone =
        world.change(move |change| release_worker_claims(change, &key("pp/ee", "g", worker)));
    gone.await
}

on_both!(a_claim_that_runs_out_is_tried_again, |world| {
    let claim = world.running(1, "w").await;
    world.events().await;
    world.clock.advance_ms(1_199_999);
    assert_eq!(expire_claims(world).await, Value::Null);
    world.clock.advance_ms(1);
    assert_eq!(expire_claims(world).await, json!({"claims_expired": 1}));
    assert_eq!(
        world.news().await,
        ["task-exception 1/0", "task-pending 1/1"]
    );
    let status = world.status(1).await;
    assert_eq!(status["runs"][0]["reasonResolved"], "claim-expired");
    assert_eq!(status["runs"][1]["reasonCreated"], "retry");
    assert_eq!(status["retriesLeft"], 4);
    assert_eq!(expire_claims(world).await, Value::Null);
    // The worker has lost the run for good.
    let path = format!("queue:/task/{}/runs/0/completed", task_id(1));
    world
        .ask(http::Method::POST, &path)
        .await
        .refused_with(409, "RequestConflict", "is exception");
    assert_eq!(claim["runId"], 0);
});

on_both!(
    a_claim_that_runs_out_after_the_last_retry_ends_the_task,
    |world| {
        world.created(1, json!({"retries": 0})).await;
        world.claim("w", 1).await;
        world.clock.advance_ms(1_200_000);
        expire_claims(world).await;
        assert_eq!(world.state(1).await, "exception");
    }
);

on_both!(many_claims_run_out_in_batches, |world| {
    for number in 0..130 {
        world.created(number, json!({})).await;
    }
    let mut claimed = 0;
    while claimed < 130 {
        claimed += world.claim("w", 32).await.len();
    }
    world.clock.advance_ms(1_200_000);
    assert_eq!(expire_claims(world).await, json!({"claims_expired": 130}));
});

on_both!(
    a_task_that_is_unresolved_a_minute_after_its_deadline_is_an_exception,
    |world| {
        world.running(1, "w").await;
        world
            .created(2, json!({"dependencies": [task_id(1)]}))
            .await;
        world.created(3, json!({})).await;
        world
            .created(
                4,
                json!({"deadline": world.now().plus_millis(2 * HOUR_MS).to_string()}),
            )
            .await;
        world.events().await;
        world.clock.advance_ms(HOUR_MS + MINUTE_MS);
        assert_eq!(miss_deadlines(world).await, Value::Null);
        world.clock.advance_ms(1);
        assert_eq!(miss_deadlines(world).await, json!({"deadlines_missed": 3}));
        for number in 1..=3 {
            let status = world.status(number).await;
            assert_eq!(status["state"], "exception");
            assert_eq!(status["runs"][0]["reasonResolved"], "deadline-exceeded");
        }
        assert_eq!(world.state(4).await, "pending");
        let news = world.news().await;
        assert_eq!(
            news.iter()
                .filter(|news| news.starts_with("task-exception"))
                .count(),
            3
        );
        assert_eq!(miss_deadlines(world).await, Value::Null);
    }
);

on_both!(
    a_missed_deadline_releases_those_that_wait_for_any_end,
    |world| {
        world.created(1, json!({})).await;
        let later = world.now().plus_millis(3 * HOUR_MS).to_string();
        let changes =
            json!({"dependencies": [task_id(1)], "requires": "all-resolved", "deadline": later});
        world.created(2, changes).await;
        world.clock.advance_ms(HOUR_MS + MINUTE_MS + 1);
        miss_deadlines(world).await;
        assert_eq!(world.state(2).await, "pending");
    }
);

on_both!(the_claims_of_a_stopped_worker_are_retried, |world| {
    for number in 1..=3 {
        world.created(number, json!({})).await;
    }
    world.claim("w", 2).await;
    world.claim("v", 1).await;
    world.events().await;
    assert_eq!(lose(world, "w").await, 2);
    for number in [1, 2] {
        let status = world.status(number).await;
        assert_eq!(status["state"], "pending");
        assert_eq!(status["runs"][0]["reasonResolved"], "worker-shutdown");
        assert_eq!(status["runs"][1]["reasonCreated"], "retry");
    }
    assert_eq!(world.state(3).await, "running");
    assert_eq!(
        world.news().await,
        [
            "task-exception 1/0",
            "task-pending 1/1",
            "task-exception 2/0",
            "task-pending 2/1"
        ]
    );
    assert_eq!(lose(world, "w").await, 0);
    assert_eq!(lose(world, "nobody").await, 0);
    assert_eq!(world.told().await, "");
});

on_both!(
    a_task_that_expires_with_its_deadline_is_ended_before_it_is_forgotten,
    |world| {
        let end = world.now().plus_millis(HOUR_MS).to_string();
        world
            .created(1, json!({"deadline": end, "expires": end}))
            .await;
        world.clock.advance_ms(HOUR_MS + 1);
        assert_eq!(miss_deadlines(world).await, Value::Null, "there is a grace");
        assert_eq!(forget(world).await, Value::Null);
        world.events().await;
        world.clock.advance_ms(MINUTE_MS);
        miss_deadlines(world).await;
        assert_eq!(
            world.news().await,
            ["task-exception 1/0", "task-group-resolved"]
        );
        assert_eq!(forget(world).await, json!({"tasks": 1}));
    }
);

on_both!(
    tasks_groups_and_queues_are_forgotten_when_their_time_has_come,
    |world| {
        world.created(1, json!({})).await;
        let later = world.now().plus_millis(30 * DAY_MS).to_string();
        world
            .created(2, json!({"expires": later, "taskQueueId": "pp/other"}))
            .await;
        assert_eq!(forget(world).await, Value::Null);
        world.clock.advance_ms(DAY_MS + 1);
        miss_deadlines(world).await;
        assert_eq!(forget(world).await, json!({"tasks": 1}));
        let path = format!("queue:/task/{}", task_id(1));
        world
            .get(&path)
            .await
            .refused_with(404, "ResourceNotFound", "no task");
        world
            .get(&format!("queue:/task-group/{}", task_id(1)))
            .await
            .expect(200);
        world.clock.advance_ms(4 * DAY_MS);
        assert_eq!(
            forget(world).await,
            json!({"task_groups": 1, "task_queues": 2})
        );
        assert_eq!(world.state(2).await, "exception");
    }
);
