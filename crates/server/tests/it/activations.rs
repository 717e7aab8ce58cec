//! One activation of a background task does a bounded amount of work; the next ones do the rest,
//! and nothing is lost.
//!
//! Most limits are smaller here than the tasks' defaults.

use std::sync::Arc;

use domain::event::{Event, EventBody};
use domain::id::TaskId;
use domain::task::Requires;
use domain::worker::{StoredWorker, Worker};
use serde_json::{Value, json};
use server::background::driver::BackgroundTask;
use server::background::{
    Batches, EventPublisher, Housekeeping, Measure, MeasureLimits, OutcomeLimits, Outcomes,
    QueueClaims, QueueDeadlines, QueueHousekeeping, QueueReleases, ReleaseLimits,
};
use testing::sizes_around;

use crate::database::on_both;
use crate::queue_samples::{HOUR_MS, numbered, redefined, stored_task, task_id};
use crate::samples::{DAY_MS, aws_pool, static_pool};
use crate::tasks_in_batches::pause;
use crate::world::World;

/// Items in one transaction, in most of these tests.
const SIZE: usize = 2;
/// Transactions in one activation.
const MOST: usize = 3;
const BATCHES: Batches = Batches {
    size: 2,
    most: MOST,
};
/// More than any of these tests needs.
const PLENTY: usize = 1_000_000;

/// The summary of an activation.
pub(crate) fn done(what: &str, count: usize) -> Value {
    match count {
        0 => Value::Null,
        _ => json!({what: count}),
    }
}

/// Activates a task until all is done, at most `at_once` by each activation; then one more finds
/// nothing.
pub(crate) async fn in_steps(
    what: &str,
    total: usize,
    at_once: usize,
    mut activate: impl AsyncFnMut() -> Value,
) {
    let mut left = total;
    while left > 0 {
        let now = left.min(at_once);
        assert_eq!(activate().await, done(what, now), "{left} were left");
        left -= now;
    }
    assert_eq!(activate().await, Value::Null);
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap()
}

/// Makes `count` tasks; the first has the number `from`.
async fn create(world: &World, from: u32, count: usize, changes: &Value) {
    for number in (from..).take(count) {
        world.created(number, changes.clone()).await;
    }
}

on_both!(an_activation_ends_a_bounded_number_of_claims, |world| {
    let mut first = 0;
    for count in sizes_around("server::background::queue_claims::MAX_BATCHES", MOST) {
        let deadline = world.now().plus_millis(HOUR_MS).to_string();
        let changes = json!({"retries": 0, "deadline": deadline});
        create(world, first, SIZE * count, &changes).await;
        first += number(SIZE * count);
        let mut claimed = 0;
        while claimed < SIZE * count {
            claimed += world.claim("w", 32).await.len();
        }
        world.clock.advance_ms(1_200_000);
        let task = QueueClaims(Arc::clone(&world.app.engine));
        in_steps("claims_expired", SIZE * count, SIZE * MOST, async || {
            task.in_batches(BATCHES).await.unwrap()
        })
        .await;
    }
});

on_both!(
    an_activation_ends_a_bounded_number_of_tasks_past_their_deadline,
    |world| {
        let mut first = 0;
        for count in sizes_around("server::background::queue_deadlines::MAX_BATCHES", MOST) {
            let deadline = world.now().plus_millis(HOUR_MS).to_string();
            create(world, first, SIZE * count, &json!({"deadline": deadline})).await;
            first += number(SIZE * count);
            world.clock.advance_ms(2 * HOUR_MS);
            let task = QueueDeadlines(Arc::clone(&world.app.engine));
            in_steps("deadlines_missed", SIZE * count, SIZE * MOST, async || {
                task.in_batches(BATCHES).await.unwrap()
            })
            .await;
        }
    }
);

/// Writes `count` resolved tasks, numbered from the given number on.
async fn resolved(world: &World, from: u32, count: usize) {
    let template = stored_task(world).cancel(world.now()).unwrap().task;
    world
        .write(move |tx| {
            for number in (from..).take(count) {
                let task = numbered(&template, number);
                assert!(store::tasks::insert(tx, &task, task.definition.created)?);
            }
            Ok(())
        })
        .await;
}

on_both!(expired_tasks_are_forgotten_in_batches, |world| {
    const BATCH: usize = 50;
    for count in sizes_around("server::background::queue_housekeeping::BATCH", BATCH) {
        resolved(world, 0, count).await;
        world.clock.advance_ms(2 * DAY_MS);
        let mut task = QueueHousekeeping::new(Arc::clone(&world.app.engine));
        let (forgotten, counts) = world.counted(task.activate()).await;
        assert_eq!(forgotten.unwrap(), done("tasks", count));
        let n_looks = (count / BATCH + 1) as u64;
        assert_eq!(counts.transactions("task_expire"), n_looks);
    }
});

on_both!(an_activation_deletes_a_bounded_number_of_tasks, |world| {
    for count in sizes_around("server::background::queue_housekeeping::MAX_BATCHES", MOST) {
        resolved(world, 0, SIZE * count).await;
        world.clock.advance_ms(2 * DAY_MS);
        let task = QueueHousekeeping::new(Arc::clone(&world.app.engine));
        in_steps("tasks", SIZE * count, SIZE * MOST, async || {
            task.in_batches(BATCHES).await.unwrap()
        })
        .await;
    }
});

on_both!(
    housekeeping_goes_on_with_the_other_kinds_of_rows_if_some_fail,
    |world| {
        let ended = world.now();
        pause(world, 3, ended, Some(ended)).await;
        world.clock.advance_ms(100 * DAY_MS);
        let rename = |from: &str, to: &str| {
            let sql = format!("ALTER TABLE {from} RENAME TO {to}");
            world.database.raw(&sql);
        };
        // Each stands before others of its part.
        let broken = ["worker_errors", "recorded_runs", "image_versions"];
        for table in broken {
            rename(table, &format!("away_{table}"));
        }
        world.errors_expected.set(true);
        let mut task = Housekeeping::new(Arc::clone(&world.app));
        let (failed, counts) = world.counted(task.activate()).await;
        let failed = failed.unwrap_err().to_string();
        for kind in ["errors: ", "; recorded: ", "; replaced: "] {
            assert!(failed.contains(kind), "{kind}: {failed}");
        }
        let others = [
            "override_expire",
            "audit_expire",
            "recorded_gap_expire",
            "turn_look",
        ];
        for name in others
            .into_iter()
            .chain(["recorded_worker_look", "budget_step_expire"])
        {
            assert_eq!(counts.transactions(name), 1, "{name}");
        }
        let rows = world.app.engine.store.count_rows().await.unwrap();
        assert_eq!(rows["overrides"], 0);
        for table in broken {
            rename(&format!("away_{table}"), table);
        }
        task.activate().await.unwrap();
    }
);

on_both!(
    housekeeping_deletes_a_bounded_number_of_rows_of_each_kind,
    |world| {
        for count in sizes_around("server::background::housekeeping::MAX_BATCHES", MOST) {
            let ended = world.now();
            pause(world, SIZE * count, ended, Some(ended)).await;
            world.clock.advance_ms(100 * DAY_MS);
            let task = Housekeeping::new(Arc::clone(&world.app));
            in_steps("overrides", SIZE * count, SIZE * MOST, async || {
                task.in_batches(BATCHES).await.unwrap()
            })
            .await;
        }
    }
);

on_both!(
    a_pool_leaves_its_provider_however_many_before_it_cannot,
    |world| {
        for name in ["pp/a", "pp/b", "pp/c"] {
            let path = format!("/worker-pool/{}", name.replace('/', "%2F"));
            world.put(&path, static_pool()).await.expect(200);
            world.post(&path, aws_pool(&[])).await.expect(200);
        }
        // The pools of the first two still exist.
        for name in ["pp/a", "pp/b"] {
            let worker = StoredWorker {
                provider_id: "static".parse().unwrap(),
                ..crate::samples::worker(name, "g", "w").into_stored()
            };
            world.insert(Worker::from_stored(worker)).await;
        }
        let task = Housekeeping::new(Arc::clone(&world.app));
        let one = Batches { size: 1, most: 1 };
        assert_eq!(
            task.in_batches(one).await.unwrap(),
            json!({"launch_configs": 1, "providers_left": 1})
        );
    }
);

/// Writes `count` events that are not about runs.
async fn events(world: &World, count: usize) {
    let created = world.now();
    let ids: Vec<String> = (0..count)
        .map(|_| world.app.engine.random.slugid())
        .collect();
    world
        .write(move |tx| {
            for id in &ids {
                let event = Event {
                    id: id.clone(),
                    created,
                    body: EventBody::PoolCreated {
                        pool_id: "pp/ee".parse().unwrap(),
                        provider_id: "google".parse().unwrap(),
                    },
                };
                store::outbox::push(tx, &event)?;
            }
            Ok(())
        })
        .await;
}

on_both!(
    an_activation_positions_a_bounded_number_of_events,
    |world| {
        for count in sizes_around("server::background::publish::MAX_BATCHES", MOST) {
            events(world, SIZE * count).await;
            let task = EventPublisher(Arc::clone(&world.app));
            let mut left = SIZE * count;
            while left > 0 {
                let head = world.app.events.head();
                task.in_batches(BATCHES).await.unwrap();
                let placed = left.min(SIZE * MOST);
                left -= placed;
                assert_eq!(world.read(store::outbox::depth).await, left as u64);
                // Events with a position are published at once.
                let n_told = world.app.events.head() - head;
                assert_eq!(usize::try_from(n_told).unwrap(), placed);
            }
        }
    }
);

/// Writes events of `count` ended runs; the first task has the given number.
async fn outcomes(world: &World, first: usize, count: usize) {
    let task = stored_task(world);
    let (group, worker) = ("g".parse().unwrap(), "w".parse().unwrap());
    let now = world.now();
    world
        .change(move |change| {
            for index in first..first + count {
                let waits = numbered(&task, number(index)).schedule(now).unwrap().task;
                let runs = waits.claim(0, &group, &worker, now, now).unwrap().task;
                let moved = runs.report(0, true, now).unwrap();
                let (news, task) = (moved.news.into_iter(), Box::new(moved.task));
                let told = news.map(|news| EventBody::Task {
                    news,
                    task: task.clone(),
                });
                change.announce(told)?;
            }
            Ok(())
        })
        .await;
    world.events().await;
}

async fn begin_with_outcomes(world: &World) {
    let made = world.put("/worker-pool/pp%2Fee", static_pool());
    made.await.expect(200);
    world.events().await;
    world.read_outcomes().await;
}

on_both!(outcomes_are_written_in_batches, |world| {
    const LIMIT: usize = 5;
    begin_with_outcomes(world).await;
    let limits = OutcomeLimits {
        messages: Batches {
            size: 5,
            most: PLENTY,
        },
        span: 1_000_000,
    };
    let mut first = 0;
    for count in sizes_around("server::background::outcomes::BATCH", LIMIT) {
        outcomes(world, first, count).await;
        first += count;
        let task = Outcomes(Arc::clone(&world.app));
        let (noted, counts) = world.counted(task.with_limits(limits)).await;
        assert_eq!(noted.unwrap(), done("outcomes", count));
        let n_batches = count.div_ceil(LIMIT) as u64;
        assert_eq!(counts.transactions("outcomes_collect"), n_batches);
    }
});

on_both!(
    an_outcome_behind_many_other_events_is_found_in_several_looks,
    |world| {
        const LIMIT: usize = 5;
        begin_with_outcomes(world).await;
        let limits = OutcomeLimits {
            messages: Batches {
                size: 1_000,
                most: PLENTY,
            },
            span: 5,
        };
        for (round, count) in sizes_around("server::background::outcomes::SPAN", LIMIT)
            .into_iter()
            .enumerate()
        {
            events(world, count).await;
            outcomes(world, round, 1).await;
            let task = Outcomes(Arc::clone(&world.app));
            let (noted, counts) = world.counted(task.with_limits(limits)).await;
            assert_eq!(noted.unwrap(), done("outcomes", 1));
            let n_looks = (count + 1).div_ceil(LIMIT) as u64;
            assert_eq!(counts.transactions("outcomes_collect"), n_looks);
        }
    }
);

on_both!(an_activation_writes_a_bounded_number_of_outcomes, |world| {
    begin_with_outcomes(world).await;
    let limits = OutcomeLimits {
        messages: BATCHES,
        span: 1_000_000,
    };
    let mut first = 0;
    for count in sizes_around("server::background::outcomes::MAX_BATCHES", MOST) {
        outcomes(world, first, SIZE * count).await;
        first += SIZE * count;
        let task = Outcomes(Arc::clone(&world.app));
        in_steps("outcomes", SIZE * count, SIZE * MOST, async || {
            task.with_limits(limits).await.unwrap()
        })
        .await;
    }
});

on_both!(tasks_to_look_at_again_are_taken_by_the_thousand, |world| {
    const LIMIT: usize = 1_000;
    for count in sizes_around("server::background::queue_releases::MAX_TASKS", LIMIT) {
        let (noted, all) = (world.now(), 10 * number(LIMIT));
        world
            .write(move |tx| {
                (0..count).try_for_each(|index| {
                    let id: TaskId = task_id(number(index)).parse().unwrap();
                    store::dependencies::request_recheck(tx, &id, noted)
                })
            })
            .await;
        // At first, they are left to other processes.
        world.clock.advance_ms(10_000 + 1);
        let now = world.now();
        let mut left = count;
        loop {
            let due = world.read(move |tx| store::dependencies::rechecks_due(tx, now, all));
            assert_eq!(due.await.len(), left);
            if left == 0 {
                break;
            }
            let mut task = QueueReleases(Arc::clone(&world.app.engine));
            assert_eq!(task.activate().await.unwrap(), Value::Null);
            left -= left.min(LIMIT);
        }
    }
});

/// Writes `count` tasks that depend on the given one.
async fn waiting_for(world: &World, required: u32, count: usize) {
    let required_id: TaskId = task_id(required).parse().unwrap();
    let template = redefined(stored_task(world), |definition| {
        definition.requires = Requires::AllResolved;
        definition.dependencies = vec![required_id];
    });
    world
        .write(move |tx| {
            for number in (required + 1..).take(count) {
                let task = numbered(&template, number);
                assert!(store::tasks::insert(tx, &task, task.definition.created)?);
                store::dependencies::require(tx, &task)?;
            }
            Ok(())
        })
        .await;
}

on_both!(an_activation_releases_a_bounded_number_of_tasks, |world| {
    /// Dependents that the transaction which ends a task releases, and each batch after it.
    const AT_ONCE: usize = 100;
    const LIMIT: usize = 2;
    let limits = ReleaseLimits {
        tasks: 1_000,
        batches: LIMIT,
    };
    let sizes = sizes_around("server::background::queue_releases::MAX_BATCHES", LIMIT);
    let mut required = 0;
    // Ten times as much would be two thousand tasks.
    for count in sizes.into_iter().filter(|count| *count <= LIMIT + 1) {
        let n_waiting = AT_ONCE + count * AT_ONCE - (AT_ONCE / 2) * count.min(1);
        world.created(required, json!({})).await;
        waiting_for(world, required, n_waiting).await;
        world.about_task(required, "cancel").await.expect(200);
        required += 1 + number(n_waiting);
        let task = QueueReleases(Arc::clone(&world.app.engine));
        let mut left = count;
        loop {
            let released = left.min(LIMIT);
            let activated = task.with_limits(limits).await.unwrap();
            assert_eq!(activated, done("release_batches", released));
            left -= released;
            if left == 0 {
                break;
            }
            // The rest is noted only in the store, and left to other processes for ten seconds.
            assert_eq!(task.with_limits(limits).await.unwrap(), Value::Null);
            world.clock.advance_ms(10_001);
        }
        assert_eq!(world.state(required - 1).await, "pending");
    }
});

/// The number of pools with metrics.
fn n_pools_measured(world: &World) -> usize {
    let metrics = world.app.telemetry.render();
    let lines = metrics.lines();
    lines
        .filter(|line| line.starts_with("worker_manager_existing_capacity{"))
        .count()
}

/// Makes the pools with these numbers.
async fn pools(world: &World, from: usize, until: usize) {
    for number in from..until {
        let path = format!("/worker-pool/pp%2Fp{number:04}");
        world.put(&path, static_pool()).await.expect(200);
    }
}

on_both!(pools_are_measured_page_by_page, |world| {
    const LIMIT: usize = 5;
    let limits = MeasureLimits {
        page: 5,
        pages: PLENTY,
    };
    let mut n_there = 0;
    for count in sizes_around("server::background::measure::PAGE", LIMIT) {
        pools(world, n_there, count).await;
        n_there = count;
        let task = Measure(Arc::clone(&world.app));
        let (measured, counts) = world.counted(task.with_limits(limits)).await;
        measured.unwrap();
        let n_pages = (count / LIMIT + 1) as u64;
        assert_eq!(counts.transactions("measure_pools"), n_pages);
        assert_eq!(n_pools_measured(world), count);
    }
});

on_both!(
    a_bounded_number_of_pools_has_metrics_and_the_totals_count_all,
    |world| {
        let limits = MeasureLimits {
            page: 2,
            pages: MOST,
        };
        let mut n_there = 0;
        for count in sizes_around("server::background::measure::MAX_PAGES", MOST) {
            pools(world, n_there, SIZE * count).await;
            n_there = SIZE * count;
            let task = Measure(Arc::clone(&world.app));
            task.with_limits(limits).await.unwrap();
            assert_eq!(n_pools_measured(world), SIZE * count.min(MOST));
            let metrics = world.app.telemetry.render();
            let total = format!("fleetwright_worker_pools{{providerId=\"static\"}} {n_there}");
            assert!(count == 0 || metrics.contains(&total), "{metrics}");
        }
    }
);
