//! Launches, plans, turns, and the supply that the planner counts.

use domain::Version;
use domain::id::LaunchToken;
use domain::launch::{Cause, Launch, LaunchState, StoredLaunch};
use domain::supply::{AwaitedLaunches, Group};
use domain::worker::{Advice, WorkerState};
use serde_json::json;
use store::plans::{self, PlanRecord};
use store::{
    StoreError, launch_configs, launches, pools, queue_workers, turns, worker_supply, workers,
};

use crate::samples::{at, edit, launch_config, pool, pool_id, queue_worker, worker, worker_key};
use crate::world::{on_both, read, write};

pub(crate) fn token(number: u8) -> LaunchToken {
    let letter = char::from(b'a' + number);
    format!("fN1SbArXTPSVFNUvaOli{letter}Q").parse().unwrap()
}

pub(crate) fn launch(number: u8, pool: &str, config: &str, state: LaunchState) -> Launch {
    Launch::from_stored(StoredLaunch {
        token: token(number),
        pool_id: pool_id(pool),
        provider_id: "cloud".parse().unwrap(),
        launch_config_id: config.parse().unwrap(),
        offering: None,
        machines: 3,
        capacity_each: 2,
        max_price: Some(0.033_334),
        price: Some(0.016_667),
        state,
        asked: None,
        made: 0,
        plan: 7,
        created: at(1_000 + i64::from(number)),
        last_modified: at(1_000 + i64::from(number)),
        version: Version::FIRST,
    })
}

pub(crate) fn refused(cause: Cause) -> LaunchState {
    LaunchState::Refused {
        cause,
        problem: "no".to_owned(),
    }
}

pub(crate) fn unknown() -> LaunchState {
    LaunchState::Unknown {
        problem: "no answer".to_owned(),
    }
}

on_both!(a_launch_is_read_as_it_was_written, |database| {
    let store = database.migrated().await;
    let states = [
        LaunchState::Open,
        LaunchState::Accepted,
        refused(Cause::Quota),
        unknown(),
    ];
    for (number, state) in (1..).zip(states) {
        let mut expected = launch(number, "a/b", "lc", state).into_stored();
        if number == 2 {
            expected.max_price = None;
            expected.asked = Some(at(1_001));
        }
        let expected = Launch::from_stored(expected);
        let stored = expected.clone();
        write(&store, move |tx| launches::insert(tx, &stored)).await;
        let found = read(&store, move |tx| launches::get(tx, &token(number))).await;
        assert_eq!(found, Some(expected));
    }
    assert_eq!(read(&store, |tx| launches::get(tx, &token(9))).await, None);
    let newest = read(&store, |tx| launches::list(tx, &pool_id("a/b"), 2)).await;
    assert_eq!(
        newest
            .iter()
            .map(|launch| &launch.token)
            .collect::<Vec<_>>(),
        [&token(4), &token(3)]
    );
});

on_both!(the_result_of_a_launch_is_written_once, |database| {
    let store = database.migrated().await;
    write(&store, |tx| {
        launches::insert(tx, &launch(1, "a/b", "lc", LaunchState::Open))
    })
    .await;
    let version = write(&store, |tx| {
        let settled = Launch::from_stored(StoredLaunch {
            state: LaunchState::Accepted,
            made: 2,
            last_modified: at(9_000),
            ..launch(1, "a/b", "lc", LaunchState::Open).into_stored()
        });
        launches::update(tx, &settled)
    })
    .await;
    assert_eq!(version, Version::FIRST.next());
    let second = store.write("second", |tx| {
        launches::update(tx, &launch(1, "a/b", "lc", refused(Cause::Lost)))
    });
    let second: Result<_, StoreError> = second.await;
    assert!(second.is_err(), "the version was that of the first outcome");
    let found = read(&store, |tx| launches::get(tx, &token(1)))
        .await
        .unwrap();
    assert_eq!((&found.state, found.made), (&LaunchState::Accepted, 2));
});

on_both!(
    launches_without_an_answer_count_as_pending_capacity,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            launches::insert(tx, &launch(1, "a/b", "lc", LaunchState::Open))?;
            launches::insert(
                tx,
                &Launch::from_stored(StoredLaunch {
                    made: 1,
                    ..launch(2, "a/b", "lc", unknown()).into_stored()
                }),
            )?;
            launches::insert(tx, &launch(3, "a/b", "lc", LaunchState::Accepted))?;
            launches::insert(tx, &launch(4, "a/b", "other", refused(Cause::Capacity)))?;
            launches::insert(tx, &launch(5, "a/c", "lc", LaunchState::Open))
        })
        .await;
        let pending = read(&store, |tx| {
            launches::pending_between(tx, (at(0), at(0)), &pool_id("a/b"), &pool_id("a/b"))
        })
        .await;
        let awaited = |is_old| AwaitedLaunches {
            pool_id: pool_id("a/b"),
            launch_config_id: "lc".parse().unwrap(),
            provider_id: "cloud".parse().unwrap(),
            is_old,
            capacity: 10,
        };
        assert_eq!(pending, [awaited(false)]);
        let later = read(&store, |tx| {
            launches::pending_between(tx, (at(1_000_000), at(0)), &pool_id("a/b"), &pool_id("a/b"))
        });
        assert_eq!(later.await, [awaited(true)]);
        let lost = read(&store, |tx| {
            launches::pending_between(tx, (at(0), at(1_000_000)), &pool_id("a/b"), &pool_id("a/b"))
        });
        let lost: Vec<_> = lost
            .await
            .iter()
            .map(|it| (it.is_old, it.capacity))
            .collect();
        assert_eq!(
            lost,
            [(false, 6), (true, 4)],
            "the lost answer does not hold the other"
        );
        let provider = "cloud".parse().unwrap();
        let machines = read(&store, move |tx| launches::pending_machines(tx, &provider)).await;
        assert_eq!(machines, 8);
        let provider = "cloud".parse().unwrap();
        let pages = read(&store, move |tx| {
            let first = launches::list_pending(tx, &provider, None, 1)?;
            let last = &first[0];
            let after = Some((last.last_modified, &last.token));
            let rest = launches::list_pending(tx, &provider, after, 9)?;
            Ok([first, rest])
        })
        .await;
        let tokens = pages.map(|page| {
            let tokens = page.iter().map(|launch| launch.token.clone());
            tokens.collect::<Vec<_>>()
        });
        assert_eq!(tokens[0], [token(1)]);
        assert_eq!(tokens[1][0], token(2));
        let nobody = "nobody".parse().unwrap();
        let none = read(&store, move |tx| launches::pending_machines(tx, &nobody)).await;
        assert_eq!(none, 0);
    }
);

on_both!(only_settled_launches_are_deleted, |database| {
    let store = database.migrated().await;
    write(&store, |tx| {
        launches::insert(tx, &launch(1, "a/b", "lc", LaunchState::Open))?;
        launches::insert(tx, &launch(2, "a/b", "lc", LaunchState::Accepted))?;
        launches::insert(tx, &launch(3, "a/b", "lc", refused(Cause::Lost)))?;
        launches::insert(tx, &launch(4, "a/b", "lc", unknown()))
    })
    .await;
    assert_eq!(
        write(&store, |tx| launches::delete_before(tx, at(1_003), 9)).await,
        1
    );
    assert_eq!(
        write(&store, |tx| launches::delete_before(tx, at(9_000), 9)).await,
        1
    );
    let left = read(&store, |tx| launches::list(tx, &pool_id("a/b"), 9)).await;
    assert_eq!(left.len(), 2);
});

on_both!(a_pool_keeps_its_last_plans, |database| {
    let store = database.migrated().await;
    let plan = |pool: &str, number: i64| PlanRecord {
        pool_id: pool_id(pool),
        number,
        created: at(number),
        plan: json!({"version": 1, "number": number}),
    };
    write(&store, move |tx| {
        plans::insert(tx, &plan("a/c", 1), None, 3)?;
        (1..=5).try_for_each(|number| plans::insert(tx, &plan("a/b", number), None, 3))
    })
    .await;
    let kept = read(&store, |tx| plans::list(tx, &pool_id("a/b"), 9)).await;
    assert_eq!(kept, [plan("a/b", 5), plan("a/b", 4), plan("a/b", 3)]);
    let until = |number: i64| {
        read(&store, move |tx| {
            plans::list_until(tx, &pool_id("a/b"), at(number), 1)
        })
    };
    assert_eq!(until(4).await, [plan("a/b", 4)]);
    assert_eq!(until(2).await, []);
    assert_eq!(
        read(&store, |tx| plans::get(tx, &pool_id("a/b"), 4)).await,
        Some(plan("a/b", 4))
    );
    assert_eq!(
        read(&store, |tx| plans::get(tx, &pool_id("a/b"), 1)).await,
        None
    );
    assert_eq!(
        write(&store, |tx| plans::delete_before(tx, at(4), 9)).await,
        2
    );
});

on_both!(turns_count_up_for_each_name, |database| {
    let store = database.migrated().await;
    let taken = write(&store, |tx| {
        Ok((
            turns::take(tx, "a")?,
            turns::take(tx, "b")?,
            turns::take(tx, "a")?,
        ))
    });
    assert_eq!(taken.await, (1, 1, 2));
});

on_both!(concurrent_transactions_get_different_turns, |database| {
    let store = database.migrated().await;
    let deciders = (0..16).map(|_| {
        let store = store.clone();
        tokio::spawn(async move { write(&store, |tx| turns::take(tx, "pool")).await })
    });
    let mut turns = Vec::new();
    for decider in deciders.collect::<Vec<_>>() {
        turns.push(decider.await.unwrap());
    }
    turns.sort_unstable();
    assert_eq!(turns, (1..=16).collect::<Vec<i64>>());
});

fn group_text(group: &Group) -> String {
    let id = group.launch_config_id.as_ref();
    let config = id.map_or("-", |id| id.as_str());
    let Group {
        state,
        draining,
        count,
        capacity,
        ..
    } = group;
    format!("{config} {state} {draining} {count}x{capacity}")
}

on_both!(
    supply_is_grouped_by_state_advice_and_launch_config,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            let mut number = 0;
            let mut add = |config: Option<&str>, state, draining: bool| {
                number += 1;
                let mut worker = worker("a/b", "g", &format!("w{number}"));
                edit(&mut worker, |it| {
                    it.launch_config_id = config.map(|id| id.parse().unwrap());
                    it.state = state;
                    it.capacity = 2;
                    it.terms.advice = draining.then(|| Advice {
                        terminate: true,
                        reason: "over capacity".to_owned(),
                        decided_at: 0,
                    });
                });
                workers::insert(tx, &worker)
            };
            add(Some("lc"), WorkerState::Running, false)?;
            add(Some("lc"), WorkerState::Running, false)?;
            add(Some("lc"), WorkerState::Running, true)?;
            add(Some("lc"), WorkerState::Requested, false)?;
            add(None, WorkerState::Stopping, false)?;
            add(Some("lc"), WorkerState::Stopped, false)?;
            let mut elsewhere = worker("a/c", "g", "w");
            edit(&mut elsewhere, |it| it.state = WorkerState::Running);
            workers::insert(tx, &elsewhere)?;
            let mut ill = queue_worker("a/b", "g", "w2");
            ill.quarantine_until = Some(at(5_000));
            queue_workers::upsert(tx, &ill)
        })
        .await;
        let supply = read(&store, |tx| {
            worker_supply::between(tx, &pool_id("a/b"), &pool_id("a/b"))
        })
        .await;
        let summary: Vec<_> = supply.iter().map(|(group, _)| group_text(group)).collect();
        assert_eq!(
            summary,
            [
                "- stopping false 1x2",
                "lc requested false 1x2",
                "lc running false 2x4",
                "lc running true 1x2",
            ]
        );
        let quarantined = read(&store, |tx| {
            let at_its_end = at(5_000);
            worker_supply::quarantined_between(tx, at_its_end, &pool_id("a/a"), &pool_id("a/z"))
        })
        .await;
        assert_eq!(quarantined.len(), 1);
        assert_eq!((quarantined[0].count, quarantined[0].capacity), (1, 2));
        let after = read(&store, |tx| {
            worker_supply::quarantined_between(tx, at(5_001), &pool_id("a/a"), &pool_id("a/z"))
        });
        assert_eq!(after.await, []);
    }
);

on_both!(
    the_workers_of_archived_and_deleted_launch_configs_are_told_apart,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            for (id, archived) in [("active", false), ("archived", true)] {
                let mut config = launch_config("a/b", id);
                config.archived = archived;
                launch_configs::insert(tx, &config)?;
            }
            let mut elsewhere = launch_config("a/c", "active");
            elsewhere.archived = true;
            launch_configs::insert(tx, &elsewhere)?;
            let configs = [None, Some("active"), Some("archived"), Some("deleted")];
            for (number, id) in configs.into_iter().enumerate() {
                let mut worker = worker("a/b", "g", &format!("w{number}"));
                edit(&mut worker, |it| {
                    it.launch_config_id = id.map(|id| id.parse().unwrap());
                    it.state = WorkerState::Running;
                });
                workers::insert(tx, &worker)?;
            }
            Ok(())
        })
        .await;
        let supply = read(&store, |tx| {
            worker_supply::between(tx, &pool_id("a/a"), &pool_id("a/z"))
        });
        let named = supply.await.into_iter().map(|(group, is_archived)| {
            let config = group.launch_config_id.map(|id| id.to_string());
            (config.unwrap_or_default(), is_archived)
        });
        let expected = [
            ("", false),
            ("active", false),
            ("archived", true),
            ("deleted", true),
        ];
        let expected = expected.map(|(id, is_archived)| (id.to_owned(), is_archived));
        assert_eq!(named.collect::<Vec<_>>(), expected);
    }
);

on_both!(stopping_workers_are_listed_by_provider, |database| {
    let store = database.migrated().await;
    write(&store, |tx| {
        for (id, state) in [
            ("a", WorkerState::Stopping),
            ("b", WorkerState::Running),
            ("c", WorkerState::Stopping),
            ("d", WorkerState::Stopped),
        ] {
            let mut worker = worker("a/b", "g", id);
            edit(&mut worker, |it| it.state = state);
            workers::insert(tx, &worker)?;
        }
        Ok(())
    })
    .await;
    let provider = worker("a/b", "g", "a").into_stored().provider_id;
    let for_count = provider.clone();
    let count = read(&store, move |tx| workers::live_machines(tx, &for_count)).await;
    assert_eq!(count, 3);
    let stopping = read(&store, move |tx| {
        let first = workers::list_stopping(tx, &provider, None, 1)?;
        let rest = workers::list_stopping(tx, &provider, Some(&first[0].key), 9)?;
        Ok([first, rest].concat())
    })
    .await;
    let ids: Vec<_> = stopping
        .iter()
        .map(|worker| worker.key.id.as_str())
        .collect();
    assert_eq!(ids, ["a", "c"]);
});

on_both!(a_check_is_recorded_without_a_new_version, |database| {
    let store = database.migrated().await;
    write(&store, |tx| {
        for id in ["a", "b", "c"] {
            workers::insert(tx, &worker("a/b", "g", id))?;
        }
        Ok(())
    })
    .await;
    let before = worker("a/b", "g", "a");
    let provider = before.provider_id.clone();
    let noted = write(&store, move |tx| {
        let (first, last) = (worker_key("a/b", "g", "a"), worker_key("a/b", "g", "b"));
        let n_first = workers::note_checked(tx, &provider, &first, &last, at(70_000), at(70_000))?;
        let n_again = workers::note_checked(tx, &provider, &first, &last, at(80_000), at(60_000))?;
        Ok((n_first, n_again))
    });
    assert_eq!(noted.await, (2, 0));
    let after = read(&store, |tx| workers::get(tx, &worker_key("a/b", "g", "a")))
        .await
        .unwrap();
    assert_eq!(
        (after.last_checked, after.version),
        (at(70_000), before.version)
    );
});

on_both!(
    workers_that_have_not_registered_in_time_are_overdue,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            let mut late = worker("a/b", "g", "late");
            edit(&mut late, |it| it.state = WorkerState::Requested);
            workers::insert(tx, &late)?;
            workers::insert(tx, &worker("a/b", "g", "registered"))
        })
        .await;
        let overdue = |before| {
            let (first, last) = (pool_id("a/a"), pool_id("a/z"));
            move |tx: &mut store::Tx<'_>| {
                worker_supply::overdue_between(tx, at(before), &first, &last)
            }
        };
        let found = read(&store, overdue(101)).await;
        assert_eq!((found.len(), found[0].count, found[0].capacity), (1, 1, 2));
        assert_eq!(read(&store, overdue(100)).await, []);
        let starting = |before, first, last| {
            let (first, last) = (pool_id(first), pool_id(last));
            move |tx: &mut store::Tx<'_>| {
                worker_supply::pools_with_starting_between(tx, at(before), &first, &last)
            }
        };
        let found = read(&store, starting(101, "a/b", "a/b")).await;
        assert_eq!(found, [pool_id("a/b")]);
        for none in [starting(100, "a/b", "a/b"), starting(101, "a/c", "a/z")] {
            assert_eq!(read(&store, none).await, []);
        }
    }
);

on_both!(
    requested_workers_of_a_provider_that_the_pool_has_left_are_overdue,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            let mut coming = worker("a/b", "g", "coming");
            edit(&mut coming, |it| it.state = WorkerState::Requested);
            workers::insert(tx, &coming)?;
            pools::insert(tx, &pool("a/b", "elsewhere"))?;
            let mut coming = worker("a/c", "g", "coming");
            edit(&mut coming, |it| it.state = WorkerState::Requested);
            workers::insert(tx, &coming)?;
            pools::insert(tx, &pool("a/c", coming.provider_id.as_str()))?;
            for (id, provider) in [("a/d", "second"), ("a/e", "sec"), ("a/f", "s_cond")] {
                let mut of_several = pool(id, "first");
                of_several.definition.further_provider_ids =
                    ["third", "second"].map(|id| id.parse().unwrap()).into();
                pools::insert(tx, &of_several)?;
                let mut coming = worker(id, "g", "coming");
                edit(&mut coming, |it| {
                    it.state = WorkerState::Requested;
                    it.provider_id = provider.parse().unwrap();
                });
                workers::insert(tx, &coming)?;
            }
            Ok(())
        })
        .await;
        let found = read(&store, |tx| {
            worker_supply::overdue_between(tx, at(0), &pool_id("a/a"), &pool_id("a/z"))
        });
        let pools: Vec<_> = found.await.into_iter().map(|group| group.pool_id).collect();
        assert_eq!(pools, ["a/b", "a/e", "a/f"].map(pool_id));
    }
);
