//! Migrations: each is applied once, to a database with data, by one of several processes.

use std::ops::Range;

use domain::id::ProviderId;
use domain::time::HOUR_MS;
use domain::waits::Grouping;
use sha2::{Digest, Sha256};
use store::{Engine, Store, StoreError, clients, pools, recorded_workers, wait_accounts, workers};

use crate::samples::{at, client, pool_id, worker, worker_key};
use crate::world::{Database, on_both, read, write};

/// Number of the migration that makes the recorded history.
const RECORDING: usize = 25;
/// How many migrations a database has whose accounts of waits are kept by name.
const WAITS_BY_NAME: Range<usize> = 29..32;

const FILES: [(&str, &str); 36] = [
    (
        "0001_access",
        include_str!("../../migrations/0001_access.sql"),
    ),
    (
        "0002_pools_and_workers",
        include_str!("../../migrations/0002_pools_and_workers.sql"),
    ),
    (
        "0003_outbox_and_audit",
        include_str!("../../migrations/0003_outbox_and_audit.sql"),
    ),
    (
        "0004_queue",
        include_str!("../../migrations/0004_queue.sql"),
    ),
    (
        "0005_launches_and_plans",
        include_str!("../../migrations/0005_launches_and_plans.sql"),
    ),
    (
        "0006_events",
        include_str!("../../migrations/0006_events.sql"),
    ),
    (
        "0007_notices",
        include_str!("../../migrations/0007_notices.sql"),
    ),
    (
        "0008_providers_of_pools",
        include_str!("../../migrations/0008_providers_of_pools.sql"),
    ),
    (
        "0009_worker_configurations",
        include_str!("../../migrations/0009_worker_configurations.sql"),
    ),
    (
        "0010_run_outcomes",
        include_str!("../../migrations/0010_run_outcomes.sql"),
    ),
    (
        "0011_overrides",
        include_str!("../../migrations/0011_overrides.sql"),
    ),
    (
        "0012_documentation",
        include_str!("../../migrations/0012_documentation.sql"),
    ),
    (
        "0013_configuration_summaries",
        include_str!("../../migrations/0013_configuration_summaries.sql"),
    ),
    (
        "0014_first_claims",
        include_str!("../../migrations/0014_first_claims.sql"),
    ),
    (
        "0015_launches_asked",
        include_str!("../../migrations/0015_launches_asked.sql"),
    ),
    (
        "0016_workers_by_region",
        include_str!("../../migrations/0016_workers_by_region.sql"),
    ),
    (
        "0017_cache_purges",
        include_str!("../../migrations/0017_cache_purges.sql"),
    ),
    (
        "0018_health_by_events",
        include_str!("../../migrations/0018_health_by_events.sql"),
    ),
    (
        "0019_supply",
        include_str!("../../migrations/0019_supply.sql"),
    ),
    (
        "0020_roles_by_revision",
        include_str!("../../migrations/0020_roles_by_revision.sql"),
    ),
    (
        "0021_inputs_of_plans",
        include_str!("../../migrations/0021_inputs_of_plans.sql"),
    ),
    (
        "0022_agreed_prices",
        include_str!("../../migrations/0022_agreed_prices.sql"),
    ),
    (
        "0023_market",
        include_str!("../../migrations/0023_market.sql"),
    ),
    (
        "0024_shadow_plans",
        include_str!("../../migrations/0024_shadow_plans.sql"),
    ),
    (
        "0025_recording",
        include_str!("../../migrations/0025_recording.sql"),
    ),
    (
        "0026_tree_nodes",
        include_str!("../../migrations/0026_tree_nodes.sql"),
    ),
    (
        "0027_images",
        include_str!("../../migrations/0027_images.sql"),
    ),
    (
        "0028_image_rollouts",
        include_str!("../../migrations/0028_image_rollouts.sql"),
    ),
    (
        "0029_waits",
        include_str!("../../migrations/0029_waits.sql"),
    ),
    (
        "0030_costs",
        include_str!("../../migrations/0030_costs.sql"),
    ),
    (
        "0031_budgets",
        include_str!("../../migrations/0031_budgets.sql"),
    ),
    (
        "0032_waits_by_number",
        include_str!("../../migrations/0032_waits_by_number.sql"),
    ),
    (
        "0033_kept_versions",
        include_str!("../../migrations/0033_kept_versions.sql"),
    ),
    (
        "0034_updates_in_place",
        include_str!("../../migrations/0034_updates_in_place.sql"),
    ),
    (
        "0035_few_of_many_workers",
        include_str!("../../migrations/0035_few_of_many_workers.sql"),
    ),
    (
        "0036_pools_of_any_size",
        include_str!("../../migrations/0036_pools_of_any_size.sql"),
    ),
];

/// Creates a database as an older program with fewer migrations would leave it.
fn make_old(database: &Database, engine: Engine, n_applied: usize) {
    let (key, serial, by_key, postgres) = match engine {
        Engine::Sqlite => (
            "TEXT",
            "INTEGER PRIMARY KEY AUTOINCREMENT",
            "WITHOUT ROWID",
            "-- ",
        ),
        Engine::Postgres => (
            "TEXT COLLATE \"C\"",
            "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
            "",
            "",
        ),
    };
    database.raw(
        "CREATE TABLE schema_migrations (number BIGINT PRIMARY KEY, name TEXT NOT NULL, \
         checksum TEXT NOT NULL, applied BIGINT NOT NULL)",
    );
    for (name, sql) in FILES.iter().take(n_applied) {
        let translated = sql
            .replace("{key}", key)
            .replace("{serial}", serial)
            .replace("{by_key}", by_key)
            .replace("{postgres}", postgres);
        database.raw(&translated);
        let checksum: String = Sha256::digest(sql.as_bytes())
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let number: i64 = name[..4].parse().unwrap();
        database.raw(&format!(
            "INSERT INTO schema_migrations VALUES ({number}, '{name}', '{checksum}', 1)"
        ));
    }
}

/// Inserts rows as an older program would: it does not have the newer columns.
async fn put_data(database: &Database, store: &Store, n_applied: usize) {
    if n_applied >= 1 {
        write(store, |tx| clients::insert(tx, &client("kept"))).await;
    }
    if n_applied >= 2 {
        database.raw(
            "INSERT INTO worker_pools (worker_pool_id, provider_id, previous_provider_ids, \
             description, config, owner, email_on_error, created, last_modified, version) VALUES \
             ('a/b', 'one', '[\"old\"]', '', '{}', 'ops@example.com', 1, 1000, 1000, 1)",
        );
        database.raw(
            "INSERT INTO workers (worker_pool_id, worker_group, worker_id, provider_id, \
             launch_config_id, state, capacity, created, expires, last_modified, last_checked, \
             terms, provider_data, secret, previous_secret, previous_secret_until, version) VALUES \
             ('a/b', 'g', 'w', 'aws-1', 'lc-1', 'running', 2, 100, 10000, 200, 300, \
             '{\"terminateAfter\":9000,\"workerConfig\":{\"deep\":{\"er\":true}}}', \
             '{\"region\":\"us-east-1\",\"n\":3}', 'digest-2', 'digest-1', 400, 1)",
        );
        database.raw(
            "INSERT INTO workers (worker_pool_id, worker_group, worker_id, provider_id, \
             launch_config_id, state, capacity, created, expires, last_modified, last_checked, \
             terms, provider_data, version) VALUES \
             ('a/b', 'g', 'stopped', 'aws-1', 'lc-1', 'stopped', 2, 100, 10000, 200, 300, \
             '{}', '{}', 1)",
        );
    }
    if WAITS_BY_NAME.contains(&n_applied) {
        database.raw(
            "INSERT INTO wait_accounts (span, since, worker_pool_id, owner, cause, runs, millis) \
             VALUES (3600000, 0, 'a/b', 'o', 'booting', 1, 10), \
             (3600000, 3600000, 'a/b', 'o', 'booting', 2, 20), \
             (3600000, 0, 'a/b', 'other', 'booting', 3, 30), (3600000, 0, 'c/d', '', 'claim', 4, 40)",
        );
    }
}

/// A report by pool, such as `a/b booting 1 10`.
async fn wait_report(store: &Store) -> Vec<String> {
    let time = (HOUR_MS, at(0), at(3 * HOUR_MS));
    let sums = read(store, move |tx| {
        wait_accounts::sums(tx, Grouping::Pool, time, None)
    });
    let sums = sums.await;
    sums.iter()
        .map(|sum| {
            format!(
                "{} {} {} {}",
                sum.key,
                sum.cause.as_str(),
                sum.runs,
                sum.millis
            )
        })
        .collect()
}

on_both!(every_older_database_is_migrated_with_its_data, |database| {
    let engine = database.open().engine();
    for n_applied in 0..=FILES.len() {
        let database = database.another();
        make_old(&database, engine, n_applied);
        let store = database.open();
        put_data(&database, &store, n_applied).await;
        let missing: Vec<_> = FILES[n_applied..].iter().map(|(name, _)| *name).collect();
        assert_eq!(store.pending_migrations().await.unwrap(), missing);
        assert_eq!(store.migrate(7).await.unwrap(), missing);
        store.check_statements().await.unwrap();
        if n_applied >= 1 {
            let kept = read(&store, |tx| clients::get(tx, &"kept".parse().unwrap())).await;
            assert_eq!(kept, Some(client("kept")));
        }
        if n_applied >= 2 {
            let kept = read(&store, |tx| pools::get(tx, &pool_id("a/b")))
                .await
                .unwrap();
            assert_eq!(kept.worker_configuration_id, None);
            let ids: Vec<_> = kept.provider_ids().map(ProviderId::as_str).collect();
            assert_eq!(ids, ["one"]);
            let kept = read(&store, |tx| workers::get(tx, &worker_key("a/b", "g", "w"))).await;
            assert_eq!(kept, Some(worker("a/b", "g", "w")));
        }
        if (2..RECORDING).contains(&n_applied) {
            // Workers that had stopped before are recorded, too.
            let recorded = read(&store, |tx| {
                let first = (at(0), String::new(), String::new(), String::new());
                recorded_workers::list(tx, &first, at(0), at(1_000), 10)
            });
            let recorded = recorded.await;
            assert_eq!(recorded.len(), 1);
            assert_eq!(recorded[0].key, worker_key("a/b", "g", "stopped"));
            assert_eq!(
                (recorded[0].stopped, recorded[0].price),
                (Some(at(200)), None)
            );
        }
        if WAITS_BY_NAME.contains(&n_applied) {
            let report = wait_report(&store).await;
            assert_eq!(report, ["a/b booting 6 60", "c/d claim 4 40"]);
        }
        store.close().await;
    }
});

on_both!(migrating_twice_changes_nothing, |database| {
    let store = database.open();
    assert_eq!(store.pending_migrations().await.unwrap().len(), FILES.len());
    assert_eq!(store.migrate(1).await.unwrap().len(), FILES.len());
    assert!(store.pending_migrations().await.unwrap().is_empty());
    assert!(store.migrate(2).await.unwrap().is_empty());
});

on_both!(without_tables_the_error_says_to_migrate, |database| {
    let store = database.open();
    let failed = store
        .read("early", |tx| pools::get(tx, &pool_id("a/b")))
        .await;
    let Err(error @ StoreError::NotMigrated { .. }) = failed else {
        panic!("{failed:?}");
    };
    assert!(error.to_string().contains("fleetwright migrate"), "{error}");
});

on_both!(an_edited_migration_is_refused, |database| {
    let store = database.migrated().await;
    database.raw("UPDATE schema_migrations SET checksum = 'other' WHERE number = 2");
    for failed in [store.migrate(2).await, store.pending_migrations().await] {
        let Err(StoreError::Migration { migration, reason }) = failed else {
            panic!("{failed:?}");
        };
        assert_eq!(migration, "0002_pools_and_workers");
        assert!(reason.contains("its content differs"), "{reason}");
    }
});

on_both!(a_database_of_a_newer_program_is_refused, |database| {
    let store = database.migrated().await;
    database.raw("INSERT INTO schema_migrations VALUES (99, '0099_future', 'x', 1)");
    let failed = store.migrate(2).await;
    let Err(StoreError::Migration { migration, reason }) = failed else {
        panic!("{failed:?}");
    };
    assert_eq!(migration, "0099_future");
    assert!(reason.contains("newer"), "{reason}");
});

on_both!(
    of_many_concurrent_migrations_one_applies_the_changes,
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
        assert_eq!(n_applied, FILES.len());
        stores[0].check_statements().await.unwrap();
    }
);

on_both!(a_failed_migration_leaves_no_changes, |database| {
    let store = database.open();
    // Conflicts with the second migration.
    database.raw("CREATE TABLE workers (x BIGINT)");
    let failed = store.migrate(1).await;
    assert!(
        matches!(failed, Err(StoreError::Migration { .. })),
        "{failed:?}"
    );
    database.raw("DROP TABLE workers");
    assert_eq!(store.pending_migrations().await.unwrap().len(), FILES.len());
    assert_eq!(store.migrate(1).await.unwrap().len(), FILES.len());
});
