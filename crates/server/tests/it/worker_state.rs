//! The state of workers with the built-in queue: the results of their runs are counted once each.

use std::sync::Arc;

use domain::configuration::WorkerTypeRecord;
use domain::run_outcome::RunOutcome;
use domain::task::EndReason;
use domain::time::MINUTE_MS;
use engine::random::Random;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use server::background::driver::BackgroundTask;
use server::background::{Batches, Housekeeping, Outcomes, QueueClaims};
use server::start::start_with;
use testing::sizes_around;

use crate::database::on_both;
use crate::queue_samples::{HOUR_MS, numbered, task_id};
use crate::samples::{DAY_MS, key, static_pool, static_worker};
use crate::world::World;

const POOL_STATE: &str = "/worker-state/pool/pp%2Fee";

/// Assigns positions to events and takes the outcomes from them.
async fn collect(world: &World) -> Value {
    world.events().await;
    world.read_outcomes().await
}

/// A pool whose outcomes are recorded from now on.
async fn begin(world: &World) {
    world
        .put("/worker-pool/pp%2Fee", static_pool())
        .await
        .expect(200);
    assert_eq!(collect(world).await, Value::Null);
}

/// A task with this number ends on a worker.
async fn ended(world: &World, number: u32, worker: &str, how: &str) {
    let claim = world.running(number, worker).await;
    let (what, body) = match how {
        "completed" | "failed" => (how, json!({})),
        reason => ("exception", json!({"reason": reason})),
    };
    let answer = world.report(&claim, what, body).await;
    answer.expect(200);
}

/// Worker, task, run, and why it ended; newest first.
fn runs(reply: &Value) -> Vec<String> {
    let runs = reply["taskRuns"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    runs.map(|run| {
        let task = &text(&run["taskId"])[..8];
        format!(
            "{} {}/{} {}",
            text(&run["workerId"]),
            task.trim_start_matches('0'),
            run["runId"],
            text(&run["reasonResolved"])
        )
    })
    .collect()
}

/// Completed, failed, exceptions and the success rate of each window.
fn windows(reply: &Value) -> Vec<(String, u64, u64, u64, Value)> {
    let windows = reply["windows"].as_array().unwrap().iter();
    let number = |window: &Value, field: &str| window[field].as_u64().unwrap();
    windows
        .map(|window| {
            (
                window["window"].as_str().unwrap().to_owned(),
                number(window, "completed"),
                number(window, "failed"),
                number(window, "exception"),
                window["successRate"].clone(),
            )
        })
        .collect()
}

fn in_each_window(
    completed: u64,
    failed: u64,
    exception: u64,
    rate: Value,
) -> Vec<(String, u64, u64, u64, Value)> {
    ["1h", "24h", "7d"]
        .map(|name| (name.to_owned(), completed, failed, exception, rate.clone()))
        .to_vec()
}

/// Outcomes that did not come from the queue here.
async fn note(world: &World, outcomes: Vec<RunOutcome>) -> usize {
    let written = world.write(move |tx| store::run_outcomes::note(tx, &outcomes));
    written.await.len()
}

fn outcome(world: &World, worker: &str, number: u32, age_ms: i64) -> RunOutcome {
    RunOutcome {
        worker: key("pp/ee", "g", worker),
        task_id: task_id(number).parse().unwrap(),
        run_id: 0,
        reason: EndReason::Completed,
        resolved: world.now().plus_millis(-age_ms),
        started: None,
    }
}

on_both!(results_of_runs_are_listed_by_pool_and_by_worker, |world| {
    begin(world).await;
    ended(world, 1, "w", "completed").await;
    world.clock.advance_ms(1_000);
    ended(world, 2, "v", "failed").await;
    world.clock.advance_ms(1_000);
    ended(world, 3, "w", "malformed-payload").await;
    assert_eq!(collect(world).await, json!({"outcomes": 3}));
    let of_pool = world.get(POOL_STATE).await.expect(200);
    assert_eq!(of_pool["workerPoolId"], "pp/ee");
    assert_eq!(
        of_pool["taskRuns"][0],
        json!({
            "workerPoolId": "pp/ee", "workerGroup": "g", "workerId": "w", "taskId": task_id(3),
            "runId": 0, "outcome": "exception", "reasonResolved": "malformed-payload",
            "started": world.now().to_string(), "resolved": world.now().to_string(),
        })
    );
    assert_eq!(
        runs(&of_pool),
        ["w 3/0 malformed-payload", "v 2/0 failed", "w 1/0 completed"]
    );
    let third = json!(1.0 / 3.0);
    assert_eq!(windows(&of_pool), in_each_window(1, 1, 1, third));
    assert_eq!(
        of_pool["windows"][0]["exceptions"],
        json!({"malformed-payload": 1})
    );
    assert_eq!(of_pool["windows"][0]["since"], "2026-09-21T13:00:00.000Z");
    let of_worker = world.get("/worker-state/pp%2Fee/g/w").await.expect(200);
    assert_eq!(of_worker["workerId"], "w");
    assert_eq!(
        runs(&of_worker),
        ["w 3/0 malformed-payload", "w 1/0 completed"]
    );
    assert_eq!(windows(&of_worker), in_each_window(1, 0, 1, json!(0.5)));
});

on_both!(a_retried_run_is_counted_at_once, |world| {
    begin(world).await;
    ended(world, 1, "w", "worker-shutdown").await;
    let claims = world.claim("v", 1).await;
    assert_eq!(claims[0]["runId"], 1);
    world.clock.advance_ms(20 * MINUTE_MS);
    let expired = QueueClaims(Arc::clone(&world.app.engine)).activate().await;
    assert_eq!(expired.unwrap(), json!({"claims_expired": 1}));
    assert_eq!(collect(world).await, json!({"outcomes": 2}));
    let of_pool = world.get(POOL_STATE).await.expect(200);
    assert_eq!(
        runs(&of_pool),
        ["v 1/1 claim-expired", "w 1/0 worker-shutdown"]
    );
});

on_both!(a_rerun_does_not_count_old_runs_again, |world| {
    begin(world).await;
    ended(world, 1, "w", "failed").await;
    collect(world).await;
    // As if the run had been forgotten meanwhile.
    world
        .write(|tx| {
            let kept = store::kept_runs::KeptRuns {
                of_pool: 0,
                of_worker: 0,
                since: domain::time::Timestamp::from_millis(i64::MAX),
            };
            let pool = "pp/ee".parse().unwrap();
            let excess = store::kept_runs::find_excess(tx, &pool, kept, 9)?;
            store::kept_runs::trim(tx, &pool, kept, &excess.unwrap(), 9).map(drop)
        })
        .await;
    let rerun = world.about_task(1, "rerun");
    rerun.await.expect(200);
    let claim = world.claim("w", 1).await.remove(0);
    world
        .report(&claim, "completed", json!({}))
        .await
        .expect(200);
    assert_eq!(collect(world).await, json!({"outcomes": 1}));
    let of_pool = world.get(POOL_STATE).await.expect(200);
    assert_eq!(runs(&of_pool), ["w 1/1 completed"]);
    assert_eq!(windows(&of_pool), in_each_window(1, 1, 0, json!(0.5)));
});

on_both!(runs_in_queues_without_a_pool_here_are_not_kept, |world| {
    assert_eq!(collect(world).await, Value::Null);
    ended(world, 1, "w", "completed").await;
    assert_eq!(collect(world).await, Value::Null);
    world
        .get(POOL_STATE)
        .await
        .refused_with(404, "ResourceNotFound", "Worker pool does not exist");
    world.get("/worker-state/pp%2Fee/g/w").await.refused_with(
        404,
        "ResourceNotFound",
        "Worker not found",
    );
});

on_both!(
    a_worker_without_runs_and_a_pool_without_any_have_a_state,
    |world| {
        begin(world).await;
        world
            .put("/workers/pp%2Fee/g/w", static_worker())
            .await
            .expect(200);
        for path in [POOL_STATE, "/worker-state/pp%2Fee/g/w"] {
            let state = world.get(path).await.expect(200);
            assert_eq!(state["taskRuns"], json!([]));
            assert_eq!(windows(&state), in_each_window(0, 0, 0, Value::Null));
        }
    }
);

on_both!(a_worker_type_is_a_pool_of_the_worker_manager, |world| {
    world
        .put("/worker-pool/worker-manager%2Fbuild-opt", static_pool())
        .await
        .expect(200);
    let told = RunOutcome {
        worker: key("worker-manager/build-opt", "g", "w"),
        ..outcome(world, "w", 1, 0)
    };
    note(world, vec![told]).await;
    let state = world
        .get("/worker-state/worker-type/build-opt")
        .await
        .expect(200);
    assert_eq!(state["workerPoolId"], "worker-manager/build-opt");
    assert_eq!(runs(&state), ["w 1/0 completed"]);
    world
        .get("/worker-state/worker-type/build-dbg")
        .await
        .refused_with(404, "ResourceNotFound", "Worker pool does not exist");
});

on_both!(a_configuration_has_the_runs_of_all_its_pools, |world| {
    for pool in ["one", "two", "other"] {
        world
            .put(&format!("/worker-pool/pp%2F{pool}"), static_pool())
            .await
            .expect(200);
    }
    world
        .write(|tx| {
            for (pool, owner) in [("one", "build"), ("two", "build"), ("other", "test")] {
                let worker_type = WorkerTypeRecord {
                    pool_id: format!("pp/{pool}").parse().unwrap(),
                    configuration_id: owner.parse().unwrap(),
                    payload_schema: None,
                    check_payload: false,
                };
                assert!(store::worker_types::claim(tx, &worker_type)?);
            }
            Ok(())
        })
        .await;
    let told = (0..6_u32).map(|number| RunOutcome {
        worker: key(
            ["pp/one", "pp/two", "pp/other"][number as usize % 3],
            "g",
            "w",
        ),
        ..outcome(world, "w", number + 1, i64::from(number) * 1_000)
    });
    note(world, told.collect()).await;
    let path = "/worker-state/configuration/build";
    let state = world.get(path).await.expect(200);
    assert_eq!(state["workerConfigurationId"], "build");
    let all = [
        "w 1/0 completed",
        "w 2/0 completed",
        "w 4/0 completed",
        "w 5/0 completed",
    ];
    assert_eq!(runs(&state), all);
    assert_eq!(windows(&state), in_each_window(4, 0, 0, json!(1.0)));
    let first = world.get(&format!("{path}?limit=3")).await.expect(200);
    assert_eq!(runs(&first), all[..3]);
    let token = first["continuationToken"].as_str().unwrap();
    let next = format!("{path}?limit=3&continuationToken={token}");
    let next = world.get(&next).await.expect(200);
    assert_eq!(runs(&next), all[3..]);
    assert_eq!(next.get("continuationToken"), None);
    world
        .get("/worker-state/configuration/nosuch")
        .await
        .refused_with(404, "ResourceNotFound", "No worker configuration nosuch");
    world
        .get("/worker-state/configuration/no%20such")
        .await
        .refused_with(400, "InvalidRequestArguments", "");
});

on_both!(the_runs_of_a_worker_come_in_pages, |world| {
    begin(world).await;
    // All at the same moment.
    let told = (1..=5).map(|number| outcome(world, "w", number, 0));
    note(world, told.collect()).await;
    let mut path = "/worker-state/pp%2Fee/g/w?limit=2".to_owned();
    let mut seen = Vec::new();
    loop {
        let page = world.get(&path).await.expect(200);
        seen.extend(runs(&page));
        assert_eq!(windows(&page), in_each_window(5, 0, 0, json!(1.0)));
        let Some(token) = page.get("continuationToken").and_then(Value::as_str) else {
            break;
        };
        path = format!("/worker-state/pp%2Fee/g/w?limit=2&continuationToken={token}");
    }
    let all = [5, 4, 3, 2, 1].map(|number| format!("w {number}/0 completed"));
    assert_eq!(seen, all);
});

on_both!(of_two_processes_one_collects, |world| {
    begin(world).await;
    let random = Random::new(StdRng::seed_from_u64(99));
    let clock = Arc::clone(&world.clock) as _;
    let config = world.app.config.clone();
    let other = start_with(config, clock, random, Vec::new()).await.unwrap();
    let mut other = Outcomes(other);
    ended(world, 1, "w", "completed").await;
    assert_eq!(collect(world).await, json!({"outcomes": 1}));
    ended(world, 2, "w", "completed").await;
    world.events().await;
    assert_eq!(other.activate().await.unwrap(), Value::Null);
    // The first one has died; after a while the other continues from its position.
    world.clock.advance_ms(10_001);
    assert_eq!(other.activate().await.unwrap(), json!({"outcomes": 1}));
    assert_eq!(collect(world).await, Value::Null);
    let of_pool = world.get(POOL_STATE).await.expect(200);
    assert_eq!(windows(&of_pool), in_each_window(2, 0, 0, json!(1.0)));
});

on_both!(many_outcomes_are_collected_in_batches, |world| {
    begin(world).await;
    let task = crate::queue_samples::stored_task(world);
    let (group, worker) = ("g".parse().unwrap(), "w".parse().unwrap());
    let now = world.now();
    world
        .change(move |change| {
            for number in 0..1_100 {
                let waits = numbered(&task, number).schedule(now).unwrap().task;
                let runs = waits.claim(0, &group, &worker, now, now).unwrap().task;
                let moved = runs.report(0, true, now).unwrap();
                let news = moved
                    .news
                    .into_iter()
                    .map(|news| domain::event::EventBody::Task {
                        news,
                        task: Box::new(moved.task.clone()),
                    });
                change.announce(news)?;
            }
            Ok(())
        })
        .await;
    let place = |tx: &mut store::Tx<'_>| store::events::assign_positions(tx, 5_000);
    assert_eq!(world.write(place).await.items.len(), 1_100);
    assert_eq!(collect(world).await, json!({"outcomes": 1_100}));
    let of_pool = world.get(POOL_STATE).await.expect(200);
    assert_eq!(windows(&of_pool), in_each_window(1_100, 0, 0, json!(1.0)));
    assert_eq!(runs(&of_pool).len(), 1_000);
});

on_both!(
    outcomes_are_forgotten_when_they_are_old_or_too_many,
    |config| {
        config.fleet.kept_task_runs = 30;
    },
    |world| {
        begin(world).await;
        let told = (0..40)
            .map(|number| {
                let worker = if number < 25 { "busy" } else { "w" };
                outcome(world, worker, number, i64::from(number) * HOUR_MS)
            })
            .chain([outcome(world, "old", 99, 15 * DAY_MS)]);
        note(world, told.collect()).await;
        // One is too old; of the rest, the pool has ten and then the worker five too many.
        let kept = json!({"outcomes": 16, "run_counts": 1});
        assert_eq!(world.keep_house().await, kept);
        let state = world.get("/worker-state/pp%2Fee/g/busy").await.expect(200);
        assert_eq!(runs(&state).len(), 20);
        let of_pool = world.get(POOL_STATE).await.expect(200);
        assert_eq!(runs(&of_pool).len(), 25);
        assert_eq!(windows(&of_pool)[2].1, 40, "counts stay");
        world.clock.advance_ms(8 * DAY_MS);
        world.keep_house().await;
        let of_pool = world.get(POOL_STATE).await.expect(200);
        assert_eq!(windows(&of_pool), in_each_window(0, 0, 0, Value::Null));
        assert_eq!(runs(&of_pool).len(), 25);
    }
);

on_both!(
    one_look_at_a_pool_serves_all_batches_of_its_outcomes,
    |config| {
        config.fleet.kept_task_runs = 30;
    },
    |world| {
        begin(world).await;
        let told = (0..130).map(|number| {
            let worker = format!("w{}", number % 10);
            outcome(world, &worker, number, i64::from(number) * HOUR_MS)
        });
        note(world, told.collect()).await;
        let house = Housekeeping::new(Arc::clone(&world.app));
        let batches = Batches { size: 10, most: 50 };
        let (done, counts) = world.counted(house.in_batches(batches)).await;
        assert_eq!(done.unwrap(), json!({"outcomes": 100}));
        assert_eq!(counts.transactions("run_outcome_look"), 1);
        // The last one finds nothing.
        assert_eq!(counts.transactions("run_outcome_trim"), 11);
    }
);

on_both!(of_a_worker_the_last_runs_are_kept, |world| {
    const KEPT: usize = 20;
    begin(world).await;
    let mut first = 1;
    for count in sizes_around(
        "server::background::outcomes::retention::KEPT_OF_WORKER",
        KEPT,
    ) {
        let worker = format!("w{count}");
        let last = first + u32::try_from(count).unwrap();
        let told = (first..last)
            .map(|number| outcome(world, &worker, number, i64::from(number - first) * HOUR_MS));
        note(world, told.collect()).await;
        world.keep_house().await;
        let key = key("pp/ee", "g", &worker);
        let list = move |tx: &mut store::Tx<'_>| {
            store::run_outcomes::list_of_worker(tx, &key, None, 1_000)
        };
        let kept = world.read(list).await.into_iter();
        let kept: Vec<String> = kept.map(|kept| kept.task_id.to_string()).collect();
        // The newest ones.
        let newest = (first..last).take(KEPT).map(task_id);
        assert_eq!(kept, newest.collect::<Vec<_>>());
        first = last;
    }
});

on_both!(events_are_kept_until_their_outcomes_are_known, |world| {
    begin(world).await;
    ended(world, 1, "w", "completed").await;
    world.events().await;
    world.clock.advance_ms(90 * DAY_MS);
    world.keep_house().await;
    assert_eq!(collect(world).await, json!({"outcomes": 1}));
    let after = |tx: &mut store::Tx<'_>| store::events::list_after(tx, 0, 1_000);
    assert!(!world.read(after).await.items.is_empty());
    world.keep_house().await;
    assert!(world.read(after).await.items.is_empty());
});

on_both!(outcomes_are_counted_for_the_metrics, |world| {
    begin(world).await;
    ended(world, 1, "w", "failed").await;
    collect(world).await;
    let metrics = world.get("root:/metrics").locally().await;
    let line = r#"fleetwright_task_runs_total{outcome="failed"} 1"#;
    assert!(metrics.text.contains(line), "{}", metrics.text);
});
