//! Recently used task queues, and the provisioners at the beginning of their names.

use domain::time::{DAY_MS, MINUTE_MS};
use store::{Store, Tx, task_queues};

use crate::samples::{at, pool_id};
use crate::world::{on_both, read, write};

async fn note_used(store: &Store, id: &'static str, now: i64, has_worker: bool) {
    write(store, move |tx| {
        task_queues::note_used(tx, &pool_id(id), at(now), has_worker)
    })
    .await;
}

async fn times(store: &Store, id: &'static str) -> Option<(i64, i64)> {
    let found = read(store, move |tx| task_queues::get(tx, &pool_id(id), at(0))).await;
    found.map(|queue| {
        (
            queue.last_date_active.as_millis(),
            queue.expires.as_millis(),
        )
    })
}

on_both!(
    a_queue_is_listed_for_longer_after_a_task_than_after_a_worker,
    |database| {
        let store = database.migrated().await;
        assert_eq!(times(&store, "a/b").await, None);
        note_used(&store, "a/b", 1_000, true).await;
        assert_eq!(times(&store, "a/b").await, Some((1_000, 1_000 + DAY_MS)));
        // A task follows immediately: the longer time counts.
        note_used(&store, "a/b", 2_000, false).await;
        let longer = 2_000 + 5 * DAY_MS;
        assert_eq!(times(&store, "a/b").await, Some((2_000, longer)));
        // A moment later nothing is written, and later the expiry does not become earlier.
        note_used(&store, "a/b", 2_000 + 4 * MINUTE_MS, true).await;
        assert_eq!(times(&store, "a/b").await, Some((2_000, longer)));
        let later = 2_000 + 6 * MINUTE_MS;
        note_used(&store, "a/b", later, true).await;
        assert_eq!(times(&store, "a/b").await, Some((later, longer)));
        let queue = read(&store, |tx| task_queues::get(tx, &pool_id("a/b"), at(0)));
        let queue = queue.await.unwrap();
        assert_eq!(
            (queue.description.as_str(), queue.stability.as_str()),
            ("", "experimental")
        );
    }
);

on_both!(queues_are_listed_by_name_and_provisioner, |database| {
    let store = database.migrated().await;
    for id in ["b/x", "a/y", "a/x", "a-b/x", "A/x"] {
        note_used(&store, id, 1_000, true).await;
    }
    let list = async |provisioner: Option<&'static str>, after: Option<&'static str>, now: i64| {
        let queues = read(&store, move |tx| {
            task_queues::list(tx, provisioner, after.map(pool_id).as_ref(), at(now), 3)
        });
        let ids = queues.await.into_iter().map(|queue| queue.id.to_string());
        ids.collect::<Vec<_>>()
    };
    assert_eq!(list(None, None, 0).await, ["A/x", "a-b/x", "a/x"]);
    assert_eq!(list(None, Some("a/x"), 0).await, ["a/y", "b/x"]);
    assert_eq!(list(Some("a"), None, 0).await, ["a/x", "a/y"]);
    assert_eq!(list(Some("a"), Some("a/x"), 0).await, ["a/y"]);
    assert!(list(Some("c"), None, 0).await.is_empty());
    assert!(list(None, None, 1_001 + DAY_MS).await.is_empty());
});

on_both!(
    a_provisioner_has_the_latest_times_of_its_queues,
    |database| {
        let store = database.migrated().await;
        let all_letters = "a/abcdefghijklmnopqrstuvwxyz-0123456789";
        for (id, now) in [
            ("b-_9/x", 3_000),
            ("a/x", 1_000),
            (all_letters, 2_000),
            ("A/x", 5),
        ] {
            note_used(&store, id, now, true).await;
        }
        let list = async |after: Option<&'static str>, now: i64, limit: u32| {
            let found = read(&store, move |tx| {
                task_queues::list_provisioners(tx, after, at(now), limit)
            });
            let lines = found.await.into_iter().map(|found| {
                format!(
                    "{} {} {}",
                    found.id,
                    found.last_date_active.as_millis(),
                    found.expires.as_millis() - DAY_MS
                )
            });
            lines.collect::<Vec<_>>()
        };
        assert_eq!(
            list(None, 0, 9).await,
            ["A 5 5", "a 2000 2000", "b-_9 3000 3000"]
        );
        assert_eq!(list(None, 0, 2).await, ["A 5 5", "a 2000 2000"]);
        assert_eq!(list(Some("a"), 0, 2).await, ["b-_9 3000 3000"]);
        assert_eq!(list(None, 2_500 + DAY_MS, 9).await, ["b-_9 3000 3000"]);
        let one = read(&store, |tx| task_queues::get_provisioner(tx, "a", at(0)))
            .await
            .unwrap();
        assert_eq!(one.last_date_active, at(2_000));
        for unknown in ["", "b", "a/x"] {
            let found = read(&store, move |tx| {
                task_queues::get_provisioner(tx, unknown, at(0))
            });
            assert_eq!(found.await, None, "{unknown}");
        }
    }
);

on_both!(unused_queues_are_deleted, |database| {
    let store = database.migrated().await;
    for (id, now) in [("a/x", 10), ("a/y", 20), ("a/z", 30)] {
        note_used(&store, id, now, true).await;
    }
    let gone = async |now: i64, limit: u32| {
        let deleted = write(&store, move |tx| {
            task_queues::delete_expired(tx, at(now), limit)
        });
        deleted.await
    };
    assert_eq!(gone(DAY_MS + 30, 1).await, 1);
    assert_eq!(gone(DAY_MS + 30, 9).await, 1);
    assert_eq!(times(&store, "a/z").await, Some((30, 30 + DAY_MS)));
});

/// Two transactions, the second during the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recording_a_recently_used_queue_writes_nothing_and_does_not_wait() {
    let Some(database) = crate::world::Database::postgres() else {
        return;
    };
    let (store, other) = (database.migrated().await, database.open());
    let see = |tx: &mut Tx<'_>| task_queues::note_used(tx, &"a/b".parse().unwrap(), at(1), false);
    write(&store, see).await;
    store.take_counts();
    let runtime = tokio::runtime::Handle::current();
    write(&store, move |tx| {
        see(tx)?;
        runtime.block_on(other.write("other", see))
    })
    .await;
    let counts = store.take_counts();
    assert_eq!(counts.transactions("test_write"), 1);
    assert_eq!(counts.statements("task_queue_touch"), 0);
}
