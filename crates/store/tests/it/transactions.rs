//! What a transaction promises: all or nothing, one snapshot, no lost change, no dead thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;

use store::{
    Counts, MAX_ATTEMPTS, MAX_ROWS, Options, Store, StoreError, outbox, pools, worker_types,
    workers,
};

use crate::samples::{event, pool, pool_id, worker, worker_key};
use crate::world::{on_both, read, write};

on_both!(every_statement_is_understood_by_the_database, |database| {
    let store = database.migrated().await;
    assert!(store.check_statements().await.unwrap() > 50);
    store.ping().await.unwrap();
});

on_both!(an_error_rolls_back_everything_the_outbox_too, |database| {
    let store = database.migrated().await;
    let failed: Result<(), StoreError> = store
        .write("fails", |tx| {
            pools::insert(tx, &pool("a/b", "one"))?;
            outbox::push(tx, &event("one", "a/b"))?;
            Err(StoreError::BadUrl("no reason".to_owned()))
        })
        .await;
    assert!(matches!(failed, Err(StoreError::BadUrl(_))));
    assert_eq!(
        read(&store, |tx| pools::get(tx, &pool_id("a/b"))).await,
        None
    );
    assert_eq!(read(&store, outbox::depth).await, 0);
});

on_both!(what_transactions_do_is_counted_by_name, |database| {
    let store = database.migrated().await;
    write(&store, |tx| pools::insert(tx, &pool("a/b", "one"))).await;
    assert_eq!(store.take_counts(), Counts::default(), "nobody counted yet");
    for id in ["a/c", "a/d"] {
        write(&store, move |tx| pools::insert(tx, &pool(id, "one"))).await;
    }
    let listed = read(&store, |tx| pools::list(tx, None, 9)).await;
    let counts = store.take_counts();
    assert_eq!(counts.transactions("test_write"), 2);
    assert_eq!(counts.all_transactions(), 3);
    assert_eq!(counts.statements("pool_insert"), 2);
    assert_eq!(counts.all_statements(), 3);
    assert_eq!(counts.rows("pool_list"), listed.len() as u64);
    assert_eq!(counts.all_rows(), 3);
    assert_eq!(store.take_counts(), Counts::default());
});

on_both!(a_failed_statement_cannot_be_overlooked, |database| {
    let store = database.migrated().await;
    database.raw("DROP TABLE outbox");
    let failed: Result<(), StoreError> = store
        .write("overlooks", |tx| {
            pools::insert(tx, &pool("a/b", "one"))?;
            let _overlooked = outbox::push(tx, &event("one", "a/b"));
            Ok(())
        })
        .await;
    assert!(
        matches!(failed, Err(StoreError::Overlooked { .. })),
        "{failed:?}"
    );
    assert_eq!(
        read(&store, |tx| pools::get(tx, &pool_id("a/b"))).await,
        None
    );
});

on_both!(a_panic_is_answered_rolled_back_and_survived, |database| {
    let store = database.migrated().await;
    for _ in 0..10 {
        let failed: Result<(), StoreError> = store
            .write("panics", |tx| {
                pools::insert(tx, &pool("a/b", "one"))?;
                panic!("a bug in a closure");
            })
            .await;
        assert!(
            matches!(failed, Err(StoreError::Panicked { name: "panics" })),
            "{failed:?}"
        );
        let failed: Result<(), StoreError> =
            store.read("panics", |_| panic!("a bug in a closure")).await;
        assert!(
            matches!(failed, Err(StoreError::Panicked { .. })),
            "{failed:?}"
        );
    }
    assert_eq!(
        read(&store, |tx| pools::get(tx, &pool_id("a/b"))).await,
        None
    );
    assert!(write(&store, |tx| pools::insert(tx, &pool("a/b", "one"))).await);
});

on_both!(a_write_in_a_read_is_refused, |database| {
    let store = database.migrated().await;
    let failed = store
        .read("writes", |tx| pools::insert(tx, &pool("a/b", "one")))
        .await;
    assert!(
        matches!(failed, Err(StoreError::Query { .. })),
        "{failed:?}"
    );
    assert!(write(&store, |tx| pools::insert(tx, &pool("a/b", "one"))).await);
});

on_both!(a_read_sees_one_snapshot_while_others_write, |database| {
    let store = database.migrated().await;
    write(&store, |tx| pools::insert(tx, &pool("a/p1", "one"))).await;
    let (looked, has_looked) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel();
    let reading = store.clone();
    let reader = tokio::spawn(async move {
        reading
            .scan("snapshot", move |tx| {
                let before = pools::list(tx, None, 10)?.len();
                looked.send(()).unwrap();
                may_go_on.recv().unwrap();
                Ok::<_, StoreError>((before, pools::list(tx, None, 10)?.len()))
            })
            .await
            .unwrap()
    });
    tokio::task::spawn_blocking(move || has_looked.recv().unwrap())
        .await
        .unwrap();
    write(&store, |tx| pools::insert(tx, &pool("a/p2", "one"))).await;
    go_on.send(()).unwrap();
    assert_eq!(reader.await.unwrap(), (1, 1));
    assert_eq!(read(&store, |tx| pools::list(tx, None, 10)).await.len(), 2);
});

/// Reads, changes and writes back under guard, as every caller should.
async fn add_one(store: Store) -> Result<(), StoreError> {
    store
        .write("add_one", |tx| {
            let mut worker = workers::get(tx, &worker_key("a/b", "g", "w"))?.unwrap();
            worker.capacity += 1;
            workers::update(tx, &worker).map(drop)
        })
        .await
}

on_both!(
    of_32_tasks_that_change_one_row_no_change_is_lost,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| workers::insert(tx, &worker("a/b", "g", "w"))).await;
        let tasks: Vec<_> = (0..32)
            .map(|_| tokio::spawn(add_one(store.clone())))
            .collect();
        let mut n_done = 0;
        for task in tasks {
            task.await.unwrap().unwrap();
            n_done += 1;
        }
        let found = read(&store, |tx| workers::get(tx, &worker_key("a/b", "g", "w")))
            .await
            .unwrap();
        assert_eq!(
            (found.capacity, found.version.0),
            (2 + n_done, 1 + i64::from(n_done))
        );
    }
);

on_both!(two_stores_that_change_one_row_lose_no_change, |database| {
    let (one, two) = (database.migrated().await, database.open());
    write(&one, |tx| workers::insert(tx, &worker("a/b", "g", "w"))).await;
    let tasks: Vec<_> = (0..16)
        .map(|n| tokio::spawn(add_one(if n % 2 == 0 { one.clone() } else { two.clone() })))
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let found = read(&two, |tx| workers::get(tx, &worker_key("a/b", "g", "w")))
        .await
        .unwrap();
    assert_eq!(found.capacity, 18);
});

on_both!(
    who_always_loses_is_told_so_after_a_bounded_number_of_attempts,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| pools::insert(tx, &pool("a/b", "one"))).await;
        let attempts = Arc::new(AtomicU32::new(0));
        let counting = attempts.clone();
        let failed = store
            .write("stale", move |tx| {
                counting.fetch_add(1, Ordering::Relaxed);
                let mut stale = pool("a/b", "two");
                stale.version = domain::Version(99);
                pools::update(tx, &stale)
            })
            .await;
        assert!(
            matches!(failed, Err(StoreError::Congested { name: "stale", .. })),
            "{failed:?}"
        );
        assert_eq!(attempts.load(Ordering::Relaxed), MAX_ATTEMPTS);
    }
);

on_both!(
    a_lost_race_runs_again_even_when_the_closure_overlooks_it,
    |database| {
        let store = database.migrated().await;
        let mut n_runs = 0;
        let n_runs = write(&store, move |tx| {
            n_runs += 1;
            if n_runs < 3 {
                pools::insert(tx, &pool("a/leftover", "one"))?;
                let _overlooked = tx.lost_race();
            }
            Ok(n_runs)
        })
        .await;
        assert_eq!(n_runs, 3);
        assert!(read(&store, |tx| pools::list(tx, None, 1)).await.is_empty());
    }
);

on_both!(
    a_closed_store_refuses_and_finishes_what_it_had_begun,
    |database| {
        let store = database.migrated().await;
        let (begun, has_begun) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let writing = store.clone();
        let writer = tokio::spawn(async move {
            writing
                .write("slow", move |tx| {
                    begun.send(()).unwrap();
                    may_go_on.recv().unwrap();
                    pools::insert(tx, &pool("a/b", "one"))
                })
                .await
        });
        tokio::task::spawn_blocking(move || has_begun.recv().unwrap())
            .await
            .unwrap();
        let closing = store.clone();
        let closer = tokio::spawn(async move { closing.close().await });
        go_on.send(()).unwrap();
        closer.await.unwrap();
        assert!(writer.await.unwrap().unwrap());
        let refused = store.read("late", |tx| pools::list(tx, None, 1)).await;
        assert!(matches!(refused, Err(StoreError::Closed)));
        let refused = store.write("late", |tx| pools::list(tx, None, 1)).await;
        assert!(matches!(refused, Err(StoreError::Closed)));
        let again = database.open();
        assert_eq!(read(&again, |tx| pools::list(tx, None, 5)).await.len(), 1);
    }
);

on_both!(
    a_write_whose_caller_left_before_it_began_is_not_done,
    |database| {
        let options = Options {
            connections: 1,
            ..database.options.clone()
        };
        let store = Store::open(&options).unwrap();
        store.migrate(1).await.unwrap();
        let (begun, has_begun) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let holding = store.clone();
        let holder = tokio::spawn(async move {
            holding
                .write("holds", move |_| {
                    begun.send(()).unwrap();
                    may_go_on.recv().unwrap();
                    Ok::<_, StoreError>(())
                })
                .await
        });
        tokio::task::spawn_blocking(move || has_begun.recv().unwrap())
            .await
            .unwrap();
        let leaving = store.write("leaves", |tx| pools::insert(tx, &pool("a/b", "one")));
        // Polled once, so it is in the queue, then dropped.
        let _ = begin_and_drop(leaving).await;
        go_on.send(()).unwrap();
        holder.await.unwrap().unwrap();
        assert!(read(&store, |tx| pools::list(tx, None, 1)).await.is_empty());
        store.close().await;
    }
);

/// Lets a future begin, then drops it.
async fn begin_and_drop<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match future.as_mut().poll(context) {
            std::task::Poll::Ready(value) => Some(value),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

on_both!(
    more_callers_than_threads_and_places_are_all_served,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| pools::insert(tx, &pool("a/b", "one"))).await;
        let tasks: Vec<_> = (0..1_000)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move {
                    store
                        .scan("many", |tx| pools::get(tx, &pool_id("a/b")))
                        .await
                })
            })
            .collect();
        for task in tasks {
            assert!(task.await.unwrap().unwrap().is_some());
        }
    }
);

on_both!(a_corrupt_row_is_named_and_no_panic, |database| {
    let store = database.migrated().await;
    write(&store, |tx| workers::insert(tx, &worker("a/b", "g", "w"))).await;
    for (column, value) in [
        ("terms", "'{'"),
        ("state", "'weird'"),
        ("capacity", "-1"),
        ("capacity", "5000000000"),
        ("provider_id", "'no spaces please'"),
        ("previous_secret_until", "NULL"),
    ] {
        database.raw(&format!("UPDATE workers SET {column} = {value}"));
        let failed = store
            .read("corrupt", |tx| {
                workers::get(tx, &worker_key("a/b", "g", "w"))
            })
            .await;
        let Err(StoreError::Corrupt { table, key, .. }) = &failed else {
            panic!("{column} = {value}: {failed:?}");
        };
        assert_eq!((*table, key.as_str()), ("workers", "a/b g w"));
        database.raw("DELETE FROM workers");
        write(&store, |tx| workers::insert(tx, &worker("a/b", "g", "w"))).await;
    }
});

/// On PostgreSQL only: SQLite serves one process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_stands_still_in_a_transaction_holds_others_up_for_seconds_and_loses_nothing()
 {
    let Some(database) = crate::world::Database::postgres() else {
        return;
    };
    let (frozen, other) = (database.migrated().await, database.open());
    write(&frozen, |tx| workers::insert(tx, &worker("a/b", "g", "w"))).await;
    let (thaw, frozen_until) = mpsc::channel::<()>();
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let mut once = Some((begun, frozen_until));
    let runs = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&runs);
    let freezing = tokio::spawn(async move {
        let write = frozen.write("frozen", move |tx| {
            counted.fetch_add(1, Ordering::Relaxed);
            let mut worker = workers::get(tx, &worker_key("a/b", "g", "w"))?.unwrap();
            worker.capacity += 1;
            workers::update(tx, &worker)?;
            if let Some((begun, frozen_until)) = once.take() {
                begun.send(()).unwrap();
                assert!(frozen_until.recv().is_err());
            }
            Ok::<_, StoreError>(())
        });
        write.await
    });
    has_begun.await.unwrap();
    // The server ends the frozen transaction, and this one runs again until then.
    add_one(other.clone()).await.unwrap();
    drop(thaw);
    freezing.await.unwrap().unwrap();
    assert_eq!(runs.load(Ordering::Relaxed), 2);
    let found = read(&other, |tx| workers::get(tx, &worker_key("a/b", "g", "w"))).await;
    assert_eq!(found.unwrap().capacity, 2 + 2);
}

on_both!(
    what_runs_is_counted_from_the_first_question_on,
    |database| {
        let store = database.migrated().await;
        assert_eq!(store.take_counts(), Counts::default());
        write(&store, |tx| pools::insert(tx, &pool("a/b", "one"))).await;
        read(&store, |tx| pools::get(tx, &pool_id("a/b"))).await;
        let counts = store.clone().take_counts();
        assert_eq!(counts.transactions("test_write"), 1);
        assert_eq!(counts.transactions("test_read"), 1);
        assert_eq!(counts.statements("pool_get"), 1);
        assert_eq!(store.take_counts(), Counts::default());
    }
);

on_both!(
    whoever_wants_all_rows_hears_that_there_are_too_many,
    |database| {
        let store = database.migrated().await;
        store.take_counts();
        // The sizes around the limit are tested without reading: this many rows take long.
        database.raw(&format!(
            "INSERT INTO worker_types (worker_pool_id, worker_configuration_id, check_payload) \
         WITH RECURSIVE n(x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM n WHERE x < {MAX_ROWS} + 2) \
         SELECT 'a/p' || CAST(x AS TEXT), 'c', 1 FROM n"
        ));
        let listed = store.read("all", |tx| worker_types::list(tx, &"c".parse().unwrap()));
        let refused = listed.await.unwrap_err().to_string();
        assert_eq!(refused, "`worker_type_list` found more than 100000 rows");
        let n_read = store.take_counts().rows("worker_type_list");
        assert_eq!(
            n_read,
            MAX_ROWS as u64 + 1,
            "and no more is read than shows it"
        );
    }
);
