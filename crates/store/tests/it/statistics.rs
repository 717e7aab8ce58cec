//! Statistics that PostgreSQL has not gathered yet.

use store::{outbox, pools};

use crate::samples::{event, pool, pool_id};
use crate::world::{Database, ask_server, on_both, read, write};

/// More than the size below which a table is left alone.
const EVENTS: usize = 3_000;

/// Reads of one row.
const READS: i64 = 50;

/// Maximum number of questions for the figures, which come a moment after the connections end.
const MAX_QUESTIONS: u32 = 100_000;

/// Waits until a table was read through its index this often. Returns how often it was.
fn indexed_reads(url: &str, table: &'static str, at_least: i64) -> i64 {
    ask_server(url, move |client| {
        let mut found = (0_i64, 0_i64);
        for _ in 0..MAX_QUESTIONS {
            let question = "SELECT COALESCE(idx_scan, 0), seq_scan FROM pg_stat_user_tables \
                 WHERE relname = $1 AND schemaname = current_schema()";
            let row = client.query_one(question, &[&table]).unwrap();
            found = (row.get(0), row.get(1));
            if found.0 >= at_least {
                return found.0;
            }
        }
        panic!("{found:?} reads through an index and of all rows, instead of {at_least}");
    })
}

// A prepared plan is kept. If it read all of a small table, it would do so when the table is large.
#[tokio::test]
async fn a_small_table_is_read_through_its_index() {
    let Some(database) = Database::new_postgres() else {
        return;
    };
    let url = database.options.url.clone();
    let store = database.migrated().await;
    write(&store, |tx| pools::insert(tx, &pool("a/b", "one"))).await;
    database.raw("ANALYZE worker_pools");
    store.close().await;
    let before = indexed_reads(&url, "worker_pools", 0);
    let store = database.migrated().await;
    for _ in 0..READS {
        let found = read(&store, |tx| pools::get(tx, &pool_id("a/b"))).await;
        assert!(found.is_some());
    }
    store.close().await;
    indexed_reads(&url, "worker_pools", before + READS);
}

/// Whether PostgreSQL has counted each of these tables.
fn counted(url: &str, tables: [&'static str; 2]) -> [bool; 2] {
    ask_server(url, move |client| {
        tables.map(|table| {
            let question = "SELECT reltuples >= 0 FROM pg_class WHERE relname = $1 \
                 AND relnamespace = CAST(current_schema() AS regnamespace)";
            client.query_one(question, &[&table]).unwrap().get(0)
        })
    })
}

on_both!(new a_large_table_without_statistics_is_counted, |database| {
    let store = database.migrated().await;
    for thousand in 0..EVENTS / 1_000 {
        write(&store, move |tx| {
            let names = (0..1_000).map(|number| format!("e{thousand}-{number:03}"));
            let mut names = names.into_iter();
            names.try_for_each(|name| outbox::push(tx, &event(&name, "a/b")))
        })
        .await;
    }
    // The second time, there is nothing to do.
    for _ in 0..2 {
        store.gather_missing_statistics().await.unwrap();
    }
    if store.engine() == store::Engine::Postgres {
        let [events, budgets] = counted(&database.options.url, ["outbox", "budgets"]);
        assert!(events, "the outbox is not counted");
        // A plan for a few rows would be kept when there are many.
        assert!(!budgets, "an empty table is counted");
    }
    assert_eq!(read(&store, outbox::depth).await, EVENTS as u64);
});
