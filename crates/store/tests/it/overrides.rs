//! Overrides: in force until their end, and deleted some time after it.

use domain::Version;
use domain::overrides::{Effect, Override, Target};
use store::{StoreError, overrides};

use crate::samples::{at, pool_id};
use crate::world::{on_both, read, write};

fn pause(id: &str, target: Target, until: i64) -> Override {
    Override {
        id: id.parse().unwrap(),
        target,
        effect: Effect::Pause,
        reason: "the \"prices\" – größer".to_owned(),
        owner: "team/ann".parse().unwrap(),
        created: at(5),
        until: at(until),
        ended: None,
        version: Version::FIRST,
    }
}

fn provider() -> Target {
    Target::Provider("aws".parse().unwrap())
}

fn ids(list: &[Override]) -> Vec<&str> {
    list.iter().map(|given| given.id.as_str()).collect()
}

on_both!(an_override_is_read_as_it_was_written, |database| {
    let store = database.migrated().await;
    let config = Target::LaunchConfig(pool_id("a/b"), "lc".parse().unwrap());
    let region = Target::Region("us-east-1".parse().unwrap());
    let mut limits = pause("limits.of_a-b", Target::Pool(pool_id("a/b")), 90);
    limits.effect = Effect::Limits {
        min_capacity: Some(3),
        max_capacity: None,
    };
    limits.ended = Some(at(91));
    let all = [
        pause("config", config, 90),
        limits,
        pause("provider", provider(), 90),
        pause("region", region, 90),
        pause("rules", Target::Configuration("build".parse().unwrap()), 90),
    ];
    for given in all.clone() {
        assert!(write(&store, move |tx| overrides::insert(tx, &given)).await);
    }
    for given in all.clone() {
        let id = given.id.clone();
        assert_eq!(
            read(&store, move |tx| overrides::get(tx, &id)).await,
            Some(given)
        );
    }
    let again = all[0].clone();
    assert!(!write(&store, move |tx| overrides::insert(tx, &again)).await);
});

on_both!(an_update_is_guarded_and_writes_all_columns, |database| {
    let store = database.migrated().await;
    let given = pause("p", provider(), 90);
    let mut changed = given.clone();
    changed.target = Target::Pool(pool_id("a/b"));
    changed.effect = Effect::Limits {
        min_capacity: None,
        max_capacity: Some(7),
    };
    changed.reason = "other".to_owned();
    changed.owner = "bob".parse().unwrap();
    (changed.created, changed.until, changed.ended) = (at(6), at(100), Some(at(101)));
    let stored = changed.clone();
    let version = write(&store, move |tx| {
        overrides::insert(tx, &given)?;
        overrides::update(tx, &stored)
    })
    .await;
    let old = changed.clone();
    changed.version = version;
    let found = read(&store, |tx| overrides::get(tx, &"p".parse().unwrap())).await;
    assert_eq!(found, Some(changed.clone()));
    let late = store
        .write("late", move |tx| overrides::delete(tx, &old))
        .await;
    assert!(
        matches!(late, Err(StoreError::TooManyConflicts { .. })),
        "{late:?}"
    );
    write(&store, move |tx| overrides::delete(tx, &changed)).await;
    assert_eq!(
        read(&store, |tx| overrides::get(tx, &"p".parse().unwrap())).await,
        None
    );
});

on_both!(
    an_override_is_in_force_then_due_then_ended_then_deleted,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            overrides::insert(tx, &pause("b", provider(), 90))?;
            overrides::insert(tx, &pause("c", provider(), 50))?;
            overrides::insert(tx, &pause("a", provider(), 100))
        })
        .await;
        let in_force = |now| move |tx: &mut store::Tx<'_>| overrides::list_in_force(tx, at(now));
        assert_eq!(ids(&read(&store, in_force(49)).await), ["a", "b", "c"]);
        assert_eq!(ids(&read(&store, in_force(50)).await), ["a", "b"]);
        let due = |now| move |tx: &mut store::Tx<'_>| overrides::list_due(tx, at(now), 10);
        assert!(read(&store, due(49)).await.is_empty());
        assert_eq!(ids(&read(&store, due(90)).await), ["c", "b"]);
        write(&store, |tx| {
            let mut ended = overrides::get(tx, &"c".parse().unwrap())?.unwrap();
            ended.ended = Some(at(51));
            overrides::update(tx, &ended)
        })
        .await;
        assert_eq!(ids(&read(&store, due(90)).await), ["b"]);
        assert_eq!(
            ids(&read(&store, in_force(10)).await),
            ["a", "b"],
            "it stays ended"
        );
        let list = |with_ended, after: Option<&'static str>, limit| {
            move |tx: &mut store::Tx<'_>| {
                let after = after.map(|id| id.parse().unwrap());
                overrides::list(tx, at(60), with_ended, after.as_ref(), limit)
            }
        };
        assert_eq!(ids(&read(&store, list(false, None, 10)).await), ["a", "b"]);
        assert_eq!(
            ids(&read(&store, list(true, Some("a"), 10)).await),
            ["b", "c"]
        );
        assert_eq!(ids(&read(&store, list(true, None, 1)).await), ["a"]);
        let before = |moment| {
            move |tx: &mut store::Tx<'_>| overrides::delete_ended_before(tx, at(moment), 9)
        };
        assert_eq!(write(&store, before(51)).await, 0);
        assert_eq!(write(&store, before(52)).await, 1);
        assert_eq!(ids(&read(&store, list(true, None, 10)).await), ["a", "b"]);
    }
);
