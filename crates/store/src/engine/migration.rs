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
    1 "0001_access"
    2 "0002_pools_and_workers"
    3 "0003_outbox_and_audit"
    4 "0004_queue"
    5 "0005_launches_and_plans"
    6 "0006_events"
    7 "0007_notices"
    8 "0008_providers_of_pools"
    9 "0009_worker_configurations"
    10 "0010_run_outcomes"
    11 "0011_overrides"
    12 "0012_documentation"
    13 "0013_configuration_summaries"
    14 "0014_first_claims"
    15 "0015_launches_asked"
    16 "0016_workers_by_region"
    17 "0017_cache_purges"
    18 "0018_health_by_events"
    19 "0019_supply"
    20 "0020_roles_by_revision"
    21 "0021_inputs_of_plans"
    22 "0022_agreed_prices"
    23 "0023_market"
    24 "0024_shadow_plans"
    25 "0025_recording"
    26 "0026_tree_nodes"
    27 "0027_images"
    28 "0028_image_rollouts"
    29 "0029_waits"
    30 "0030_costs"
    31 "0031_budgets"
    32 "0032_waits_by_number"
    33 "0033_kept_versions"
    34 "0034_updates_in_place"
    35 "0035_few_of_many_workers"
    36 "0036_pools_of_any_size"
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

/// Applies all missing migrations in one transaction.
pub(crate) fn migrate(session: &mut Session, now_ms: i64) -> Result<Vec<String>> {
    locked(session, |session| {
        batch(session, "schema_migrations", CREATE_TABLE)?;
        let missing = missing(&applied(session)?)?;
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
    Ok(names(missing(&applied)?))
}

/// Number, name and checksum of an applied migration.
type Applied = (i64, String, String);

fn applied(session: &mut Session) -> Result<Vec<Applied>> {
    applied_in(&mut Tx::new(session))
}

fn applied_in(tx: &mut Tx<'_>) -> Result<Vec<Applied>> {
    tx.rows(&APPLIED, ())
}

/// Compares the migrations of the database with those of this program, and returns the missing
/// ones.
fn missing(applied: &[Applied]) -> Result<&'static [Migration]> {
    for (index, (number, name, applied_checksum)) in applied.iter().enumerate() {
        let refuse = |reason: &str| {
            Err(StoreError::Migration {
                migration: name.clone(),
                reason: reason.to_owned(),
            })
        };
        let Some(known) = MIGRATIONS.get(index) else {
            return refuse("the database is newer than this program; use a newer fleetwright");
        };
        if known.number != *number || known.name != name {
            return refuse(
                "this program does not have it; another program may have created the database",
            );
        }
        if checksum(known.sql) != *applied_checksum {
            return refuse("its content differs from this program's migration of that name");
        }
    }
    Ok(&MIGRATIONS[applied.len()..])
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
