//! Migrations: numbered changes of the schema, applied in order under a lock and never edited.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::engine::{
    attempts::MAX_ATTEMPTS, error::Result, error::StoreError, failure::Failure,
    session::Connection, session::Session, sqlite::Mode, statement::statements, table::Table,
    tx::Tx,
};

struct Migration {
    number: i64,
    /// The name of its file.
    name: &'static str,
    sql: &'static str,
}

macro_rules! migrations {
    ($($number:literal $name:literal)*) => {
        &[$(Migration {
            number: $number,
            name: $name,
            sql: include_str!(concat!("../../migrations/", $name, ".sql")),
        }),*]
    };
}

/// In order, without gaps.
static MIGRATIONS: &[Migration] = migrations! {
    1 "0001_schema"
};

static TABLE: Table = Table::unlisted("schema_migrations", 1);

statements! { TABLE;
    APPLIED "migration_list" =
        "SELECT number, name, checksum FROM schema_migrations ORDER BY number";
    RECORD "migration_insert" =
        "INSERT INTO schema_migrations (number, name, checksum, applied) VALUES ($1, $2, $3, $4)";
}

const CREATE_TABLE: &str = "CREATE TABLE IF NOT EXISTS schema_migrations (
    number BIGINT PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL,
    applied BIGINT NOT NULL)";

/// An arbitrary number that no other program in the database should use: "fleet" in ASCII.
const POSTGRES_LOCK: &str = "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; \
     SELECT pg_advisory_xact_lock(439804749172)";

pub(crate) fn migrate(session: &mut Session, now_ms: i64) -> Result<Vec<String>> {
    apply(session, MIGRATIONS, now_ms)
}

/// Applies all missing migrations in one transaction.
fn apply(session: &mut Session, known: &[Migration], now_ms: i64) -> Result<Vec<String>> {
    locked(session, |session| {
        batch(session, "schema_migrations", CREATE_TABLE)?;
        let applied = applied_in(&mut Tx::new(session))?;
        let missing = missing(known, &applied)?;
        for migration in missing {
            batch(session, migration.name, &translate(session, migration.sql))?;
            let Migration { number, name, sql } = *migration;
            Tx::new(session).execute(&RECORD, (number, name, checksum(sql), now_ms))?;
        }
        Ok(names(missing))
    })
}

pub(crate) fn pending(session: &mut Session) -> Result<Vec<String>> {
    let applied = session.read("migration_pending", applied_in);
    let applied = match applied {
        Err(StoreError::NotMigrated { .. }) => Vec::new(),
        other => other?,
    };
    Ok(names(missing(MIGRATIONS, &applied)?))
}

/// Number, name and checksum of an applied migration.
type Applied = (i64, String, String);

fn applied_in(tx: &mut Tx<'_>) -> Result<Vec<Applied>> {
    tx.rows(&APPLIED, ())
}

/// Compares the migrations of the database with those of this program, and returns the missing
/// ones.
fn missing<'k>(known: &'k [Migration], applied: &[Applied]) -> Result<&'k [Migration]> {
    for (index, (number, name, applied_checksum)) in applied.iter().enumerate() {
        let problem = match known.get(index) {
            None => "of a newer program; use a newer fleetwright",
            Some(ours) if ours.number != *number || ours.name != name => {
                "which this program does not have: an unreleased fleetwright or another program \
                 made this database; use a new database, or that program"
            }
            Some(ours) if checksum(ours.sql) != *applied_checksum => {
                "whose content is not that of this program; use the program that migrated the \
                 database last, or a new database"
            }
            Some(_) => continue,
        };
        let migration = name.clone();
        return Err(StoreError::OtherMigration { migration, problem });
    }
    Ok(&known[applied.len()..])
}

fn names(migrations: &[Migration]) -> Vec<String> {
    migrations.iter().map(|m| m.name.to_owned()).collect()
}

fn locked<T>(session: &mut Session, work: impl FnOnce(&mut Session) -> Result<T>) -> Result<T> {
    let mut attempt = 1;
    while let Err(failure) = begin_locked(session) {
        // Another process holds the lock, perhaps to migrate.
        if !matches!(failure, Failure::Conflict(_)) || attempt == MAX_ATTEMPTS {
            return Err(session.error("migrate", failure));
        }
        attempt += 1;
        session.backoff.wait_before_attempt(attempt);
    }
    let result = work(session);
    let result = result.and_then(|value| {
        session
            .commit()
            .map(|()| value)
            .map_err(|failure| session.error("migrate", failure))
    });
    if result.is_err() {
        session.rollback();
    }
    result
}

fn begin_locked(session: &mut Session) -> Result<(), Failure> {
    match &mut session.connection {
        Connection::Sqlite(sqlite) => sqlite.begin(Mode::Write),
        Connection::Postgres(postgres) => {
            // No snapshot: after the wait for the lock, this transaction must see what its previous
            // holder committed.
            postgres.batch("BEGIN ISOLATION LEVEL READ COMMITTED")?;
            postgres.batch(POSTGRES_LOCK)
        }
    }
}

pub(crate) fn batch(session: &mut Session, migration: &str, sql: &str) -> Result<()> {
    let done = match &mut session.connection {
        Connection::Sqlite(sqlite) => sqlite.batch(sql),
        Connection::Postgres(postgres) => postgres.batch(sql),
    };
    done.map_err(|failure| StoreError::Migration {
        migration: migration.to_owned(),
        reason: failure.into_source().to_string(),
    })
}

/// Replaces the only differences between the databases: bytewise order, generated numbers, tables
/// that are stored in the order of their key, and lines that are for PostgreSQL alone.
fn translate(session: &Session, sql: &str) -> String {
    let (key, serial, by_key, postgres) = match &session.connection {
        Connection::Sqlite(_) => (
            "TEXT",
            "INTEGER PRIMARY KEY AUTOINCREMENT",
            "WITHOUT ROWID",
            "-- ",
        ),
        Connection::Postgres(_) => (
            "TEXT COLLATE \"C\"",
            "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
            "",
            "",
        ),
    };
    sql.replace("{key}", key)
        .replace("{serial}", serial)
        .replace("{by_key}", by_key)
        .replace("{postgres}", postgres)
}

/// Ignores the kind of line ends, which some tools change on checkout.
fn checksum(sql: &str) -> String {
    let digest = Sha256::digest(sql.replace("\r\n", "\n").as_bytes());
    digest.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a String cannot fail");
        text
    })
}

#[cfg(test)]
mod tests {
    use testing::databases::Database;

    use super::*;
    use crate::engine::{options::Options, store::Lane, store::Store};

    static THREE: &[Migration] = &[
        Migration {
            number: 1,
            name: "0001_words",
            sql: "CREATE TABLE words (word {key} NOT NULL PRIMARY KEY);
                INSERT INTO words VALUES ('first')",
        },
        Migration {
            number: 2,
            name: "0002_lengths",
            sql: "ALTER TABLE words ADD COLUMN length BIGINT;
                UPDATE words SET length = LENGTH(word)",
        },
        Migration {
            number: 3,
            name: "0003_long_words",
            sql: "CREATE TABLE long_words AS SELECT word FROM words WHERE length > 4",
        },
    ];

    fn databases() -> impl Iterator<Item = (Database, Store)> {
        let databases = [Some(Database::empty_sqlite()), Database::empty_postgres()];
        databases.into_iter().flatten().map(|database| {
            let options = Options {
                url: database.url.clone(),
                connections: 1,
            };
            let store = Store::open(&options).unwrap();
            (database, store)
        })
    }

    async fn apply_to(store: &Store, known: &'static [Migration]) -> Result<Vec<String>> {
        let applying = store.submit(Lane::Write, move |session| apply(session, known, 1));
        applying.await
    }

    async fn run(store: &Store, sql: &'static str) -> Result<()> {
        let running = store.submit(Lane::Write, move |session| {
            session.once("test", Mode::Write, |session| batch(session, "test", sql))
        });
        running.await
    }

    #[tokio::test]
    async fn missing_migrations_are_applied_in_their_order_to_a_database_with_data() {
        for n_applied in 0..=THREE.len() {
            for (_database, store) in databases() {
                apply_to(&store, &THREE[..n_applied]).await.unwrap();
                if n_applied == 1 {
                    run(&store, "INSERT INTO words VALUES ('a')").await.unwrap();
                }
                let applied = apply_to(&store, THREE).await.unwrap();
                assert_eq!(applied, names(&THREE[n_applied..]));
                assert!(apply_to(&store, THREE).await.unwrap().is_empty());
                // Fails if there is another one.
                let unique = "CREATE UNIQUE INDEX one_row ON long_words ((word IS NULL))";
                run(&store, unique).await.unwrap();
                let more = "INSERT INTO long_words SELECT word FROM words WHERE word = 'first'";
                assert!(run(&store, more).await.is_err());
                store.close().await;
            }
        }
    }

    #[tokio::test]
    async fn if_one_migration_fails_none_is_applied() {
        for (_database, store) in databases() {
            apply_to(&store, &THREE[..1]).await.unwrap();
            run(&store, "CREATE TABLE long_words (x BIGINT)")
                .await
                .unwrap();
            let failed = apply_to(&store, THREE).await.unwrap_err();
            let failed = failed.to_string();
            assert!(
                failed.starts_with("migration 0003_long_words failed: "),
                "{failed}"
            );
            run(&store, "DROP TABLE long_words").await.unwrap();
            let applied = apply_to(&store, THREE).await.unwrap();
            assert_eq!(applied, names(&THREE[1..]));
            store.close().await;
        }
    }

    #[tokio::test]
    async fn a_program_without_a_migration_of_the_database_refuses_it() {
        for (_database, store) in databases() {
            apply_to(&store, THREE).await.unwrap();
            for (known, problem) in [
                (&THREE[..2], "0003_long_words, of a newer program"),
                (&THREE[1..], "0001_words, which this program does not have"),
            ] {
                let refused = apply_to(&store, known).await.unwrap_err().to_string();
                assert!(refused.contains(problem), "{refused}");
            }
            store.close().await;
        }
    }
}
