//! Background tasks work in batches, at the expected cost around the size of a batch.

use std::sync::Arc;

use domain::Version;
use domain::event::{Event, EventBody};
use domain::overrides::{Effect, Override, Target};
use domain::time::Timestamp;
use serde_json::{Value, json};
use server::background::driver::BackgroundTask;
use server::background::{EventPublisher, Overrides, QueueClaims, QueueDeadlines};
use testing::sizes_around;

use crate::database::on_both;
use crate::queue_samples::{HOUR_MS, task_id};
use crate::samples::DAY_MS;
use crate::world::World;

/// A worker claims this many tasks at once.
const CLAIMS_EACH: u32 = 32;

/// The summary of an activation.
fn done(what: &str, count: usize) -> Value {
    match count {
        0 => Value::Null,
        _ => json!({what: count}),
    }
}

/// The number of batches of this size until nothing is left.
fn n_batches(count: usize, batch: usize) -> u64 {
    count.div_ceil(batch) as u64
}

/// The number of reads: a batch that is not full is the last.
fn n_looks(count: usize, batch: usize) -> u64 {
    (count / batch + 1) as u64
}

/// Creates this many tasks; the first has the number `from`.
async fn create(world: &World, from: u32, count: usize, changes: &Value) {
    for number in (from..).take(count) {
        world.created(number, changes.clone()).await;
    }
}

on_both!(claims_that_run_out_are_ended_in_batches, |world| {
    const BATCH: usize = 100;
    let mut number = 0;
    for count in sizes_around("server::background::queue_claims::BATCH", BATCH) {
        let deadline = world.now().plus_millis(HOUR_MS).to_string();
        create(
            world,
            number,
            count,
            &json!({"retries": 0, "deadline": deadline}),
        )
        .await;
        number += u32::try_from(count).unwrap();
        let mut claimed = 0;
        while claimed < count {
            claimed += world.claim("w", CLAIMS_EACH).await.len();
        }
        world.clock.advance_ms(1_200_000);
        let mut task = QueueClaims(Arc::clone(&world.app.engine));
        let (ended, counts) = world.counted(task.activate()).await;
        assert_eq!(ended.unwrap(), done("claims_expired", count));
        assert_eq!(counts.transactions("claims_expired"), n_looks(count, BATCH));
        assert_eq!(
            counts.transactions("claims_expire"),
            n_batches(count, BATCH)
        );
    }
});

on_both!(tasks_past_their_deadline_are_ended_in_batches, |world| {
    const BATCH: usize = 100;
    let mut number = 0;
    for count in sizes_around("server::background::queue_deadlines::BATCH", BATCH) {
        let deadline = world.now().plus_millis(HOUR_MS).to_string();
        create(world, number, count, &json!({"deadline": deadline})).await;
        number += u32::try_from(count).unwrap();
        world.clock.advance_ms(2 * HOUR_MS);
        let mut task = QueueDeadlines(Arc::clone(&world.app.engine));
        let (ended, counts) = world.counted(task.activate()).await;
        assert_eq!(ended.unwrap(), done("deadlines_missed", count));
        assert_eq!(
            counts.transactions("deadlines_missed"),
            n_looks(count, BATCH)
        );
        assert_eq!(
            counts.transactions("deadlines_miss"),
            n_batches(count, BATCH)
        );
    }
});

/// Writes `count` pauses that end at this time.
pub(crate) async fn pause(world: &World, count: usize, until: Timestamp, ended: Option<Timestamp>) {
    world
        .write(move |tx| {
            (0..count).try_for_each(|number| {
                let given = Override {
                    id: format!("of-{count}-{number}").parse().unwrap(),
                    target: Target::Provider("google".parse().unwrap()),
                    effect: Effect::Pause,
                    reason: "prices are up".to_owned(),
                    owner: "team/ann".parse().unwrap(),
                    created: until,
                    until,
                    ended,
                    version: Version::FIRST,
                };
                store::overrides::insert(tx, &given).map(drop)
            })
        })
        .await;
}

on_both!(overrides_that_end_are_written_down_in_batches, |world| {
    const BATCH: usize = 200;
    for count in sizes_around("server::background::overrides::BATCH", BATCH) {
        pause(world, count, world.now(), None).await;
        // One batch for each activation; the rest waits for the next.
        let mut left = count;
        while left > 0 {
            let mut task = Overrides(Arc::clone(&world.app.engine));
            let (ended, counts) = world.counted(task.activate()).await;
            assert_eq!(ended.unwrap(), done("ended", left.min(BATCH)));
            assert_eq!(counts.transactions("override_end"), 1);
            left = left.saturating_sub(BATCH);
        }
        let mut task = Overrides(Arc::clone(&world.app.engine));
        let (ended, counts) = world.counted(task.activate()).await;
        assert_eq!(ended.unwrap(), Value::Null);
        assert_eq!(counts.all_transactions(), 1, "it looks once");
    }
});

on_both!(expired_tasks_are_deleted_in_batches, |world| {
    const BATCH: usize = 25;
    let long_ago = world.now().plus_millis(-100 * DAY_MS);
    for count in sizes_around("server::background::housekeeping::BATCH", BATCH) {
        pause(world, count, long_ago, Some(long_ago)).await;
        let (forgotten, counts) = world.counted(world.keep_house()).await;
        assert_eq!(forgotten, done("overrides", count));
        assert_eq!(
            counts.transactions("override_expire"),
            n_looks(count, BATCH)
        );
    }
});

on_both!(events_get_their_places_in_batches, |world| {
    const BATCH: usize = 500;
    EventPublisher(Arc::clone(&world.app))
        .activate()
        .await
        .unwrap();
    for count in sizes_around("server::background::publish::BATCH", BATCH) {
        let created = world.now();
        world
            .write(move |tx| {
                (0..count).try_for_each(|number| {
                    let event = Event {
                        id: format!("of-{count}-{number}"),
                        created,
                        body: EventBody::PoolCreated {
                            pool_id: "pp/ee".parse().unwrap(),
                            provider_id: "google".parse().unwrap(),
                        },
                    };
                    store::outbox::push(tx, &event)
                })
            })
            .await;
        let mut task = EventPublisher(Arc::clone(&world.app));
        let (published, counts) = world.counted(task.activate()).await;
        published.unwrap();
        assert_eq!(counts.transactions("event_place"), n_batches(count, BATCH));
        assert_eq!(counts.transactions("event_look"), n_looks(count, BATCH));
        assert_eq!(world.read(store::outbox::depth).await, 0);
    }
});

on_both!(a_group_is_cancelled_in_batches, |world| {
    const BATCH: usize = 100;
    let mut number = 0;
    for count in sizes_around("engine::queue::task_groups::BATCH", BATCH) {
        let group = task_id(number);
        // A resolved task, so that a group of none exists.
        world.created(number, json!({"taskGroupId": group})).await;
        world.about_task(number, "cancel").await.expect(200);
        create(world, number + 1, count, &json!({"taskGroupId": group})).await;
        number += 1 + u32::try_from(count).unwrap();
        let sealing = world.post(&format!("queue:/task-group/{group}/seal"), json!({}));
        sealing.await.expect(200);
        let cancelled = world.post(&format!("queue:/task-group/{group}/cancel"), json!({}));
        let (answer, counts) = world.counted(async { cancelled.await.expect(200) }).await;
        assert_eq!(answer["cancelledCount"], count);
        assert_eq!(
            counts.transactions("task_group_move"),
            n_looks(count, BATCH)
        );
    }
});
