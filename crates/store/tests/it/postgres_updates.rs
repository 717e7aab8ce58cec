//! Signs of life stay in their place on PostgreSQL: such updates write no index, and leave nothing
//! behind that a vacuum would have to remove.

use std::collections::{BTreeMap, BTreeSet};

use domain::time::{DAY_MS, MINUTE_MS, Timestamp};
use domain::worker::{StoredWorker, Worker};
use store::{Store, queue_workers, turns, workers};

use crate::samples::{at, queue_worker, worker, worker_key};
use crate::world::{Database, ask_server, write};

const WORKERS: i64 = 50;
const ROUNDS: i64 = 20;
/// The hour changes once in the rounds.
const START: i64 = 100 * DAY_MS - 10 * MINUTE_MS;
/// Maximum number of questions for the statistics, which come a moment after the updates.
const MAX_QUESTIONS: u32 = 100_000;

fn minute(number: i64) -> Timestamp {
    at(START + number * MINUTE_MS)
}

async fn ask_for_work(store: &Store, now: Timestamp) {
    for number in 0..WORKERS {
        let mut row = queue_worker("a/b", "g", &format!("w{number}"));
        row.expires = now.plus_millis(DAY_MS);
        row.last_date_active = Some(now);
        write(store, move |tx| queue_workers::upsert(tx, &row)).await;
    }
}

async fn add_workers(store: &Store) {
    for number in 0..WORKERS {
        let stored = StoredWorker {
            expires: at(START + 7 * DAY_MS),
            ..worker("a/b", "g", &format!("w{number:03}")).into_stored()
        };
        write(store, move |tx| {
            workers::insert(tx, &Worker::from_stored(stored.clone())).map(drop)
        })
        .await;
    }
}

/// Columns that change with each sign of life, and the part of a page that inserts may fill.
const CHANGING: [(&str, &[&str], u32); 3] = [
    (
        "queue_workers",
        &["expires", "last_date_active", "last_task_ended"],
        70,
    ),
    ("workers", &["last_checked"], 70),
    ("turns", &["number"], 50),
];

/// The updates of each table, and how many of them stayed in their place.
fn updates(url: &str, tables: &[&str], expected: i64) -> BTreeMap<String, (i64, i64)> {
    let names = tables.join("', '");
    ask_server(url, move |client| {
        let question = format!(
            "SELECT relname::text, n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables \
             WHERE schemaname = current_schema() AND relname IN ('{names}')"
        );
        for _ in 0..MAX_QUESTIONS {
            let rows = client.query(&question, &[]).unwrap();
            if rows.iter().all(|row| row.get::<_, i64>(1) >= expected) {
                let found = rows
                    .iter()
                    .map(|row| (row.get(0), (row.get(1), row.get(2))));
                return found.collect();
            }
        }
        panic!("the statistics do not come");
    })
}

#[tokio::test]
async fn no_index_has_what_a_sign_of_life_changes_and_pages_have_room_for_it() {
    let Some(database) = Database::new_postgres() else {
        return;
    };
    let _store = database.migrated().await;
    let (indexed, rooms) = ask_server(&database.options.url, |client| {
        // Also the columns of expressions and of conditions.
        let indexed = client.query(
            "SELECT DISTINCT c.relname::text, a.attname::text FROM pg_index AS i \
             JOIN pg_class AS c ON c.oid = i.indrelid \
             JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum > 0 \
             WHERE c.relnamespace = current_schema()::regnamespace \
             AND pg_get_indexdef(i.indexrelid) ~ ('\\m' || a.attname || '\\M')",
            &[],
        );
        let rooms = client.query(
            "SELECT relname::text, option_value FROM pg_class, pg_options_to_table(reloptions) \
             WHERE relnamespace = current_schema()::regnamespace AND option_name = 'fillfactor'",
            &[],
        );
        let pairs = |rows: Vec<postgres::Row>| -> BTreeSet<(String, String)> {
            rows.iter().map(|row| (row.get(0), row.get(1))).collect()
        };
        (pairs(indexed.unwrap()), pairs(rooms.unwrap()))
    });
    // The question finds keys, and what stands in conditions only.
    let is_indexed = |table: &str, column: &str| indexed.contains(&(table.into(), column.into()));
    assert!(is_indexed("queue_workers", "expiry_hour") && is_indexed("workers", "state"));
    for (table, columns, fill) in CHANGING {
        for column in columns {
            assert!(!is_indexed(table, column), "{table}: {column}");
        }
        assert!(
            rooms.contains(&(table.to_owned(), fill.to_string())),
            "{table}: {rooms:?}"
        );
    }
}

#[tokio::test]
async fn most_signs_of_life_stay_in_their_place() {
    let Some(database) = Database::new_postgres() else {
        return;
    };
    let store = database.migrated().await;
    let tables = ["queue_workers", "workers", "turns"];
    add_workers(&store).await;
    ask_for_work(&store, minute(0)).await;
    write(&store, |tx| turns::take(tx, "pool:a/b")).await;
    for round in 1..=ROUNDS {
        let now = minute(round);
        ask_for_work(&store, now).await;
        write(&store, move |tx| {
            let first = worker_key("a/b", "g", "w000");
            let last = worker_key("a/b", "g", "w999");
            let provider = worker("a/b", "g", "w").into_stored().provider_id;
            let checked = workers::note_checked(tx, &provider, &first, &last, now, now)?;
            assert_eq!(checked, WORKERS.cast_unsigned());
            Ok(())
        })
        .await;
        for _ in 0..WORKERS {
            write(&store, |tx| turns::take(tx, "pool:a/b")).await;
        }
    }
    // The statistics are written when the connections end.
    store.close().await;
    let n_signs = WORKERS * ROUNDS;
    let updates = updates(&database.options.url, &tables, n_signs);
    assert_eq!(updates.len(), tables.len());
    for (table, (all, in_place)) in &updates {
        // A transaction that runs again after a conflict counts twice.
        assert!(*all < 2 * n_signs, "{table}: {all}");
        // It is 95 %, and none if an index has a changed column. As long as another transaction
        // writes, in any database, PostgreSQL keeps old rows. Then it is 47 %, for which the pages
        // have room.
        assert!(in_place * 4 >= *all, "{table}: {in_place} of {all}");
    }
}
