//! How many errors, causes and notices one activation counts, examines, sends and deletes.
//!
//! All limits are smaller here than the server's defaults.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use domain::Version;
use domain::pool::Pool;
use domain::time::{DAY_MS, HOUR_MS, MINUTE_MS, Timestamp};
use serde_json::{Value, json};
use server::background::driver::BackgroundTask;
use server::background::{Batches, Notifier, NotifierLimits};
use server::notify::{Channel, Content, Notification, SendError};
use store::notice_causes::NoticeCause;
use testing::sizes_around;

use crate::database::on_both;
use crate::notices::{report, with_pool};
use crate::world::World;

const LIMIT: usize = 5;
/// Longer than errors gather.
const GATHER_MS: i64 = 30_000;
const ID: &str = "kept";

/// Keeps the notices that it should send. Every pool has a recipient of its own.
#[derive(Default)]
struct Kept(Mutex<Vec<Content>>);

#[async_trait]
impl Channel for Kept {
    fn id(&self) -> &str {
        ID
    }

    fn name(&self) -> &str {
        ID
    }

    fn recipient(&self, pool: &Pool) -> Option<String> {
        Some(pool.id.to_string())
    }

    async fn send(&self, letter: &Notification<'_>) -> Result<(), SendError> {
        self.0.lock().unwrap().push(letter.content.clone());
        Ok(())
    }
}

/// A notifier that listens from now on, and the notices that it sends.
async fn telling(world: &World, limits: NotifierLimits) -> (Notifier, Arc<Kept>) {
    let kept = Arc::new(Kept::default());
    let channel: Arc<dyn Channel> = Arc::clone(&kept) as _;
    let mut task = Notifier::with_limits(Arc::clone(&world.app), channel, limits);
    task.activate().await.unwrap();
    (task, kept)
}

fn errors(size: u32, most: usize) -> NotifierLimits {
    NotifierLimits {
        errors: Batches { size, most },
        ..NotifierLimits::default()
    }
}

/// The causes of this channel that were not reported yet.
async fn waiting_causes(world: &World, channel: &'static str) -> Vec<NoticeCause> {
    let far = world.now().plus_millis(1_000 * DAY_MS);
    let due = world.read(move |tx| store::notice_causes::list_due(tx, channel, far, 10_000));
    due.await
}

async fn n_untold(world: &World) -> u64 {
    let causes = waiting_causes(world, ID).await.into_iter();
    causes.map(|cause| cause.n_waiting).sum()
}

/// Reports `count` errors, each with a cause of its own if `are_different`.
async fn report_all(world: &World, pool: &str, count: usize, are_different: bool) {
    for number in 0..count {
        let title = if are_different {
            format!("Trouble of kind {}", kind(number))
        } else {
            "Disk full".to_owned()
        };
        // Further errors of one worker are only counted.
        let worker = format!("w{number}");
        report(world, pool, &worker, &title, "no space is left").await;
    }
}

/// In letters: numbers do not distinguish causes.
fn kind(number: usize) -> String {
    let letter = |digit: usize| char::from(b'a' + u8::try_from(digit).unwrap());
    [number / 26, number % 26].map(letter).iter().collect()
}

on_both!(errors_are_counted_in_batches, |world| {
    with_pool(world, "a/b", json!({})).await;
    let (mut task, _) = telling(world, errors(5, 1_000)).await;
    let mut n_reported = 0;
    for count in sizes_around("server::notify::collect::BATCH", LIMIT) {
        report_all(world, "a/b", count, false).await;
        n_reported += count as u64;
        let (done, counts) = world.counted(task.activate()).await;
        assert_eq!(done.unwrap(), Value::Null);
        let n_batches = count.div_ceil(LIMIT) as u64;
        assert_eq!(counts.transactions("notice_collect"), n_batches);
        assert_eq!(n_untold(world).await, n_reported);
    }
});

on_both!(an_activation_counts_a_bounded_number_of_errors, |world| {
    const SIZE: usize = 2;
    const MOST: usize = 3;
    with_pool(world, "a/b", json!({})).await;
    let (mut task, _) = telling(world, errors(2, MOST)).await;
    let mut n_counted = 0;
    for count in sizes_around("server::background::notifier::MAX_BATCHES", MOST) {
        report_all(world, "a/b", SIZE * count, false).await;
        let mut left = SIZE * count;
        while left > 0 {
            task.activate().await.unwrap();
            let now = left.min(SIZE * MOST);
            n_counted += now as u64;
            assert_eq!(n_untold(world).await, n_counted);
            left -= now;
        }
    }
});

on_both!(
    a_bounded_number_of_causes_of_a_pool_is_kept_apart,
    |world| {
        let limits = NotifierLimits {
            causes: LIMIT as u64,
            ..NotifierLimits::default()
        };
        let (mut task, _) = telling(world, limits).await;
        let mut n_before = 0;
        for count in sizes_around("server::notify::collect::MAX_CAUSES", LIMIT) {
            let pool = format!("a/of-{count}");
            with_pool(world, &pool, json!({})).await;
            report_all(world, &pool, count, true).await;
            task.activate().await.unwrap();
            let causes = waiting_causes(world, ID).await;
            // Further causes are one cause, in which every error counts.
            let n_kept = count.min(LIMIT) + usize::from(count > LIMIT);
            assert_eq!(causes.len() - n_before, n_kept);
            n_before = causes.len();
            let ours = causes.iter().filter(|cause| cause.pool_id.as_str() == pool);
            assert_eq!(ours.map(|cause| cause.n_waiting).sum::<u64>(), count as u64);
        }
    }
);

on_both!(a_notice_has_a_bounded_number_of_causes, |world| {
    let limits = NotifierLimits {
        due: 5,
        causes: 1_000,
        ..NotifierLimits::default()
    };
    let (mut task, kept) = telling(world, limits).await;
    for count in sizes_around("server::notify::next_notice::MAX_DUE", LIMIT) {
        let pool = format!("a/of-{count}");
        with_pool(world, &pool, json!({})).await;
        report_all(world, &pool, count, true).await;
        task.activate().await.unwrap();
        world.clock.advance_ms(GATHER_MS);
        task.activate().await.unwrap();
        let sent = std::mem::take(&mut *kept.0.lock().unwrap());
        assert_eq!(sent.len(), count.div_ceil(LIMIT));
        let told = sent
            .iter()
            .map(|content| content.causes.len() + usize::try_from(content.further.causes).unwrap());
        let told: Vec<usize> = told.collect();
        assert!(told.iter().all(|told| *told <= LIMIT), "{told:?}");
        assert_eq!(told.iter().sum::<usize>(), count);
    }
});

on_both!(an_activation_sends_a_bounded_number_of_notices, |world| {
    const MOST: usize = 3;
    let limits = NotifierLimits {
        sent: MOST,
        ..NotifierLimits::default()
    };
    let (mut task, kept) = telling(world, limits).await;
    for count in sizes_around("server::background::notifier::MAX_SENT", MOST) {
        for number in 0..count {
            let pool = format!("a/of-{count}-{number}");
            with_pool(world, &pool, json!({})).await;
            report(world, &pool, "w", "Disk full", "no space is left").await;
        }
        task.activate().await.unwrap();
        world.clock.advance_ms(GATHER_MS);
        let mut left = count;
        while left > 0 {
            let now = left.min(MOST);
            assert_eq!(task.activate().await.unwrap(), json!({"sent": now}));
            left -= now;
        }
        assert_eq!(task.activate().await.unwrap(), Value::Null);
        let sent = std::mem::take(&mut *kept.0.lock().unwrap());
        assert_eq!(sent.len(), count);
        world.clock.advance_ms(2 * HOUR_MS);
    }
});

/// Writes settled causes of a channel, last reported at the given moment.
async fn old_causes(world: &World, count: usize, moment: Timestamp) {
    world
        .write(move |tx| {
            (0..count).try_for_each(|number| {
                let cause = NoticeCause {
                    channel: "gone".to_owned(),
                    pool_id: "a/b".parse().unwrap(),
                    cause: format!("{number:05}"),
                    error_id: "AAAAAAAAQACAAAAAAAAAAA".parse().unwrap(),
                    first_reported: moment,
                    last_reported: moment,
                    n_waiting: 1,
                    first_waiting: Some(moment),
                    n_notified: 0,
                    last_notified: None,
                    due: Some(moment),
                    version: Version::FIRST,
                };
                store::notice_causes::insert(tx, &cause)
            })
        })
        .await;
}

on_both!(settled_causes_are_deleted_in_batches, |world| {
    let limits = NotifierLimits {
        forgotten: 5,
        ..NotifierLimits::default()
    };
    let (mut task, _) = telling(world, limits).await;
    for count in sizes_around("server::background::notifier::FORGET_BATCH", LIMIT) {
        old_causes(world, count, world.now()).await;
        world.clock.advance_ms(8 * DAY_MS);
        let mut left = count;
        // While batches are full, the next activation follows at once.
        for _ in 0..=count / LIMIT {
            task.activate().await.unwrap();
            left -= left.min(LIMIT);
            assert_eq!(waiting_causes(world, "gone").await.len(), left);
        }
        // Then expired rows are looked for at intervals.
        let look = world.counted(task.activate());
        assert_eq!(look.await.1.transactions("notice_forget"), 0);
        world.clock.advance_ms(10 * MINUTE_MS);
        let look = world.counted(task.activate());
        assert_eq!(look.await.1.transactions("notice_forget"), 1);
    }
});
