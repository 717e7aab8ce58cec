//! Payloads of tasks are validated by the schema at the time of their creation; an invalid one does
//! not affect others.

use engine::configurations::Purpose;
use serde_json::{Value, json};

use crate::configurations::{BUILD, build, refused, rule, with_rule, zones};
use crate::database::on_sqlite_first;
use crate::queue_samples::{new_task, task_id};
use crate::world::World;

fn checked(schema: Value) -> Value {
    let values = json!({"payloadSchema": schema, "checkPayload": true});
    with_rule(build(), rule("schema", Value::Null, values))
}

fn task(world: &World, payload: &Value) -> Value {
    let queue = "worker-manager/build-opt";
    new_task(world, json!({"taskQueueId": queue, "payload": payload}))
}

fn path(number: u32) -> String {
    format!("queue:/task/{}", task_id(number))
}

on_sqlite_first!(
    the_schema_of_now_decides_also_if_another_is_known,
    zones,
    |world| {
        let requiring = |name: &str| checked(json!({"required": [name]}));
        world.put(BUILD, requiring("a")).await.expect(200);
        let (a, b) = (task(world, &json!({"a": 1})), task(world, &json!({"b": 1})));
        world.put(&path(1), a.clone()).await.expect(200);
        refused(world.put(&path(2), b.clone()), 400).await;
        world.post(BUILD, requiring("b")).await.expect(200);
        refused(world.put(&path(3), a.clone()), 400).await;
        world.put(&path(2), b.clone()).await.expect(200);
        // The first one exists already, and the same request is sent again.
        world.put(&path(1), a.clone()).await.expect(200);
        world.post(BUILD, build()).await.expect(200);
        world.put(&path(3), a.clone()).await.expect(200);
        // And a configuration of the same name, created again.
        world.delete(BUILD).await.expect(200);
        world.put(BUILD, requiring("b")).await.expect(200);
        refused(world.put(&path(4), a), 400).await;
        world.put(&path(4), b).await.expect(200);
    }
);

on_sqlite_first!(
    a_payload_that_would_be_judged_for_ever_is_refused,
    zones,
    |world| {
        let list = json!({"type": "array", "items": {"$ref": "#/definitions/list"}});
        let twins =
            json!({"definitions": {"list": {"anyOf": [list, list]}}, "properties": {"a": list}});
        world.put(BUILD, checked(twins)).await.expect(200);
        let nested = (0..60).fold(json!(1), |inner, _| json!([inner]));
        let text = refused(world.put(&path(1), task(world, &json!({"a": nested}))), 400).await;
        assert!(text.contains("too long"), "{text}");
        world
            .put(&path(1), task(world, &json!({"a": [[]]})))
            .await
            .expect(200);
    }
);

on_sqlite_first!(
    a_schema_by_which_nothing_is_judged_in_time_is_refused_when_it_is_written,
    zones,
    |world| {
        let circle = json!({"anyOf": [{"type": "string"}, {"$ref": "#"}]});
        let text = refused(world.put(BUILD, checked(circle)), 400).await;
        assert!(
            text.contains("refers to itself for the same value (rule \"schema\")"),
            "{text}"
        );
    }
);

/// Properties with this many patterns, each of which takes a mebibyte when it is compiled.
fn with_patterns(count: usize) -> Value {
    let each = (0..count).map(|number| {
        let pattern = format!("\\p{{L}}{{18}}{number}");
        (number.to_string(), json!({"pattern": pattern}))
    });
    json!({"properties": each.collect::<serde_json::Map<_, _>>()})
}

on_sqlite_first!(
    a_schema_whose_patterns_take_much_memory_is_refused_with_its_rule,
    zones,
    |world| {
        let plan = format!("{BUILD}/plan");
        for (count, words) in [
            (
                5,
                "its patterns take more than 4194304 bytes when they are compiled",
            ),
            (400, "it has 400 different patterns, and the limit is 100"),
        ] {
            let document = checked(with_patterns(count));
            for asked in [
                world.post(&plan, document.clone()),
                world.put(BUILD, document),
            ] {
                let text = refused(asked, 400).await;
                assert!(text.contains(words), "{text}");
                assert!(text.contains("(rule \"schema\")"), "{text}");
            }
        }
        let document = checked(with_patterns(4));
        world.post(&plan, document.clone()).await.expect(200);
        world.put(BUILD, document).await.expect(200);
    }
);

on_sqlite_first!(an_edit_does_not_wait_for_plans, zones, |world| {
    let (started, mut starts) = tokio::sync::mpsc::unbounded_channel();
    let mut releases = Vec::new();
    // More questions than may run at once.
    let questions = (0..10).map(|_| {
        let (release, released) = std::sync::mpsc::channel::<()>();
        releases.push(release);
        let started = started.clone();
        let compilations = &world.app.engine.compilations;
        compilations.run_limited(Purpose::Question, move || {
            started.send(()).unwrap();
            // An error: its sender was dropped.
            released.recv().unwrap_err();
        })
    });
    let questions = futures_util::future::join_all(questions);
    let editing = async {
        starts.recv().await.unwrap();
        let document = checked(json!({"required": ["a"]}));
        world.put(BUILD, document).await.expect(200);
        releases.clear();
    };
    tokio::join!(questions, editing);
    // And then plans are made again.
    let plan = world.post(&format!("{BUILD}/plan"), build()).await;
    assert_eq!(plan.expect(200)["version"], 1);
});
