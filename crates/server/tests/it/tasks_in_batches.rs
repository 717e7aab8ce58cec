//! What the tasks of the server do in batches costs what it should, around the size of a batch.

use std::sync::Arc;

use domain::Version;
use domain::overrides::{Effect, Override, Target};
use serde_json::{Value, json};
use server::tasks::driver::Task;
use server::tasks::{Overrides, QueueClaims, QueueDeadlines};
use testing::sizes_around;

use crate::database::on_both;
use crate::queue_samples::HOUR_MS;
use crate::world::World;

/// A worker takes so many tasks at once.
const CLAIMS_EACH: u32 = 32;

/// What an activation says that it did.
fn done(what: &str, count: usize) -> Value {
    match count {
        0 => Value::Null,
        _ => json!({what: count}),
    }
}

/// How often a batch of this size is written until there is nothing more.
fn n_batches(count: usize, batch: usize) -> u64 {
    count.div_ceil(batch) as u64
}

/// How often it is looked whether there is anything: a batch that is not full is the last.
fn n_looks(count: usize, batch: usize) -> u64 {
    (count / batch + 1) as u64
}

/// Makes so many tasks; the first has the number `from`.
async fn create(world: &World, from: u32, count: usize, changes: &Value) {
    for number in (from..).take(count) {
        world.created(number, changes.clone()).await;
    }
}

on_both!(claims_that_run_out_are_ended_in_batches, |world| {
    const BATCH: usize = 100;
    let mut number = 0;
    for count in sizes_around("server::tasks::queue_claims::BATCH", BATCH) {
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
        let mut task = QueueClaims(Arc::clone(&world.app));
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
    for count in sizes_around("server::tasks::queue_deadlines::BATCH", BATCH) {
        let deadline = world.now().plus_millis(HOUR_MS).to_string();
        create(world, number, count, &json!({"deadline": deadline})).await;
        number += u32::try_from(count).unwrap();
        world.clock.advance_ms(2 * HOUR_MS);
        let mut task = QueueDeadlines(Arc::clone(&world.app));
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

on_both!(overrides_that_end_are_written_down_in_batches, |world| {
    const BATCH: usize = 200;
    for count in sizes_around("server::tasks::overrides::BATCH", BATCH) {
        let now = world.now();
        world
            .write(move |tx| {
                (0..count).try_for_each(|number| {
                    let given = Override {
                        id: format!("of-{count}-{number}").parse().unwrap(),
                        target: Target::Provider("google".parse().unwrap()),
                        effect: Effect::Pause,
                        reason: "prices are up".to_owned(),
                        owner: "team/ann".parse().unwrap(),
                        created: now,
                        until: now,
                        ended: None,
                        version: Version::FIRST,
                    };
                    store::override_insert(tx, &given).map(drop)
                })
            })
            .await;
        // One batch for each activation; the rest waits for the next.
        let mut left = count;
        while left > 0 {
            let mut task = Overrides(Arc::clone(&world.app));
            let (ended, counts) = world.counted(task.activate()).await;
            assert_eq!(ended.unwrap(), done("ended", left.min(BATCH)));
            assert_eq!(counts.transactions("override_end"), 1);
            left = left.saturating_sub(BATCH);
        }
        let mut task = Overrides(Arc::clone(&world.app));
        let (ended, counts) = world.counted(task.activate()).await;
        assert_eq!(ended.unwrap(), Value::Null);
        assert_eq!(counts.all_transactions(), 1, "it looks once");
    }
});
