//! Lost connections to PostgreSQL: the store reconnects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use store::{Options, Store, StoreError, launch_configs, outbox, pools};

use crate::samples::{event, launch_config, pool, pool_id};
use crate::world::{Database, read, write};

/// Closes every connection of this test's stores.
fn close_connections(database: &Database) {
    database.raw(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE datname = current_database() AND pid <> pg_backend_pid()",
    );
}

fn open(database: &Database, connections: usize) -> Store {
    let url = database.options.url.clone();
    Store::open(&Options { url, connections }).unwrap()
}

#[tokio::test]
async fn closed_idle_connections_are_replaced_without_an_error() {
    let Some(database) = Database::postgres() else {
        return;
    };
    let store = open(&database, 3);
    for round in 0..5 {
        for _ in 0..3 {
            assert!(read(&store, |tx| pools::list(tx, None, 1)).await.len() <= 1);
        }
        close_connections(&database);
        write(&store, move |tx| {
            pools::insert(tx, &pool(&format!("a/p{round}"), "one"))
        })
        .await;
    }
    assert_eq!(read(&store, |tx| pools::list(tx, None, 10)).await.len(), 5);
}

#[tokio::test]
async fn statements_that_wait_are_sent_on_the_connection_that_replaces_a_closed_one() {
    let Some(database) = Database::postgres() else {
        return;
    };
    let store = open(&database, 1);
    write(&store, |tx| {
        launch_configs::insert(tx, &launch_config("a/b", "lc-1"))?;
        pools::insert(tx, &pool("a/b", "one"))
    })
    .await;
    for round in 0..5 {
        close_connections(&database);
        let event = event(&format!("e{round}"), "a/b");
        write(&store, move |tx| outbox::push(tx, &event)).await;
        close_connections(&database);
        let seen = read(&store, |tx| {
            let id = pool_id("a/b");
            tx.ask(|tx| launch_configs::active_between(tx, &id, &id));
            let pool = pools::get(tx, &id)?;
            let configs = launch_configs::active_between(tx, &id, &id)?;
            Ok((pool.is_some(), configs.len()))
        });
        assert_eq!(seen.await, (true, 1));
    }
    assert_eq!(read(&store, outbox::depth).await, 5);
}

#[tokio::test]
async fn a_write_that_loses_its_connection_before_the_commit_runs_again() {
    let Some(database) = Database::postgres() else {
        return;
    };
    let database = Arc::new(database);
    let store = database.migrated().await;
    let runs = Arc::new(AtomicU32::new(0));
    let (counting, cutting) = (runs.clone(), database.clone());
    write(&store, move |tx| {
        pools::insert(tx, &pool("a/b", "one"))?;
        // The insert is sent with this, and so is the beginning of the transaction.
        pools::get(tx, &pool_id("a/b"))?;
        if counting.fetch_add(1, Ordering::Relaxed) == 0 {
            close_connections(&cutting);
        }
        pools::get(tx, &pool_id("a/b"))
    })
    .await;
    assert_eq!(runs.load(Ordering::Relaxed), 2);
    assert!(
        read(&store, |tx| pools::get(tx, &pool_id("a/b")))
            .await
            .is_some()
    );
}

#[tokio::test]
async fn a_read_that_loses_its_connection_fails_and_the_next_one_succeeds() {
    let Some(database) = Database::postgres() else {
        return;
    };
    let database = Arc::new(database);
    let store = database.migrated().await;
    let cutting = database.clone();
    let failed = store
        .read("cut", move |tx| {
            pools::list(tx, None, 1)?;
            close_connections(&cutting);
            pools::list(tx, None, 1)
        })
        .await;
    assert!(
        matches!(failed, Err(StoreError::Unavailable { .. })),
        "{failed:?}"
    );
    assert!(read(&store, |tx| pools::list(tx, None, 1)).await.is_empty());
}

#[tokio::test]
async fn the_error_for_a_missing_server_has_its_address_without_the_password() {
    let options = Options {
        url: "postgres://fleet:s3cret@127.0.0.1:1/fleet?sslmode=disable".to_owned(),
        connections: 1,
    };
    let store = Store::open(&options).unwrap();
    let error = store.ping().await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    let shown = format!("{error} {error:?}");
    assert!(
        shown.contains("127.0.0.1:1/fleet") && !shown.contains("s3cret"),
        "{shown}"
    );
}
