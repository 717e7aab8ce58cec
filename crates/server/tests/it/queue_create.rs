//! `createTask`: valid tasks, the scopes, and the order of the checks.

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Value, json};

use crate::database::{assert_snapshot, on_both, on_sqlite_first};
use crate::queue_samples::{HOUR_MS, QUEUE, new_task, task_id};
use crate::samples::DAY_MS;

on_both!(
    a_task_is_pending_at_once_and_shown_with_everything_filled_in,
    |world| {
        let status = world.created(1, json!({"tags": {"kind": "test"}})).await;
        assert_snapshot!(format!("{status:#}"), @r#"
    {
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
          "state": "pending"
        }
      ],
      "schedulerId": "-",
      "state": "pending",
      "taskGroupId": "00000001QACAAAAAAAAAAA",
      "taskId": "00000001QACAAAAAAAAAAA",
      "taskQueueId": "pp/ee",
      "workerType": "ee"
    }
    "#);
        let task = world
            .get("queue:/task/00000001QACAAAAAAAAAAA")
            .await
            .expect(200);
        assert_snapshot!(format!("{task:#}"), @r#"
    {
      "created": "2026-09-21T14:13:20.000Z",
      "deadline": "2026-09-21T15:13:20.000Z",
      "dependencies": [],
      "expires": "2026-09-22T14:13:20.000Z",
      "extra": {},
      "metadata": {
        "description": "d",
        "name": "n",
        "owner": "o@example.com",
        "source": "https://x.example"
      },
      "payload": {
        "command": [
          "true"
        ]
      },
      "priority": "lowest",
      "projectId": "none",
      "provisionerId": "pp",
      "requires": "all-completed",
      "retries": 5,
      "routes": [],
      "schedulerId": "-",
      "scopes": [],
      "tags": {
        "kind": "test"
      },
      "taskGroupId": "00000001QACAAAAAAAAAAA",
      "taskQueueId": "pp/ee",
      "workerType": "ee"
    }
    "#);
        assert_eq!(world.news().await, ["task-defined 1", "task-pending 1/0"]);
    }
);

on_sqlite_first!(the_pool_of_a_new_task_is_looked_at, |world| {
    world.app.engine.wakeups.take_pools();
    world.created(1, json!({})).await;
    let rung: Vec<_> = world.app.engine.wakeups.take_pools().into_iter().collect();
    assert_eq!(rung, [QUEUE.parse().unwrap()]);
});

on_sqlite_first!(
    the_queue_is_named_in_either_form_and_returned_in_both,
    |world| {
        let split = json!({"taskQueueId": null, "provisionerId": "pp", "workerType": "ee"});
        let mut body = new_task(world, split);
        body.as_object_mut().unwrap().remove("taskQueueId");
        let path = format!("queue:/task/{}", task_id(1));
        let status = world.put(&path, body).await.expect(200)["status"].clone();
        assert_eq!(status["taskQueueId"], "pp/ee");
        let all = json!({"provisionerId": "pp", "workerType": "ee"});
        world.created(2, all).await;
        let torn = json!({"provisionerId": "pp", "workerType": "other"});
        world.create_task(3, torn).await.refused(
            400,
            "InputError",
            "`taskQueueId` is pp/ee, but `provisionerId` and `workerType` make pp/other: give one of the two",
        );
        let mut none = new_task(world, json!({}));
        none.as_object_mut().unwrap().remove("taskQueueId");
        world.put(&path, none).await.refused(
            400,
            "InputError",
            "name the task queue: either `taskQueueId`, or both `provisionerId` and `workerType`",
        );
    }
);

on_both!(
    the_same_request_again_is_answered_as_the_first_was,
    |world| {
        let first = world
            .created(1, json!({"extra": {"a": 1.1, "b": 0.1}}))
            .await;
        world.events().await;
        let again = world
            .created(1, json!({"extra": {"b": 0.1, "a": 1.1}}))
            .await;
        assert_eq!(again, first);
        // The same moment, written differently.
        let created = "2026-09-21T16:13:20.0004+02:00";
        assert_eq!(
            world
                .created(
                    1,
                    json!({"extra": {"a": 1.1, "b": 0.1}, "created": created})
                )
                .await,
            first
        );
        assert_eq!(world.told().await, "");
        world
            .create_task(1, json!({"extra": {"a": 2}}))
            .await
            .refused_with(409, "RequestConflict", "exists with another definition");
        // Also while it runs.
        world.claim("w", 1).await;
        let running = world
            .created(1, json!({"extra": {"a": 1.1, "b": 0.1}}))
            .await;
        assert_eq!(running["state"], "running");
    }
);

on_sqlite_first!(dates_must_make_sense, |world| {
    let at = |millis| world.now().plus_millis(millis).to_string();
    for (changes, refusal) in [
        (
            json!({"created": at(-900_001)}),
            "`created` 2026-09-21T13:58:19.999Z must be within 15 minutes of now",
        ),
        (
            json!({"created": at(900_001)}),
            "must be within 15 minutes of now",
        ),
        (
            json!({"created": at(5), "deadline": at(4)}),
            "`deadline` 2026-09-21T14:13:20.004Z must not be before `created`",
        ),
        (
            json!({"created": at(-10), "deadline": at(-1)}),
            "`deadline` 2026-09-21T14:13:19.999Z must be in the future",
        ),
        (
            json!({"deadline": at(5 * DAY_MS + 900_001), "expires": at(9 * DAY_MS)}),
            "must be within 5 days",
        ),
        (
            json!({"expires": at(HOUR_MS - 1)}),
            "`expires` 2026-09-21T15:13:19.999Z must not be before `deadline`",
        ),
    ] {
        world
            .create_task(1, changes)
            .await
            .refused_with(400, "InputError", refusal);
    }
    let widest = json!({"created": at(-900_000), "deadline": at(5 * DAY_MS + 900_000),
        "expires": at(5 * DAY_MS + 900_000)});
    world.created(1, widest).await;
    let mut forever = new_task(world, json!({}));
    forever.as_object_mut().unwrap().remove("expires");
    let path = format!("queue:/task/{}", task_id(2));
    let status = world.put(&path, forever).await.expect(200)["status"].clone();
    assert_eq!(status["expires"], "2027-09-21T15:13:20.000Z");
});

on_sqlite_first!(creating_a_task_needs_the_scopes_of_the_task, |world| {
    let changes = json!({
        "scopes": ["secret:x"], "routes": ["index.a"], "projectId": "proj", "schedulerId": "sched",
        "priority": "high",
    });
    let needed = [
        "secret:x",
        "queue:route:index.a",
        "queue:create-task:project:proj",
        "queue:scheduler-id:sched",
        "queue:create-task:high:pp/ee",
    ];
    let ask_with = |scopes: &[&str]| {
        let who = world.root().temporary(None, scopes, world.now());
        world.create_task(1, changes.clone()).by(&who)
    };
    for missing in 0..needed.len() {
        let mut held = needed.to_vec();
        let scope = held.remove(missing);
        let refused = ask_with(&held).await;
        assert!(refused.text.contains(scope), "{}", refused.text);
        refused.refused_with(403, "InsufficientScopes", scope);
    }
    // A lower priority does not do; a higher one does.
    let mut held = needed.to_vec();
    held[4] = "queue:create-task:medium:pp/ee";
    ask_with(&held)
        .await
        .refused_with(403, "InsufficientScopes", "queue:create-task:high:pp/ee");
    held[4] = "queue:create-task:highest:pp/ee";
    ask_with(&held).await.expect(200);
});

on_sqlite_first!(scopes_are_asked_for_after_ids_and_before_dates, |world| {
    let nobody = world.root().temporary(None, &[], world.now());
    let torn =
        json!({"provisionerId": "other", "workerType": "ee", "deadline": "1999-01-01T00:00:00Z"});
    world.create_task(1, torn).by(&nobody).await.refused_with(
        400,
        "InputError",
        "`taskQueueId` is",
    );
    let late = json!({"deadline": "1999-01-01T00:00:00Z", "scopes": ["a**"]});
    world
        .create_task(1, late.clone())
        .by(&nobody)
        .await
        .refused_with(403, "InsufficientScopes", "a**");
    world
        .create_task(1, late)
        .await
        .refused_with(400, "InputError", "`deadline`");
    let starred = json!({"scopes": ["a**"]});
    world.create_task(1, starred).await.refused(
        400,
        "InputError",
        "`scopes` must not end with `**`: a**",
    );
});

on_both!(
    a_group_has_one_scheduler_and_takes_nothing_once_sealed,
    |world| {
        let group = task_id(1);
        world.created(1, json!({"schedulerId": "one"})).await;
        let other = json!({"schedulerId": "two", "taskGroupId": group});
        world.create_task(2, other).await.refused_with(409, "RequestConflict",
        "contains tasks with schedulerId one. You are attempting to include a task with schedulerId two");
        world
            .created(2, json!({"schedulerId": "one", "taskGroupId": group}))
            .await;
        let seal = format!("queue:/task-group/{group}/seal");
        world.ask(Method::POST, &seal).await.expect(200);
        world
            .create_task(3, json!({"schedulerId": "one", "taskGroupId": group}))
            .await
            .refused_with(
                409,
                "RequestConflict",
                "was sealed on 2026-09-21T14:13:20.000Z",
            );
        // Refused: nothing is left of it.
        world
            .get(&format!("queue:/task/{}", task_id(3)))
            .await
            .refused(
                404,
                "ResourceNotFound",
                "There is no task 00000003QACAAAAAAAAAAA; was it ever created, or has it expired?",
            );
    }
);

on_sqlite_first!(a_task_that_does_not_fit_the_schema_is_refused, |world| {
    for (changes, problem) in [
        (json!({"payload": "x"}), "data/payload must be object"),
        (json!({"retries": 50}), "must be <= 49"),
        (
            json!({"priority": "normal"}),
            "data/priority must be equal to one of the allowed values",
        ),
        (
            json!({"routes": vec!["r"; 65]}),
            "must NOT have more than 64 items",
        ),
        (
            json!({"deadline": "soon"}),
            "must match format \"date-time\"",
        ),
        (
            json!({"colour": "blue"}),
            "must NOT have additional properties: \"colour\"",
        ),
        (
            json!({"dependencies": [task_id(2), task_id(2)]}),
            "must NOT have duplicate items",
        ),
        (
            json!({"dependencies": ["x"]}),
            "data/dependencies/0 must match pattern",
        ),
    ] {
        world
            .create_task(1, changes)
            .await
            .refused_with(400, "InputValidationError", problem);
    }
    let path = "queue:/task/not-a-slugid";
    world
        .put(path, new_task(world, json!({})))
        .await
        .refused_with(
            400,
            "InvalidRequestArguments",
            "URL parameter 'taskId' given as 'not-a-slugid' must match regular expression",
        );
});

on_sqlite_first!(
    fewer_dependencies_may_be_allowed,
    |config| {
        config.queue.max_dependencies = 1;
    },
    |world| {
        world.created(1, json!({})).await;
        world.created(2, json!({})).await;
        let two = json!({"dependencies": [task_id(1), task_id(2)]});
        world.create_task(3, two).await.refused(
            400,
            "InputError",
            "`dependencies` may name at most 1 tasks, and names 2",
        );
    }
);

on_sqlite_first!(
    a_task_that_is_too_large_is_refused_and_says_by_how_much,
    |world| {
        let padding = |size: usize| "x".repeat(size);
        let large = json!({"payload": {"script": padding(1024 * 1024)}});
        world.create_task(1, large).await.refused_with(
            400,
            "InputError",
            "A task may take 1048576 bytes at most, and this one takes 1049",
        );
        // Each of them is short enough.
        let tags = |count: usize| -> Value {
            let tags = (0..count).map(|number| (format!("{number:04}"), padding(4_092)));
            json!({"tags": tags.collect::<BTreeMap<_, _>>()})
        };
        world.create_task(1, tags(17)).await.refused(
            400,
            "InputError",
            "`tags` may take 65536 bytes at most, and these take 69632. What is long belongs in \
             `extra` or `metadata`, which are not part of every event",
        );
        world.created(1, tags(16)).await;
    }
);

on_both!(
    large_tasks_are_listed_and_claimed_a_few_at_a_time,
    |world| {
        let group = task_id(1);
        for number in 1..=12 {
            let large = json!({"taskGroupId": group, "payload": {"script": "x".repeat(1_000_000)}});
            world.created(number, large).await;
        }
        let pages = async |path: &str, list: &str, body: Option<Value>| {
            let mut counts = Vec::new();
            let mut token = String::new();
            loop {
                let path = format!("{path}?{token}");
                let ask = match &body {
                    Some(body) => world.post(&path, body.clone()),
                    None => world.get(&path),
                };
                let page = ask.await.expect(200);
                counts.push(page[list].as_array().unwrap().len());
                match page["continuationToken"].as_str() {
                    Some(next) => token = format!("continuationToken={next}"),
                    None => return counts,
                }
            }
        };
        let path = format!("queue:/task-group/{group}/list");
        assert_eq!(pages(&path, "tasks", None).await, [8, 4]);
        let pending = "queue:/task-queues/pp%2Fee/pending";
        assert_eq!(pages(pending, "tasks", None).await, [8, 4]);
        let asked: Vec<String> = (1..=12).map(task_id).collect();
        let asked = Some(json!({"taskIds": asked}));
        assert_eq!(pages("queue:/tasks", "tasks", asked).await, [9, 3]);
        assert_eq!(world.claim("w", 12).await.len(), 8);
        assert_eq!(world.claim("w", 12).await.len(), 4);
        let claimed = "queue:/task-queues/pp%2Fee/claimed";
        assert_eq!(pages(claimed, "tasks", None).await, [8, 4]);
    }
);

on_both!(several_tasks_are_shown_at_once, |world| {
    for number in 1..=3 {
        world.created(number, json!({})).await;
    }
    let asked = json!({"taskIds": [task_id(3), task_id(9), "nonsense", task_id(1), task_id(3), task_id(2)]});
    let shown = |reply: &Value, list: &str| -> Vec<String> {
        let items = reply[list].as_array().unwrap().iter();
        items
            .map(|item| item["taskId"].as_str().unwrap().to_owned())
            .collect()
    };
    let reply = world.post("queue:/tasks", asked.clone()).await.expect(200);
    assert_eq!(shown(&reply, "tasks"), [task_id(3), task_id(1), task_id(2)]);
    assert_eq!(reply["tasks"][0]["task"]["taskQueueId"], "pp/ee");
    assert!(reply.get("continuationToken").is_none());
    let page = world
        .post("queue:/tasks/status?limit=2", asked.clone())
        .await
        .expect(200);
    assert_eq!(shown(&page, "statuses"), [task_id(3)]);
    let token = page["continuationToken"].as_str().unwrap();
    let path = format!("queue:/tasks/status?limit=9&continuationToken={token}");
    let rest = world.post(&path, asked.clone()).await.expect(200);
    assert_eq!(shown(&rest, "statuses"), [task_id(1), task_id(2)]);
    assert_eq!(rest["statuses"][0]["status"]["state"], "pending");
    let one = world.root().temporary(
        None,
        &[&format!("queue:get-task:{}", task_id(3))],
        world.now(),
    );
    world
        .post("queue:/tasks", asked)
        .by(&one)
        .await
        .refused_with(
            403,
            "InsufficientScopes",
            "queue:get-task:00000001QACAAAAAAAAAAA",
        );
    let many = json!({"taskIds": vec![task_id(1); 10_001]});
    let refusal = "`taskIds` may name at most 10000 tasks";
    world
        .post("queue:/tasks", many)
        .await
        .refused(400, "InputError", refusal);
    let none = world.post("queue:/tasks", json!({})).await.expect(200);
    assert_eq!(none, json!({"tasks": []}));
});
