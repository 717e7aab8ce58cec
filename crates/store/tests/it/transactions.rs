//! Transactions: all or nothing, on one snapshot, without a lost update or a lost thread.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use store::{
    Counts, Engine, MAX_ATTEMPTS, MAX_ROWS, Options, Store, StoreError, Tx, outbox, pools,
    worker_types, workers,
};
use testing::sizes_around;

use crate::samples::{edit, event, pool, pool_id, worker, worker_key};
use crate::world::{Database, on_both, read, write};

on_both!(the_database_accepts_every_statement, |database| {
    let store = database.migrated().await;
    assert!(store.check_statements().await.unwrap() > 50);
    store.ping().await.unwrap();
});

on_both!(
    an_error_rolls_back_everything_including_the_outbox,
    |database| {
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
    }
);

on_both!(
    transactions_statements_and_rows_are_counted_by_name,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| pools::insert(tx, &pool("a/b", "one"))).await;
        assert_eq!(
            store.take_counts(),
            Counts::default(),
            "counting has not started"
        );
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
    }
);

on_both!(a_closure_cannot_ignore_a_failed_statement, |database| {
    let store = database.migrated().await;
    database.raw("DROP TABLE outbox");
    let failed: Result<(), StoreError> = store
        .write("overlooks", |tx| {
            pools::insert(tx, &pool("a/b", "one"))?;
            let _ignored = outbox::push(tx, &event("one", "a/b"));
            Ok(())
        })
        .await;
    // PostgreSQL was sent the event with the commit.
    let is_noticed = match (store.engine(), &failed) {
        (Engine::Sqlite, Err(StoreError::IgnoredFailure { .. })) => true,
        (Engine::Postgres, Err(StoreError::NotMigrated { statement, .. })) => {
            *statement == "outbox_push"
        }
        (_, Err(_) | Ok(())) => false,
    };
    assert!(is_noticed, "{failed:?}");
    assert_eq!(
        read(&store, |tx| pools::get(tx, &pool_id("a/b"))).await,
        None
    );
});

on_both!(
    a_panic_is_reported_and_rolled_back_and_the_thread_survives,
    |database| {
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
        write(&store, |tx| pools::insert(tx, &pool("a/b", "one"))).await;
    }
);

on_both!(a_read_transaction_refuses_writes, |database| {
    let store = database.migrated().await;
    let failed = store
        .read("writes", |tx| pools::insert(tx, &pool("a/b", "one")))
        .await;
    assert!(
        matches!(failed, Err(StoreError::Query { .. })),
        "{failed:?}"
    );
    write(&store, |tx| pools::insert(tx, &pool("a/b", "one"))).await;
});

on_both!(a_read_sees_one_snapshot_during_other_writes, |database| {
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

/// Reads a row, changes it and writes it with a guarded update, as every caller should.
async fn add_one(store: Store) -> Result<(), StoreError> {
    store
        .write("add_one", |tx| {
            let mut worker = workers::get(tx, &worker_key("a/b", "g", "w"))?.unwrap();
            edit(&mut worker, |it| it.capacity += 1);
            workers::update(tx, &worker).map(drop)
        })
        .await
}

on_both!(concurrent_updates_of_one_row_are_not_lost, |database| {
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
});

on_both!(updates_of_one_row_by_two_stores_are_not_lost, |database| {
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
    a_transaction_that_always_conflicts_fails_after_a_bounded_number_of_attempts,
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
            matches!(
                failed,
                Err(StoreError::TooManyConflicts { name: "stale", .. })
            ),
            "{failed:?}"
        );
        assert_eq!(attempts.load(Ordering::Relaxed), MAX_ATTEMPTS);
    }
);

#[tokio::test]
async fn transactions_that_wait_for_a_locked_row_leave_the_threads_to_others() {
    let Some(database) = Database::postgres() else {
        return;
    };
    let elsewhere = database.migrated().await;
    write(&elsewhere, |tx| {
        workers::insert(tx, &worker("a/b", "g", "w"))
    })
    .await;
    let options = Options {
        connections: 2,
        ..database.options.clone()
    };
    let store = Store::open(&options).unwrap();
    // It holds the row, and is never idle for as long as the database allows.
    let (held, is_held) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let holder = tokio::spawn(async move {
        let held = elsewhere.write("holds", move |tx| {
            let mut worker = workers::get(tx, &worker_key("a/b", "g", "w"))?.unwrap();
            edit(&mut worker, |it| it.capacity += 1);
            workers::update(tx, &worker)?;
            // The update is sent with this read.
            pools::list(tx, None, 1)?;
            held.send(()).unwrap();
            while may_go_on.recv_timeout(Duration::from_millis(100)).is_err() {
                pools::list(tx, None, 1)?;
            }
            Ok::<_, StoreError>(())
        });
        held.await
    });
    tokio::task::spawn_blocking(move || is_held.recv().unwrap())
        .await
        .unwrap();
    let (tried, is_tried) = mpsc::channel();
    let mut waiting: Vec<_> = (0..4)
        .map(|_| {
            let (store, tried) = (store.clone(), tried.clone());
            tokio::spawn(async move {
                let added = store.write("add_one", move |tx| {
                    let mut worker = workers::get(tx, &worker_key("a/b", "g", "w"))?.unwrap();
                    edit(&mut worker, |it| it.capacity += 1);
                    let _ = tried.send(());
                    workers::update(tx, &worker).map(drop)
                });
                added.await
            })
        })
        .collect();
    // More than there are threads.
    tokio::task::spawn_blocking(move || {
        for _ in 0..4 {
            is_tried.recv().unwrap();
        }
    })
    .await
    .unwrap();
    assert!(read(&store, |tx| pools::list(tx, None, 1)).await.is_empty());
    for task in &mut waiting {
        if task.is_finished() {
            panic!("{:?}", task.await)
        }
    }
    go_on.send(()).unwrap();
    holder.await.unwrap().unwrap();
    for task in waiting {
        task.await.unwrap().unwrap();
    }
    let found = read(&store, |tx| workers::get(tx, &worker_key("a/b", "g", "w")));
    assert_eq!(found.await.unwrap().capacity, 7);
}

on_both!(
    a_lost_race_runs_again_even_if_the_closure_ignores_it,
    |database| {
        let store = database.migrated().await;
        let mut n_runs = 0;
        let n_runs = write(&store, move |tx| {
            n_runs += 1;
            if n_runs < 3 {
                pools::insert(tx, &pool("a/leftover", "one"))?;
                let _ignored = tx.lost_race();
            }
            Ok(n_runs)
        })
        .await;
        assert_eq!(n_runs, 3);
        assert!(read(&store, |tx| pools::list(tx, None, 1)).await.is_empty());
    }
);

on_both!(
    a_closed_store_refuses_new_transactions_and_finishes_running_ones,
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
        writer.await.unwrap().unwrap();
        let refused = store.read("late", |tx| pools::list(tx, None, 1)).await;
        assert!(matches!(refused, Err(StoreError::Closed)));
        let refused = store.write("late", |tx| pools::list(tx, None, 1)).await;
        assert!(matches!(refused, Err(StoreError::Closed)));
        let again = database.open();
        assert_eq!(read(&again, |tx| pools::list(tx, None, 5)).await.len(), 1);
    }
);

on_both!(
    a_write_does_not_run_if_its_caller_was_dropped_before,
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
        // Polled once, so that it is in the queue, and then dropped.
        let _ = begin_and_drop(leaving).await;
        go_on.send(()).unwrap();
        holder.await.unwrap().unwrap();
        assert!(read(&store, |tx| pools::list(tx, None, 1)).await.is_empty());
        store.close().await;
    }
);

/// Polls a future once, then drops it.
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
    more_callers_than_threads_and_queue_places_are_all_served,
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

/// The number of connections for which there is one more, for surveys.
const CONNECTIONS_FOR_SURVEY: usize = 4;

on_both!(surveys_leave_threads_to_other_transactions, |database| {
    database.migrated().await;
    for connections in sizes_around(
        "store::engine::store::CONNECTIONS_FOR_SURVEY",
        CONNECTIONS_FOR_SURVEY,
    ) {
        let store = Store::open(&Options {
            connections,
            ..database.options.clone()
        });
        let store = store.unwrap();
        let n_surveyors = connections / CONNECTIONS_FOR_SURVEY;
        if n_surveyors == 0 {
            let survey = store.survey("survey", |tx| pools::list(tx, None, 1));
            assert_eq!(survey.await.unwrap(), []);
        } else {
            assert_eq!(most_surveys(&store, n_surveyors).await, n_surveyors);
        }
        store.close().await;
    }
});

on_both!(surveys_yield_the_processor_to_other_threads, |database| {
    let store = database.migrated().await;
    let priority =
        |_tx: &mut Tx<'_>| Ok::<_, StoreError>(rustix::process::getpriority_process(None).unwrap());
    let usual = store.scan("scan", priority).await.unwrap();
    assert_eq!(store.write("write", priority).await.unwrap(), usual);
    let survey = store.survey("survey", priority).await.unwrap();
    assert_eq!(survey, (usual + 10).min(19));
});

/// Starts ten surveys for each of their threads, which wait until other transactions have ended.
/// Returns how many ran at the same time.
async fn most_surveys(store: &Store, n_surveyors: usize) -> usize {
    let (begins, begun) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel();
    let may_go_on = Arc::new(Mutex::new(may_go_on));
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let start = |_| {
        let (store, begins, may_go_on) = (store.clone(), begins.clone(), may_go_on.clone());
        let (running, most) = (Arc::clone(&running), Arc::clone(&most));
        let survey = move |_tx: &mut Tx<'_>| {
            let n_running = running.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(n_running, Ordering::SeqCst);
            begins.send(()).unwrap();
            may_go_on.lock().unwrap().recv().unwrap();
            running.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, StoreError>(())
        };
        tokio::spawn(async move { store.survey("survey", survey).await })
    };
    let surveys: Vec<_> = (0..10 * n_surveyors).map(start).collect();
    let all_begin = tokio::task::spawn_blocking(move || {
        (0..n_surveyors).for_each(|_| begun.recv().unwrap());
        begun
    });
    let _begun = all_begin.await.unwrap();
    write(store, |tx| pools::delete(tx, &pool_id("a/b"))).await;
    let scan = store.scan("scan", |tx| pools::list(tx, None, 1));
    assert_eq!(scan.await.unwrap(), []);
    surveys.iter().for_each(|_| go_on.send(()).unwrap());
    for survey in surveys {
        survey.await.unwrap().unwrap();
    }
    most.load(Ordering::SeqCst)
}

on_both!(a_corrupt_row_is_an_error_that_names_it, |database| {
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
async fn a_process_frozen_in_a_transaction_delays_others_for_seconds_only() {
    let Some(database) = Database::postgres() else {
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
            edit(&mut worker, |it| it.capacity += 1);
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
    // This transaction is retried until the server ends the frozen one.
    add_one(other.clone()).await.unwrap();
    drop(thaw);
    freezing.await.unwrap().unwrap();
    assert_eq!(runs.load(Ordering::Relaxed), 2);
    let found = read(&other, |tx| workers::get(tx, &worker_key("a/b", "g", "w"))).await;
    assert_eq!(found.unwrap().capacity, 2 + 2);
}

on_both!(counting_starts_with_the_first_call, |database| {
    let store = database.migrated().await;
    assert_eq!(store.take_counts(), Counts::default());
    write(&store, |tx| pools::insert(tx, &pool("a/b", "one"))).await;
    read(&store, |tx| pools::get(tx, &pool_id("a/b"))).await;
    let counts = store.clone().take_counts();
    assert_eq!(counts.transactions("test_write"), 1);
    assert_eq!(counts.transactions("test_read"), 1);
    assert_eq!(counts.statements("pool_get"), 1);
    assert_eq!(store.take_counts(), Counts::default());
});

on_both!(reading_all_rows_fails_if_there_are_too_many, |database| {
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
        "no more rows are read than needed to notice"
    );
});
