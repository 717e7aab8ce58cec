//! Pools: inserts, guarded updates and lists.

use domain::id::ProviderId;
use store::{StoreError, launch_configs, pools, workers};

use crate::samples::{at, edit, launch_config, object, pool, pool_id, worker};
use crate::world::{on_both, read, write};

on_both!(a_pool_is_read_as_it_was_written, |database| {
    let store = database.migrated().await;
    let mut stored = pool("a/b", "aws-1");
    stored.previous_provider_ids = vec!["old-1".parse().unwrap(), "old-2".parse().unwrap()];
    stored.definition.further_provider_ids = vec!["aws-2".parse().unwrap()];
    stored.worker_configuration_id = Some("build.v2".parse().unwrap());
    let expected = stored.clone();
    write(&store, move |tx| pools::insert(tx, &stored)).await;
    assert_eq!(
        read(&store, |tx| pools::get(tx, &pool_id("a/b"))).await,
        Some(expected)
    );
    assert_eq!(
        read(&store, |tx| pools::get(tx, &pool_id("a/c"))).await,
        None
    );
});

on_both!(a_second_pool_with_the_same_id_is_not_inserted, |database| {
    let store = database.migrated().await;
    write(&store, |tx| pools::insert(tx, &pool("a/b", "one"))).await;
    let again = store.write("again", |tx| pools::insert(tx, &pool("a/b", "two")));
    let again = again.await;
    assert!(matches!(again, Err(StoreError::TooManyConflicts { .. })));
    let kept = read(&store, |tx| pools::get(tx, &pool_id("a/b")))
        .await
        .unwrap();
    assert_eq!(kept.definition.provider_id.as_str(), "one");
});

on_both!(
    an_update_writes_all_columns_but_the_time_of_creation,
    |database| {
        let store = database.migrated().await;
        let changed = write(&store, |tx| {
            pools::insert(tx, &pool("a/b", "one"))?;
            let mut changed = pools::get(tx, &pool_id("a/b"))?.unwrap();
            changed.definition.provider_id = "two".parse().unwrap();
            changed.definition.further_provider_ids = vec!["three".parse().unwrap()];
            changed.worker_configuration_id = Some("build".parse().unwrap());
            changed.definition.description = "other".to_owned();
            changed.definition.config = object(serde_json::json!({}));
            changed.definition.owner = "you@example.com".to_owned();
            changed.definition.email_on_error = false;
            changed.previous_provider_ids = vec!["one".parse().unwrap()];
            changed.last_modified = at(2_000);
            changed.version = pools::update(tx, &changed)?;
            Ok(changed)
        })
        .await;
        assert_eq!(changed.version, domain::Version(2));
        assert_eq!(
            read(&store, |tx| pools::get(tx, &pool_id("a/b"))).await,
            Some(changed)
        );
    }
);

on_both!(pages_of_pools_contain_every_pool_once, |database| {
    let store = database.migrated().await;
    write(&store, |tx| {
        for number in [3, 1, 4, 2, 5] {
            pools::insert(tx, &pool(&format!("a/p{number}"), "one"))?;
        }
        Ok(())
    })
    .await;
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let last = after.clone();
        let page = read(&store, move |tx| pools::list(tx, last.as_ref(), 2)).await;
        let Some(last) = page.last() else { break };
        after = Some(last.id.clone());
        seen.extend(page.into_iter().map(|pool| pool.id.to_string()));
    }
    assert_eq!(seen, ["a/p1", "a/p2", "a/p3", "a/p4", "a/p5"]);
});

/// The size of a pool in these tests without its launch configs, and of a launch config without its
/// text.
const ROW_BYTES: u64 = 256;

on_both!(a_part_of_pools_has_a_bounded_size, |database| {
    let store = database.migrated().await;
    let one = write(&store, |tx| {
        for number in 0..40 {
            let id = format!("a/p{number:02}");
            let stored = pool(&id, "one");
            pools::insert(tx, &stored)?;
            for position in 0..3 {
                let mut config = launch_config(&id, &format!("lc-{position}"));
                config.archived = position == 2;
                launch_configs::insert(tx, &config)?;
            }
        }
        let config = launch_config("a/p", "lc-0").configuration;
        let stored = pool("a/p", "one").definition;
        let length = |value| serde_json::to_string(&value).unwrap().len() as u64;
        let active = 2 * (length(config) + ROW_BYTES);
        Ok(length(stored.config) + stored.description.len() as u64 + ROW_BYTES + active)
    })
    .await;
    let n_fit = async |max_bytes: u64, limit: u32| {
        let part = read(&store, move |tx| pools::part(tx, None, limit, max_bytes)).await;
        (part.items.len() as u64, part.is_cut)
    };
    // At least one pool is read, and otherwise as many as fit.
    assert_eq!(n_fit(0, 99).await, (1, true));
    assert_eq!(n_fit(1, 99).await, (1, true));
    for n_pools in [2, 4, 40] {
        assert_eq!(n_fit(n_pools * one - 1, 99).await, (n_pools - 1, true));
        assert_eq!(n_fit(n_pools * one, 99).await, (n_pools, n_pools < 40));
        assert_eq!(n_fit(n_pools * one + 1, 99).await, (n_pools, n_pools < 40));
    }
    assert_eq!(n_fit(10 * 40 * one, 99).await, (40, false));
    // The limit of rows still applies.
    assert_eq!(n_fit(40 * one, 0).await, (0, false));
    assert_eq!(n_fit(40 * one, 5).await, (5, false));
});

on_both!(a_part_of_launch_configs_has_a_bounded_size, |database| {
    let store = database.migrated().await;
    write(&store, |tx| {
        for number in 0..20 {
            launch_configs::insert(tx, &launch_config("a/b", &format!("lc-{number:02}")))?;
        }
        Ok(())
    })
    .await;
    let config = launch_config("a/b", "lc-00").configuration;
    let one = serde_json::to_string(&config).unwrap().len() as u64 + ROW_BYTES;
    for (max_bytes, expected) in [
        (0, 1),
        (one, 1),
        (4 * one - 1, 3),
        (4 * one, 4),
        (4 * one + 1, 4),
        (40 * one, 20),
    ] {
        let part = read(&store, move |tx| {
            launch_configs::part(tx, &pool_id("a/b"), true, None, 99, max_bytes)
        });
        let part = part.await;
        assert_eq!((part.items.len(), part.is_cut), (expected, expected < 20));
    }
});

on_both!(
    only_pools_without_provider_and_configuration_are_expirable,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            let mut leaving = pool("a/leaving", ProviderId::NULL);
            leaving.previous_provider_ids = vec!["one".parse().unwrap()];
            pools::insert(tx, &leaving)?;
            let mut unprovisioned = pool("a/declared", ProviderId::NULL);
            unprovisioned.worker_configuration_id = Some("build".parse().unwrap());
            pools::insert(tx, &unprovisioned)?;
            pools::insert(tx, &pool("a/gone", ProviderId::NULL))?;
            pools::insert(tx, &pool("a/live", "one"))
        })
        .await;
        let expirable = read(&store, |tx| pools::list_expirable(tx, 10)).await;
        let ids: Vec<_> = expirable.iter().map(|pool| pool.id.to_string()).collect();
        assert_eq!(ids, ["a/gone"]);
        assert!(write(&store, |tx| pools::delete(tx, &pool_id("a/gone"))).await);
        assert!(!write(&store, |tx| pools::delete(tx, &pool_id("a/gone"))).await);
        assert!(
            read(&store, |tx| pools::list_expirable(tx, 10))
                .await
                .is_empty()
        );
    }
);

on_both!(
    pools_with_previous_providers_and_their_live_providers_are_found,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            for id in ["a/l1", "a/l2"] {
                let mut leaving = pool(id, "two");
                leaving.previous_provider_ids = vec!["one".parse().unwrap()];
                pools::insert(tx, &leaving)?;
            }
            pools::insert(tx, &pool("a/m", "one"))?;
            let mut gone = worker("a/l1", "g", "gone");
            edit(&mut gone, |it| {
                it.state = domain::worker::WorkerState::Stopped;
                it.provider_id = "three".parse().unwrap();
            });
            workers::insert(tx, &gone)?;
            for (id, provider) in [("w1", "two"), ("w2", "one"), ("w3", "one")] {
                let mut live = worker("a/l1", "g", id);
                edit(&mut live, |it| it.provider_id = provider.parse().unwrap());
                workers::insert(tx, &live)?;
            }
            Ok(())
        })
        .await;
        let first = read(&store, |tx| pools::list_leaving(tx, None, 1)).await;
        assert_eq!(first[0].id, pool_id("a/l1"));
        let rest = read(&store, |tx| {
            pools::list_leaving(tx, Some(&pool_id("a/l1")), 9)
        })
        .await;
        assert_eq!(
            rest.iter().map(|pool| &pool.id).collect::<Vec<_>>(),
            [&pool_id("a/l2")]
        );
        let live = read(&store, |tx| workers::live_providers(tx, &pool_id("a/l1"))).await;
        assert_eq!(
            live.iter().map(ProviderId::as_str).collect::<Vec<_>>(),
            ["one", "two"]
        );
    }
);

on_both!(pools_are_counted_by_each_current_provider, |database| {
    let store = database.migrated().await;
    write(&store, |tx| {
        pools::insert(tx, &pool("a/p1", "two"))?;
        pools::insert(tx, &pool("a/p2", "one"))?;
        let mut of_three = pool("a/p3", "two");
        of_three.definition.further_provider_ids =
            ["one", "three"].map(|id| id.parse().unwrap()).into();
        pools::insert(tx, &of_three)
    })
    .await;
    let counts = read(&store, pools::count_by_provider).await;
    let counts: Vec<_> = counts.iter().map(|(id, n)| (id.as_str(), *n)).collect();
    assert_eq!(counts, [("one", 2), ("three", 1), ("two", 2)]);
});
