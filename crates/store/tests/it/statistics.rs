//! Statistics that PostgreSQL has not gathered yet.

use postgres::NoTls;
use store::outbox;

use crate::samples::event;
use crate::world::{on_both, read, write};

/// More than the size below which a table is left alone.
const EVENTS: usize = 3_000;

/// Whether PostgreSQL has counted each of these tables.
fn counted(url: &str, tables: [&'static str; 2]) -> [bool; 2] {
    let url = url.to_owned();
    let asking = std::thread::spawn(move || {
        let mut client = postgres::Client::connect(&url, NoTls).unwrap();
        tables.map(|table| {
            let question = "SELECT reltuples >= 0 FROM pg_class WHERE relname = $1 \
                 AND relnamespace = CAST(current_schema() AS regnamespace)";
            client.query_one(question, &[&table]).unwrap().get(0)
        })
    });
    asking.join().unwrap()
}

on_both!(a_large_table_without_statistics_is_counted, |database| {
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
