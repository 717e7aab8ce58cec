//! Tasks that are announced by tasks that run.

use domain::market::{Announced, ObservedTime, PoolRecord};
use domain::task::{Requires, Task};
use store::{Store, announced_tasks, dependencies, pool_memories};
use testing::sizes_around;

use crate::samples::{at, pool_id};
use crate::task_dependencies::waiting_in;
use crate::tasks::{change, insert, task};
use crate::world::{on_both, read, write};

const MINUTE_MS: i64 = 60_000;

/// A pool that knows that its tasks take 90 s.
async fn learn(store: &Store, pool: &'static str) {
    write(store, move |tx| {
        let time = ObservedTime::new(at(0));
        let mut record = PoolRecord::new(pool_id(pool), 0, &time);
        for _ in 0..40 {
            record.memory.add_task(90_000);
        }
        pool_memories::write(tx, &record, &time)
    })
    .await;
}

/// The task is claimed in this minute.
async fn claim(store: &Store, number: u32, minute: i64) {
    change(store, number, move |task: Task| {
        let task = task.schedule(at(1)).unwrap().task;
        let (group, worker) = ("g".parse().unwrap(), format!("w{number}").parse().unwrap());
        let (now, until) = (at(minute * MINUTE_MS + 7), at(90_000));
        task.claim(0, &group, &worker, now, until).unwrap().task
    })
    .await;
}

async fn require(store: &Store, queue: &str, number: u32, required: &[u32]) {
    let task = waiting_in(queue, number, Requires::AllCompleted, required);
    insert(store, vec![task.clone()]).await;
    write(store, move |tx| dependencies::require(tx, &task)).await;
}

/// The pools, minutes and numbers of the announced tasks.
async fn announced(store: &Store) -> Vec<(String, i64, u64)> {
    let pools = ["t/one", "t/two", "t/idle"].map(pool_id);
    let found = read(store, move |tx| announced_tasks::of(tx, &pools, at(50)));
    let rows = found.await.into_iter().map(|(pool, tasks)| {
        let Announced {
            count,
            since,
            run_ms,
            ..
        } = tasks;
        assert_eq!(run_ms, 90_000.0);
        (pool.to_string(), since.as_millis() / MINUTE_MS, count)
    });
    rows.collect()
}

fn row(pool: &str, minute: i64, count: u64) -> (String, i64, u64) {
    (pool.to_owned(), minute, count)
}

on_both!(
    tasks_are_announced_when_all_that_they_wait_for_runs,
    |database| {
        let store = database.migrated().await;
        learn(&store, "b/builds").await;
        insert(
            &store,
            (1..=4).map(|number| task(number, "b/builds")).collect(),
        )
        .await;
        require(&store, "t/one", 10, &[1]).await;
        require(&store, "t/one", 11, &[1]).await;
        require(&store, "t/two", 12, &[1, 2]).await;
        require(&store, "t/two", 13, &[1, 3]).await;
        require(&store, "t/unasked", 14, &[1]).await;
        assert_eq!(announced(&store).await, []);
        claim(&store, 1, 0).await;
        // Task 12 waits for task 2, which waits itself.
        assert_eq!(announced(&store).await, [row("t/one", 0, 2)]);
        claim(&store, 2, 1).await;
        // Of two runs, the later one counts.
        let expected = [row("t/one", 0, 2), row("t/two", 1, 1)];
        assert_eq!(announced(&store).await, expected);
        // Once the task is done, its dependents are no longer announced by it.
        change(&store, 1, |task| task.report(0, true, at(60)).unwrap().task).await;
        for number in [10, 11, 12, 13] {
            write(&store, move |tx| {
                dependencies::release(
                    tx,
                    &crate::tasks::task_id(1),
                    &crate::tasks::task_id(number),
                )
            })
            .await;
        }
        assert_eq!(announced(&store).await, [row("t/two", 1, 1)]);
    }
);

on_both!(
    runs_of_unknown_length_and_lost_claims_announce_nothing,
    |database| {
        let store = database.migrated().await;
        insert(&store, vec![task(1, "b/builds")]).await;
        require(&store, "t/one", 10, &[1]).await;
        claim(&store, 1, 0).await;
        assert_eq!(announced(&store).await, []);
        learn(&store, "b/builds").await;
        assert_eq!(announced(&store).await, [row("t/one", 0, 1)]);
        let pools = [pool_id("t/one")];
        let late = read(&store, move |tx| {
            announced_tasks::of(tx, &pools, at(90_000))
        })
        .await;
        assert_eq!(late, []);
        let none = read(&store, |tx| announced_tasks::of(tx, &[], at(50))).await;
        assert_eq!(none, []);
    }
);

// On PostgreSQL in a database that no other test used: with what it knows of the tables of another
// test, it may look through all dependencies for each of them.
on_both!(new a_bounded_number_of_dependencies_is_read, |database| {
    let store = database.migrated().await;
    learn(&store, "b/builds").await;
    insert(&store, vec![task(1, "b/builds")]).await;
    claim(&store, 1, 0).await;
    // The last dependency is that of a task which exists.
    let waiting = waiting_in("t/one", 99_999_999, Requires::AllCompleted, &[1]);
    insert(&store, vec![waiting.clone()]).await;
    let limit = 5_000;
    let mut n_before = 0;
    let sizes = sizes_around("store::queue::announced_tasks::MAX_DEPENDENCIES", limit);
    for size in sizes {
        let (last, others) = (waiting.clone(), size.saturating_sub(1));
        let from = std::mem::replace(&mut n_before, others);
        write(&store, move |tx| {
            for number in from..others {
                let number = u32::try_from(100 + number).unwrap();
                let task = waiting_in("t/one", number, Requires::AllCompleted, &[1]);
                dependencies::require(tx, &task)?;
            }
            if size > 0 {
                dependencies::require(tx, &last)?;
            }
            Ok(())
        })
        .await;
        let count = announced(&store).await.len();
        assert_eq!(count, usize::from((1..=limit).contains(&size)), "{size}");
    }
});
