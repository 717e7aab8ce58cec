//! Statements that wait for the next one, on PostgreSQL; the same tests run on SQLite, where none
//! waits.

use domain::id::PoolId;
use domain::pool::Pool;
use store::{
    Store, StoreError, Tx, events, launch_configs, outbox, pools, turns, worker_counts, workers,
};
use testing::sizes_around;

use crate::samples::{event, launch_config, pool, pool_id, worker, worker_key};
use crate::world::{Database, on_both, read, write};

const MAX_WAITING: usize = 64;

fn push(tx: &mut Tx<'_>, count: usize) -> Result<(), StoreError> {
    (0..count).try_for_each(|number| outbox::push(tx, &event(&format!("e{number:05}"), "a/b")))
}

async fn n_pushed(store: &Store) -> u64 {
    read(store, outbox::depth).await
}

/// The pool; its launch configs and counts are asked for.
fn get_with_details(tx: &mut Tx<'_>, id: &PoolId) -> Result<Option<Pool>, StoreError> {
    tx.ask(|tx| {
        launch_configs::active_between(tx, id, id)?;
        worker_counts::of_pool(tx, id)
    });
    pools::get(tx, id)
}

on_both!(
    any_number_of_statements_waits_and_is_committed,
    |database| {
        let store = database.migrated().await;
        let mut n_before = 0;
        for count in sizes_around("store::engine::pipeline::MAX_WAITING", MAX_WAITING) {
            let before = n_before;
            store.take_counts();
            write(&store, move |tx| {
                let numbers = before..before + count;
                let names = numbers.map(|number| format!("e{number:05}"));
                names
                    .into_iter()
                    .try_for_each(|name| outbox::push(tx, &event(&name, "a/b")))
            })
            .await;
            n_before += count;
            let counts = store.take_counts();
            assert_eq!(counts.statements("outbox_push"), count as u64);
            if counts.trips() > 0 {
                // The rest goes on a trip of its own, since it begins the transaction.
                let n_trips = (count / MAX_WAITING) as u64 + 2;
                assert!(counts.trips() <= n_trips, "{count}: {}", counts.trips());
            }
            assert_eq!(n_pushed(&store).await, n_before as u64);
        }
    }
);

on_both!(
    nothing_is_committed_after_a_guard_that_waited_has_failed,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| pools::insert(tx, &pool("a/b", "one"))).await;
        let old = read(&store, |tx| pools::get(tx, &pool_id("a/b"))).await;
        let old = old.unwrap();
        let newer = old.clone();
        write(&store, move |tx| pools::update(tx, &newer)).await;
        for (n_before, n_after) in [(0, 0), (3, 0), (0, 3), (70, 70)] {
            let old = old.clone();
            let failed = store.write("stale", move |tx| {
                push(tx, n_before)?;
                pools::update(tx, &old)?;
                (0..n_after).try_for_each(|number| {
                    outbox::push(tx, &event(&format!("f{number:05}"), "a/b"))
                })
            });
            let failed: Result<(), StoreError> = failed.await;
            assert!(
                matches!(failed, Err(StoreError::TooManyConflicts { .. })),
                "{failed:?}"
            );
            assert_eq!(n_pushed(&store).await, 0);
            // The connection is good for more.
            assert!(
                read(&store, |tx| pools::get(tx, &pool_id("a/b")))
                    .await
                    .is_some()
            );
        }
    }
);

on_both!(an_error_of_the_closure_undoes_what_waited, |database| {
    let store = database.migrated().await;
    for count in [0, 1, MAX_WAITING, MAX_WAITING + 1] {
        let failed = store.write("given_up", move |tx| {
            push(tx, count)?;
            Err::<(), _>(StoreError::Closed)
        });
        assert!(matches!(failed.await, Err(StoreError::Closed)));
        assert_eq!(n_pushed(&store).await, 0);
    }
});

on_both!(
    rows_that_were_asked_for_ahead_are_read_anew_after_a_change,
    |database| {
        let store = database.migrated().await;
        let id = pool_id("a/b");
        let n_seen = write(&store, move |tx| {
            assert!(get_with_details(tx, &id)?.is_none());
            pools::insert(tx, &pool("a/b", "one"))?;
            launch_configs::insert(tx, &launch_config("a/b", "lc-1"))?;
            workers::insert(tx, &worker("a/b", "g", "i"))?;
            let first = launch_configs::active_between(tx, &id, &id)?.len();
            assert!(get_with_details(tx, &id)?.is_some());
            launch_configs::insert(tx, &launch_config("a/b", "lc-2"))?;
            let second = launch_configs::active_between(tx, &id, &id)?.len();
            let counts = worker_counts::of_pool(tx, &id)?;
            assert_ne!(counts, domain::counts::Counts::default());
            Ok((first, second))
        });
        assert_eq!(n_seen.await, (1, 2));
    }
);

on_both!(
    a_read_that_waits_is_not_sent_before_a_change_of_its_table,
    |database| {
        let store = database.migrated().await;
        let (id, key) = (pool_id("a/b"), worker_key("a/b", "g", "i"));
        let seen = write(&store, move |tx| {
            tx.ask(|tx| {
                pools::get(tx, &id)?;
                workers::get(tx, &key)
            });
            // Nothing is sent until the first read that is not only asked for.
            pools::insert(tx, &pool("a/b", "one"))?;
            workers::insert_new(tx, &worker("a/b", "g", "i"))?;
            let before = pools::get(tx, &id)?;
            pools::update(tx, &before.clone().unwrap())?;
            let after = pools::get(tx, &id)?;
            let version = |pool: Option<Pool>| pool.map(|pool| pool.version.0);
            Ok((
                version(before),
                version(after),
                workers::get(tx, &key)?.is_some(),
            ))
        });
        assert_eq!(seen.await, (Some(1), Some(2), true));
    }
);

on_both!(a_function_that_only_asks_changes_nothing, |database| {
    let store = database.migrated().await;
    let id = pool_id("a/b");
    let found = write(&store, move |tx| {
        tx.ask(|tx| {
            assert!(pools::get(tx, &id)?.is_none());
            pools::insert(tx, &pool("a/b", "one"))?;
            panic!("it ends at the first write") as Result<(), StoreError>
        });
        tx.ask(|tx| pools::delete(tx, &id));
        tx.ask(|tx| turns::take(tx, "a"));
        tx.ask(|tx| Err::<(), _>(tx.lost_race()));
        Ok((pools::get(tx, &id)?.is_some(), turns::last(tx, "a")?))
    });
    // With SQLite the functions do not run at all.
    assert_eq!(found.await, (false, 0));
});

#[tokio::test]
async fn an_answer_stays_good_while_other_tables_change() {
    let Some(database) = Database::postgres() else {
        return;
    };
    let store = database.migrated().await;
    let trips = async |name: &'static str| {
        let id = pool_id(name);
        store.take_counts();
        write(&store, move |tx| {
            tx.ask(|tx| {
                launch_configs::active_between(tx, &id, &id)?;
                workers::get(tx, &worker_key(name, "g", "i"))
            });
            assert!(pools::get(tx, &id)?.is_none());
            pools::insert(tx, &pool(name, "one"))?;
            assert!(workers::insert(tx, &worker(name, "g", "i"))?);
            assert!(launch_configs::active_between(tx, &id, &id)?.is_empty());
            Ok(())
        })
        .await;
        store.take_counts().trips()
    };
    trips("a/prepares").await;
    // One for the reads, and one for the rest with the commit.
    assert_eq!(trips("a/b").await, 2);
}

on_both!(a_read_transaction_refuses_writes_that_wait, |database| {
    let store = database.migrated().await;
    let refused = store.read("writes", |tx| push(tx, 1)).await;
    assert!(
        matches!(refused, Err(StoreError::Query { .. })),
        "{refused:?}"
    );
    assert_eq!(n_pushed(&store).await, 0);
});

#[tokio::test]
async fn a_pool_with_its_details_is_one_trip() {
    let Some(database) = Database::postgres() else {
        return;
    };
    let store = database.migrated().await;
    write(&store, |tx| {
        launch_configs::insert(tx, &launch_config("a/b", "lc-1"))?;
        pools::insert(tx, &pool("a/b", "one"))
    })
    .await;
    let details = async || {
        let id = pool_id("a/b");
        read(&store, move |tx| {
            let pool = get_with_details(tx, &id)?;
            let configs = launch_configs::active_between(tx, &id, &id)?;
            let counts = worker_counts::of_pool(tx, &id)?;
            Ok((pool.is_some(), configs.len(), counts))
        })
        .await
    };
    details().await; // Prepares the statements.
    store.take_counts();
    assert_eq!(
        details().await,
        (true, 1, domain::counts::Counts::default())
    );
    let counts = store.take_counts();
    assert_eq!((counts.all_statements(), counts.trips()), (3, 1));
}

#[tokio::test]
async fn a_write_that_changes_nothing_ends_like_a_read() {
    let Some(database) = Database::postgres() else {
        return;
    };
    let store = database.migrated().await;
    let look = async || write(&store, |tx| pools::get(tx, &pool_id("a/b"))).await;
    look().await;
    store.take_counts();
    assert!(look().await.is_none());
    assert_eq!(store.take_counts().trips(), 1);
    write(&store, |tx| push(tx, 1)).await;
    assert_eq!(n_pushed(&store).await, 1);
    let late = write(&store, |tx| {
        let none = pools::get(tx, &pool_id("a/b"))?;
        outbox::push(tx, &event("late", "a/b")).map(|()| none.is_none())
    });
    assert!(late.await);
    assert_eq!(n_pushed(&store).await, 2);
}

#[tokio::test]
async fn planning_for_values_needs_no_answer_of_its_own() {
    let Some(database) = Database::postgres() else {
        return;
    };
    let store = database.migrated().await;
    for is_planned in [false, true, false] {
        for _ in 0..2 {
            store.take_counts();
            let waiting = read(&store, move |tx| {
                if is_planned {
                    tx.plan_for_values()?;
                }
                tx.ask(outbox::depth);
                outbox::depth(tx)
            });
            assert_eq!(waiting.await, 0);
            let counts = store.take_counts();
            assert_eq!((counts.trips(), counts.all_statements()), (1, 1));
        }
        let written = write(&store, move |tx| {
            if is_planned {
                tx.plan_for_values()?;
            }
            outbox::push(tx, &event("e", "a/b"))
        });
        written.await;
        write(&store, |tx| events::assign_positions(tx, 9).map(drop)).await;
    }
}
