//! The migrations of this program, on an empty database and on databases that they do not fit.
//! Tests of what migrations do in general are beside the code.

use store::{StoreError, pools};

use crate::samples::pool_id;
use crate::world::{Database, on_both};

const N_MIGRATIONS: usize = 1;

on_both!(empty migrating_twice_changes_nothing, |database| {
    let store = database.open();
    let pending = store.pending_migrations().await.unwrap();
    assert_eq!(pending.len(), N_MIGRATIONS);
    assert_eq!(store.migrate(1).await.unwrap(), pending);
    store.check_statements().await.unwrap();
    assert!(store.pending_migrations().await.unwrap().is_empty());
    assert!(store.migrate(2).await.unwrap().is_empty());
});

on_both!(empty without_tables_the_error_says_to_migrate, |database| {
    let store = database.open();
    let failed = store
        .read("early", |tx| pools::get(tx, &pool_id("a/b")))
        .await;
    let Err(error @ StoreError::NotMigrated { .. }) = failed else {
        panic!("{failed:?}");
    };
    assert!(error.to_string().contains("fleetwright migrate"), "{error}");
});

/// Fails unless the database is refused with this message.
async fn check_refused(database: &Database, message: &str) {
    let store = database.open();
    for refused in [store.migrate(2).await, store.pending_migrations().await] {
        let refused = refused.unwrap_err();
        assert!(matches!(refused, StoreError::OtherMigration { .. }));
        assert_eq!(refused.to_string(), message);
    }
}

on_both!(empty an_edited_migration_is_refused, |database| {
    database.migrated().await;
    database.raw("UPDATE schema_migrations SET checksum = 'other' WHERE number = 1");
    let message = "the database has the migration 0001_schema, whose content is not that of this \
                   program; use the program that migrated the database last, or a new database";
    check_refused(database, message).await;
});

on_both!(empty a_database_of_a_newer_program_is_refused, |database| {
    database.migrated().await;
    database.raw("INSERT INTO schema_migrations VALUES (99, '0099_future', 'x', 1)");
    let message =
        "the database has the migration 0099_future, of a newer program; use a newer fleetwright";
    check_refused(database, message).await;
});

// Before the first release, the schema was made in many steps.
on_both!(empty a_database_of_an_unreleased_program_is_refused, |database| {
    database.raw(
        "CREATE TABLE schema_migrations (number BIGINT PRIMARY KEY, name TEXT NOT NULL, \
         checksum TEXT NOT NULL, applied BIGINT NOT NULL); \
         INSERT INTO schema_migrations VALUES (1, '0001_access', 'x', 1), \
         (2, '0002_pools_and_workers', 'x', 1); CREATE TABLE workers (worker_id TEXT)",
    );
    let message = "the database has the migration 0001_access, which this program does not have: an \
         unreleased fleetwright or another program made this database; use a new database, or \
         that program";
    check_refused(database, message).await;
    // Nothing was changed: the tables are still not those of this program.
    database.raw("DROP TABLE workers; DROP TABLE schema_migrations");
    database.migrated().await;
});

on_both!(
    empty of_many_concurrent_migrations_one_applies_the_changes,
    |database| {
        let stores: Vec<_> = (0..6).map(|_| database.open()).collect();
        let tasks: Vec<_> = stores
            .iter()
            .cloned()
            .map(|store| tokio::spawn(async move { store.migrate(1).await }))
            .collect();
        let mut n_applied = 0;
        for task in tasks {
            n_applied += task.await.unwrap().unwrap().len();
        }
        assert_eq!(n_applied, N_MIGRATIONS);
        stores[0].check_statements().await.unwrap();
    }
);

on_both!(empty a_failed_migration_leaves_no_changes, |database| {
    let store = database.open();
    // Conflicts with one of the tables, after others were made.
    database.raw("CREATE TABLE workers (x BIGINT)");
    let failed = store.migrate(1).await;
    assert!(
        matches!(failed, Err(StoreError::Migration { .. })),
        "{failed:?}"
    );
    database.raw("DROP TABLE workers");
    let pending = store.pending_migrations().await.unwrap();
    assert_eq!(pending.len(), N_MIGRATIONS);
    assert_eq!(store.migrate(1).await.unwrap(), pending);
});
