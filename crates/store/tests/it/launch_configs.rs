//! Launch configs: active, archived and expirable ones.

use domain::id::LaunchConfigId;
use domain::launch::LaunchState;
use domain::worker::WorkerState;
use store::{StoreError, Tx, launch_configs, launches, workers};

use crate::launches::{launch, token, unknown};
use crate::samples::{at, edit, launch_config, object, pool_id, worker, worker_key};
use crate::world::{on_both, read, write};

fn ids(configs: &[domain::launch_config::LaunchConfig]) -> Vec<String> {
    configs
        .iter()
        .map(|c| format!("{} {}", c.pool_id, c.id))
        .collect()
}

/// Deletes the archived launch configs that nothing names.
fn expire(tx: &mut Tx<'_>, limit: u32) -> Result<u64, StoreError> {
    let found = launch_configs::list_expirable(tx, limit)?;
    launch_configs::delete_expirable(tx, &found)
}

on_both!(a_launch_config_is_read_as_it_was_written, |database| {
    let store = database.migrated().await;
    let inserted = |tx: &mut Tx<'_>| launch_configs::insert(tx, &launch_config("a/b", "lc-1"));
    write(&store, inserted).await;
    let again = store.write("test_write", inserted).await;
    assert!(matches!(again, Err(StoreError::TooManyConflicts { .. })));
    let all = read(&store, |tx| launch_configs::all(tx, &pool_id("a/b"))).await;
    assert_eq!(all, [launch_config("a/b", "lc-1")]);
});

on_both!(
    archived_launch_configs_are_listed_only_on_request,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            for id in ["lc-3", "lc-1", "lc-2"] {
                launch_configs::insert(tx, &launch_config("a/b", id))?;
            }
            launch_configs::insert(tx, &launch_config("a/c", "lc-1"))?;
            launch_configs::archive(tx, &launch_config("a/b", "lc-2"), at(50)).map(drop)
        })
        .await;
        let active = read(&store, |tx| {
            launch_configs::list(tx, &pool_id("a/b"), false, None, 10)
        })
        .await;
        assert_eq!(ids(&active), ["a/b lc-1", "a/b lc-3"]);
        let after: LaunchConfigId = "lc-1".parse().unwrap();
        let rest = read(&store, move |tx| {
            launch_configs::list(tx, &pool_id("a/b"), true, Some(&after), 1)
        })
        .await;
        assert_eq!(ids(&rest), ["a/b lc-2"]);
        assert!(rest[0].archived);
        assert_eq!((rest[0].last_modified, rest[0].version.0), (at(50), 2));
        let between = read(&store, |tx| {
            launch_configs::active_between(tx, &pool_id("a/b"), &pool_id("a/c"))
        })
        .await;
        assert_eq!(ids(&between), ["a/b lc-1", "a/b lc-3", "a/c lc-1"]);
        let of = |pools: &'static [&'static str]| {
            let pools: Vec<_> = pools.iter().map(|id| pool_id(id)).collect();
            read(&store, move |tx| launch_configs::active_of(tx, &pools))
        };
        assert_eq!(ids(&of(&["a/c", "a/none"]).await), ["a/c lc-1"]);
        let both = of(&["a/c", "a/b"]).await;
        assert_eq!(ids(&both), ids(&between));
        assert_eq!(ids(&of(&[]).await), [""; 0]);
    }
);

on_both!(an_update_can_unarchive_a_launch_config, |database| {
    let store = database.migrated().await;
    let changed = write(&store, |tx| {
        let mut config = launch_config("a/b", "lc-1");
        launch_configs::insert(tx, &config)?;
        config.version = launch_configs::archive(tx, &config, at(10))?;
        config.configuration = object(serde_json::json!({"image": "lc-1"}));
        config.last_modified = at(20);
        config.version = launch_configs::update(tx, &config)?;
        Ok(config)
    })
    .await;
    let all = read(&store, |tx| launch_configs::all(tx, &pool_id("a/b"))).await;
    assert_eq!(all, [changed]);
});

on_both!(
    archived_launch_configs_of_existing_workers_are_kept,
    |database| {
        let store = database.migrated().await;
        let n_deleted = write(&store, |tx| {
            for (pool, id, archived) in [
                ("a/b", "lc-1", true),
                ("a/b", "lc-2", true),
                ("a/b", "lc-3", false),
                ("a/c", "lc-1", true),
            ] {
                let mut config = launch_config(pool, id);
                config.archived = archived;
                launch_configs::insert(tx, &config)?;
            }
            // Refers to lc-1 of its own pool. The lc-1 of the other pool is another launch config.
            workers::insert(tx, &worker("a/b", "g", "w"))?;
            expire(tx, 10)
        })
        .await;
        assert_eq!(n_deleted, 2);
        // They were looked for before, and may be in use now.
        let used = [("a/b", "lc-1"), ("a/b", "lc-3")];
        let used = used.map(|(pool, id)| (pool_id(pool), id.parse().unwrap()));
        let deleting = write(&store, move |tx| {
            launch_configs::delete_expirable(tx, &used)
        });
        assert_eq!(deleting.await, 0);
        let left = read(&store, |tx| launch_configs::all(tx, &pool_id("a/b"))).await;
        assert_eq!(ids(&left), ["a/b lc-1", "a/b lc-3"]);
    }
);

on_both!(
    an_archived_launch_config_goes_with_its_last_worker_and_its_last_open_launch,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            let mut config = launch_config("a/b", "lc-1");
            config.archived = true;
            launch_configs::insert(tx, &config)?;
            for (number, state) in [(1, LaunchState::Open), (2, unknown())] {
                launches::insert(tx, &launch(number, "a/b", "lc-1", state))?;
            }
            // Launches that were answered, and those of other pools, keep nothing.
            launches::insert(tx, &launch(3, "a/b", "lc-1", LaunchState::Accepted))?;
            launches::insert(tx, &launch(4, "a/c", "lc-1", LaunchState::Open))?;
            workers::insert(tx, &worker("a/b", "g", "w")).map(drop)
        })
        .await;
        let expire = || write(&store, |tx| expire(tx, 10));
        for state in [
            WorkerState::Requested,
            WorkerState::Running,
            WorkerState::Stopping,
            WorkerState::Stopped,
        ] {
            write(&store, move |tx| {
                let mut worker = workers::get(tx, &worker_key("a/b", "g", "w"))?.unwrap();
                edit(&mut worker, |it| {
                    it.state = state;
                    it.expires = at(10);
                });
                workers::update(tx, &worker)
            })
            .await;
            assert_eq!(expire().await, 0, "{state}");
        }
        write(&store, |tx| workers::delete_expired(tx, at(11), 10)).await;
        for number in [1, 2] {
            assert_eq!(expire().await, 0, "a launch has no answer");
            write(&store, move |tx| {
                let launch = launches::get(tx, &token(number))?.unwrap();
                let over = launch.give_up("lost".to_owned(), at(2_000)).unwrap();
                launches::update(tx, &over)
            })
            .await;
        }
        assert_eq!(expire().await, 1);
        assert_eq!(expire().await, 0);
    }
);
