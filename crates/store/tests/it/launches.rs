//! Launches, plans and turns: what was decided, and what became of it.

use domain::Version;
use domain::id::LaunchToken;
use domain::launch::{Cause, Launch, LaunchState};
use domain::plan::{Health, Refusals, Tries};
use domain::supply::AwaitedLaunches;
use domain::worker::{Advice, WorkerState};
use serde_json::json;
use store::{
    HealthWindow, LaunchRecord, PlanRecord, Store, StoreError, launch_delete_before, launch_get,
    launch_health_between, launch_insert, launch_list, launch_list_pending,
    launch_note_never_registered, launch_note_registered, launch_note_silent,
    launch_pending_between, launch_pending_machines, launch_update, plan_delete_before, plan_get,
    plan_insert, plan_list, pool_insert, queue_worker_upsert, turn_take, worker_get, worker_insert,
    worker_list_stopping, worker_live_machines, worker_note_checked, worker_note_first_claim,
    worker_supply_between, worker_supply_overdue_between, worker_supply_quarantined_between,
};

use crate::samples::{at, pool, pool_id, queue_worker, worker, worker_key};
use crate::world::{on_both, read, write};

fn token(number: u8) -> LaunchToken {
    let letter = char::from(b'a' + number);
    format!("fN1SbArXTPSVFNUvaOli{letter}Q").parse().unwrap()
}

fn launch(number: u8, pool: &str, config: &str, state: LaunchState) -> Launch {
    Launch {
        token: token(number),
        pool_id: pool_id(pool),
        provider_id: "cloud".parse().unwrap(),
        launch_config_id: config.parse().unwrap(),
        machines: 3,
        capacity_each: 2,
        max_price: Some(0.033_334),
        state,
        asked: None,
        made: 0,
        plan: 7,
        created: at(1_000 + i64::from(number)),
        last_modified: at(1_000 + i64::from(number)),
        version: Version::FIRST,
    }
}

fn refused(cause: Cause) -> LaunchState {
    LaunchState::Refused {
        cause,
        problem: "no".to_owned(),
    }
}

fn unknown() -> LaunchState {
    LaunchState::Unknown {
        problem: "no answer".to_owned(),
    }
}

on_both!(a_launch_comes_back_as_it_was_stored, |database| {
    let store = database.migrated().await;
    let states = [
        LaunchState::Open,
        LaunchState::Accepted,
        refused(Cause::Quota),
        unknown(),
    ];
    for (number, state) in (1..).zip(states) {
        let mut expected = launch(number, "a/b", "lc", state);
        if number == 2 {
            expected.max_price = None;
            expected.asked = Some(at(1_001));
        }
        let stored = expected.clone();
        write(&store, move |tx| launch_insert(tx, &stored)).await;
        let found = read(&store, move |tx| launch_get(tx, &token(number))).await;
        assert_eq!(found, Some(expected));
    }
    assert_eq!(read(&store, |tx| launch_get(tx, &token(9))).await, None);
    let newest = read(&store, |tx| launch_list(tx, &pool_id("a/b"), 2)).await;
    assert_eq!(
        newest
            .iter()
            .map(|launch| &launch.token)
            .collect::<Vec<_>>(),
        [&token(4), &token(3)]
    );
});

on_both!(an_outcome_is_written_once, |database| {
    let store = database.migrated().await;
    write(&store, |tx| {
        launch_insert(tx, &launch(1, "a/b", "lc", LaunchState::Open))
    })
    .await;
    let version = write(&store, |tx| {
        let settled = Launch {
            state: LaunchState::Accepted,
            made: 2,
            last_modified: at(9_000),
            ..launch(1, "a/b", "lc", LaunchState::Open)
        };
        launch_update(tx, &settled)
    })
    .await;
    assert_eq!(version, Version::FIRST.next());
    let second = store.write("second", |tx| {
        launch_update(tx, &launch(1, "a/b", "lc", refused(Cause::Lost)))
    });
    let second: Result<_, StoreError> = second.await;
    assert!(second.is_err(), "the version was that of the first outcome");
    let found = read(&store, |tx| launch_get(tx, &token(1))).await.unwrap();
    assert_eq!((found.state, found.made), (LaunchState::Accepted, 2));
});

on_both!(
    launches_without_an_answer_count_as_capacity_to_come,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            launch_insert(tx, &launch(1, "a/b", "lc", LaunchState::Open))?;
            launch_insert(
                tx,
                &Launch {
                    made: 1,
                    ..launch(2, "a/b", "lc", unknown())
                },
            )?;
            launch_insert(tx, &launch(3, "a/b", "lc", LaunchState::Accepted))?;
            launch_insert(tx, &launch(4, "a/b", "other", refused(Cause::Capacity)))?;
            launch_insert(tx, &launch(5, "a/c", "lc", LaunchState::Open))
        })
        .await;
        let pending = read(&store, |tx| {
            launch_pending_between(tx, at(0), &pool_id("a/b"), &pool_id("a/b"))
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
            launch_pending_between(tx, at(1_000_000), &pool_id("a/b"), &pool_id("a/b"))
        });
        assert_eq!(later.await, [awaited(true)]);
        let provider = "cloud".parse().unwrap();
        let machines = read(&store, move |tx| launch_pending_machines(tx, &provider)).await;
        assert_eq!(machines, 8);
        let provider = "cloud".parse().unwrap();
        let pages = read(&store, move |tx| {
            let first = launch_list_pending(tx, &provider, None, 1)?;
            let last = &first[0];
            let after = Some((last.last_modified, &last.token));
            let rest = launch_list_pending(tx, &provider, after, 9)?;
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
        let none = read(&store, move |tx| launch_pending_machines(tx, &nobody)).await;
        assert_eq!(none, 0);
    }
);

/// Settled at this moment.
fn settled(number: u8, state: LaunchState, made: u32, moment: i64) -> Launch {
    Launch {
        state,
        made,
        last_modified: at(moment),
        ..launch(number, "a/b", "lc", LaunchState::Open)
    }
}

/// Everything is heard, and nothing is late.
fn heard_since(since: i64) -> HealthWindow {
    HealthWindow {
        since: at(since),
        launched_before: at(0),
        registered_before: at(0),
    }
}

async fn health(store: &Store, window: HealthWindow) -> LaunchRecord {
    let of_pool = read(store, move |tx| {
        launch_health_between(tx, &window, &pool_id("a/b"), &pool_id("a/b"))
    });
    let of_all = read(store, move |tx| {
        launch_health_between(tx, &window, &pool_id("a/a"), &pool_id("a/z"))
    });
    let of_pool = of_pool.await;
    assert_eq!(of_pool, of_all.await, "both statements say the same");
    let [(_, config, record)] = of_pool.as_slice() else {
        panic!("{of_pool:?}");
    };
    assert_eq!(config.as_str(), "lc");
    *record
}

on_both!(health_is_what_became_of_recent_launches, |database| {
    let store = database.migrated().await;
    write(&store, |tx| {
        for number in 1..=6 {
            launch_insert(tx, &launch(number, "a/b", "lc", LaunchState::Open))?;
        }
        let withdrawn = LaunchState::Withdrawn {
            problem: "too many".to_owned(),
        };
        launch_update(tx, &settled(1, refused(Cause::Capacity), 0, 2_000))?;
        launch_update(tx, &settled(2, refused(Cause::Throttled), 0, 2_100))?;
        launch_update(tx, &settled(3, LaunchState::Accepted, 3, 2_200))?;
        launch_update(tx, &settled(4, LaunchState::Accepted, 1, 2_300))?;
        launch_update(tx, &settled(6, withdrawn, 0, 2_400))?;
        launch_note_registered(tx, &token(3), at(3_000))?;
        launch_note_registered(tx, &token(3), at(4_000))?;
        launch_note_never_registered(tx, &token(3), at(5_000))
    })
    .await;
    let all = health(&store, heard_since(1_000)).await;
    let expected = Health {
        // Not the one that was turned away, and not the one that was withdrawn.
        attempted: 12,
        failed: 3,
        short: 2,
        created: 4,
        registered: 2,
        never_registered: 1,
        overdue: 0,
        silent: 0,
        last_failure: Some(at(5_000)),
    };
    assert_eq!(all.health, expected);
    let tries = Tries {
        // A part that was not made is a refusal; all are of one plan.
        refusals: Some(Refusals {
            in_a_row: 1,
            cause: Cause::Capacity,
            last: at(2_300),
        }),
        plans_without_workers: 1,
        last: Some(at(1_005)),
    };
    assert_eq!(all.tries, tries);
    // Of the first one nothing was heard since, whenever it was made; another still owes a machine.
    let later = health(&store, heard_since(2_050)).await.health;
    assert_eq!((later.attempted, later.failed), (6, 0));
    let last = health(&store, heard_since(5_000)).await.health;
    assert_eq!((last.attempted, last.registered, last.short), (6, 2, 2));
});

on_both!(
    refusals_count_by_plans_since_the_last_acceptance,
    |database| {
        let store = database.migrated().await;
        // What becomes of each launch, its plan, and how many refusals in a row there are then.
        let steps = [
            (refused(Cause::Capacity), 1, 1),
            (refused(Cause::Capacity), 1, 1),
            (refused(Cause::Quota), 2, 2),
            (refused(Cause::Lost), 3, 3),
            (LaunchState::Accepted, 4, 0),
            (unknown(), 5, 0),
            (refused(Cause::Throttled), 6, 1),
        ];
        for (number, (state, plan, in_a_row)) in (1..).zip(steps) {
            let cause = if let LaunchState::Refused { cause, .. } = &state {
                Some(*cause)
            } else {
                None
            };
            let moment = 2_000 + i64::from(number);
            write(&store, move |tx| {
                let open = Launch {
                    plan,
                    ..launch(number, "a/b", "lc", LaunchState::Open)
                };
                launch_insert(tx, &open)?;
                launch_update(tx, &settled(number, state.clone(), 3, moment))
            })
            .await;
            let refusals = health(&store, heard_since(0)).await.tries.refusals;
            let expected = cause.map(|cause| Refusals {
                in_a_row,
                cause,
                last: at(moment),
            });
            assert_eq!(refusals, expected, "after launch {number}");
        }
        // A registration says nothing about what the cloud has in stock.
        write(&store, |tx| {
            launch_note_registered(tx, &token(5), at(9_000))
        })
        .await;
        assert!(
            health(&store, heard_since(0))
                .await
                .tries
                .refusals
                .is_some()
        );
    }
);

on_both!(
    machines_that_are_late_count_from_the_moment_they_are,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            launch_insert(tx, &launch(1, "a/b", "lc", LaunchState::Open))?;
            launch_update(tx, &settled(1, LaunchState::Accepted, 3, 2_000))?;
            launch_note_registered(tx, &token(1), at(3_000))
        })
        .await;
        let late = |launched_before, registered_before| {
            let store = store.clone();
            async move {
                // Nothing was heard of it for long, and it still owes machines.
                let window = HealthWindow {
                    since: at(100_000),
                    launched_before: at(launched_before),
                    registered_before: at(registered_before),
                };
                let record = health(&store, window).await;
                let health = record.health;
                (
                    health.overdue,
                    health.silent,
                    record.tries.plans_without_workers,
                )
            }
        };
        assert_eq!(late(1_001, 3_000).await, (0, 0, 0));
        assert_eq!(late(1_002, 3_000).await, (2, 0, 1));
        assert_eq!(late(1_002, 3_001).await, (2, 1, 1));
        // They came, or are known to have failed: of the launch nothing was heard since.
        write(&store, |tx| {
            launch_note_registered(tx, &token(1), at(4_000))?;
            launch_note_never_registered(tx, &token(1), at(5_000))
        })
        .await;
        let window = HealthWindow {
            launched_before: at(90_000),
            registered_before: at(90_000),
            ..heard_since(5_000)
        };
        let known = health(&store, window).await.health;
        assert_eq!(
            (known.overdue, known.silent, known.never_registered),
            (0, 2, 1)
        );
        let none = read(&store, |tx| {
            launch_health_between(tx, &heard_since(5_001), &pool_id("a/b"), &pool_id("a/b"))
        });
        assert_eq!(none.await, []);
        // The end of a worker that never asked for work is heard, too.
        write(&store, |tx| launch_note_silent(tx, &token(1), at(6_000))).await;
        let known = health(&store, heard_since(5_001)).await.health;
        assert_eq!((known.registered, known.last_failure), (2, Some(at(6_000))));
    }
);

on_both!(only_settled_launches_are_forgotten, |database| {
    let store = database.migrated().await;
    write(&store, |tx| {
        launch_insert(tx, &launch(1, "a/b", "lc", LaunchState::Open))?;
        launch_insert(tx, &launch(2, "a/b", "lc", LaunchState::Accepted))?;
        launch_insert(tx, &launch(3, "a/b", "lc", refused(Cause::Lost)))?;
        launch_insert(tx, &launch(4, "a/b", "lc", unknown()))
    })
    .await;
    assert_eq!(
        write(&store, |tx| launch_delete_before(tx, at(1_003), 9)).await,
        1
    );
    assert_eq!(
        write(&store, |tx| launch_delete_before(tx, at(9_000), 9)).await,
        1
    );
    let left = read(&store, |tx| launch_list(tx, &pool_id("a/b"), 9)).await;
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
        plan_insert(tx, &plan("a/c", 1), 3)?;
        (1..=5).try_for_each(|number| plan_insert(tx, &plan("a/b", number), 3))
    })
    .await;
    let kept = read(&store, |tx| plan_list(tx, &pool_id("a/b"), 9)).await;
    assert_eq!(kept, [plan("a/b", 5), plan("a/b", 4), plan("a/b", 3)]);
    assert_eq!(
        read(&store, |tx| plan_get(tx, &pool_id("a/b"), 4)).await,
        Some(plan("a/b", 4))
    );
    assert_eq!(
        read(&store, |tx| plan_get(tx, &pool_id("a/b"), 1)).await,
        None
    );
    assert_eq!(
        write(&store, |tx| plan_delete_before(tx, at(4), 9)).await,
        2
    );
});

on_both!(turns_count_up_for_each_name, |database| {
    let store = database.migrated().await;
    let taken = write(&store, |tx| {
        Ok((
            turn_take(tx, "a")?,
            turn_take(tx, "b")?,
            turn_take(tx, "a")?,
        ))
    });
    assert_eq!(taken.await, (1, 1, 2));
});

on_both!(
    of_many_that_decide_at_once_each_has_a_turn_of_its_own,
    |database| {
        let store = database.migrated().await;
        let deciders = (0..16).map(|_| {
            let store = store.clone();
            tokio::spawn(async move { write(&store, |tx| turn_take(tx, "pool")).await })
        });
        let mut turns = Vec::new();
        for decider in deciders.collect::<Vec<_>>() {
            turns.push(decider.await.unwrap());
        }
        turns.sort_unstable();
        assert_eq!(turns, (1..=16).collect::<Vec<i64>>());
    }
);

on_both!(
    a_first_claim_is_counted_once_in_a_workers_life,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            launch_insert(tx, &launch(1, "a/b", "lc", LaunchState::Accepted))?;
            for (id, state) in [
                ("a", WorkerState::Running),
                ("b", WorkerState::Running),
                ("coming", WorkerState::Requested),
                ("leaving", WorkerState::Stopping),
            ] {
                let mut worker = worker("a/b", "g", id);
                worker.state = state;
                worker.terms.launch_token = Some(token(1).to_string());
                worker_insert(tx, &worker)?;
            }
            let mut declared = worker("a/b", "g", "declared");
            declared.terms.launch_token = None;
            worker_insert(tx, &declared).map(drop)
        })
        .await;
        let asks = [
            "a", "a", "b", "coming", "leaving", "declared", "unknown", "a",
        ];
        let noted = write(&store, move |tx| {
            let asks = asks.iter().enumerate().map(|(number, id)| {
                let now = at(2_000 + i64::try_from(number).unwrap());
                worker_note_first_claim(tx, &worker_key("a/b", "g", id), now)
            });
            asks.collect::<Result<Vec<_>, _>>()
        })
        .await;
        assert_eq!(noted, [true, false, true, false, false, true, false, false]);
        let records = read(&store, |tx| {
            launch_health_between(tx, &heard_since(0), &pool_id("a/b"), &pool_id("a/b"))
        })
        .await;
        assert_eq!(records[0].2.claimed, 2);
        let unchanged = read(&store, |tx| worker_get(tx, &worker_key("a/b", "g", "a"))).await;
        assert_eq!(unchanged.unwrap().version, Version::FIRST);
    }
);

on_both!(supply_is_grouped_by_what_workers_are_good_for, |database| {
    let store = database.migrated().await;
    write(&store, |tx| {
        let mut number = 0;
        let mut add = |config: Option<&str>, state, draining: bool| {
            number += 1;
            let mut worker = worker("a/b", "g", &format!("w{number}"));
            worker.launch_config_id = config.map(|id| id.parse().unwrap());
            worker.state = state;
            worker.capacity = 2;
            worker.terms.advice = draining.then(|| Advice {
                terminate: true,
                reason: "over capacity".to_owned(),
                decided_at: 0,
            });
            worker_insert(tx, &worker)
        };
        add(Some("lc"), WorkerState::Running, false)?;
        add(Some("lc"), WorkerState::Running, false)?;
        add(Some("lc"), WorkerState::Running, true)?;
        add(Some("lc"), WorkerState::Requested, false)?;
        add(None, WorkerState::Stopping, false)?;
        add(Some("lc"), WorkerState::Stopped, false)?;
        let mut elsewhere = worker("a/c", "g", "w");
        elsewhere.state = WorkerState::Running;
        worker_insert(tx, &elsewhere)?;
        let mut ill = queue_worker("a/b", "g", "w2");
        ill.quarantine_until = Some(at(5_000));
        queue_worker_upsert(tx, &ill)
    })
    .await;
    let supply = read(&store, |tx| {
        worker_supply_between(tx, &pool_id("a/b"), &pool_id("a/b"))
    })
    .await;
    let summary: Vec<_> = supply
        .iter()
        .map(|group| {
            let config = group
                .launch_config_id
                .as_ref()
                .map_or("-", |id| id.as_str());
            format!(
                "{config} {} {} {}x{}",
                group.state, group.draining, group.count, group.capacity
            )
        })
        .collect();
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
        worker_supply_quarantined_between(tx, at_its_end, &pool_id("a/a"), &pool_id("a/z"))
    })
    .await;
    assert_eq!(quarantined.len(), 1);
    assert_eq!((quarantined[0].count, quarantined[0].capacity), (1, 2));
    let after = read(&store, |tx| {
        worker_supply_quarantined_between(tx, at(5_001), &pool_id("a/a"), &pool_id("a/z"))
    });
    assert_eq!(after.await, []);
});

on_both!(
    workers_are_listed_by_state_for_those_who_end_them,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            for (id, state) in [
                ("a", WorkerState::Stopping),
                ("b", WorkerState::Running),
                ("c", WorkerState::Stopping),
                ("d", WorkerState::Stopped),
            ] {
                let mut worker = worker("a/b", "g", id);
                worker.state = state;
                worker_insert(tx, &worker)?;
            }
            Ok(())
        })
        .await;
        let provider = worker("a/b", "g", "a").provider_id;
        let for_count = provider.clone();
        let count = read(&store, move |tx| worker_live_machines(tx, &for_count)).await;
        assert_eq!(count, 3);
        let stopping = read(&store, move |tx| {
            let first = worker_list_stopping(tx, &provider, None, 1)?;
            let rest = worker_list_stopping(tx, &provider, Some(&first[0].key), 9)?;
            Ok([first, rest].concat())
        })
        .await;
        let ids: Vec<_> = stopping
            .iter()
            .map(|worker| worker.key.id.as_str())
            .collect();
        assert_eq!(ids, ["a", "c"]);
    }
);

on_both!(a_look_is_noted_without_a_new_version, |database| {
    let store = database.migrated().await;
    write(&store, |tx| {
        for id in ["a", "b", "c"] {
            worker_insert(tx, &worker("a/b", "g", id))?;
        }
        Ok(())
    })
    .await;
    let before = worker("a/b", "g", "a");
    let provider = before.provider_id.clone();
    let noted = write(&store, move |tx| {
        let (first, last) = (worker_key("a/b", "g", "a"), worker_key("a/b", "g", "b"));
        let n_first = worker_note_checked(tx, &provider, &first, &last, at(70_000), at(70_000))?;
        let n_again = worker_note_checked(tx, &provider, &first, &last, at(80_000), at(60_000))?;
        Ok((n_first, n_again))
    });
    assert_eq!(noted.await, (2, 0));
    let after = read(&store, |tx| worker_get(tx, &worker_key("a/b", "g", "a")))
        .await
        .unwrap();
    assert_eq!(
        (after.last_checked, after.version),
        (at(70_000), before.version)
    );
});

on_both!(what_has_not_registered_in_time_is_overdue, |database| {
    let store = database.migrated().await;
    write(&store, |tx| {
        let mut late = worker("a/b", "g", "late");
        late.state = WorkerState::Requested;
        worker_insert(tx, &late)?;
        worker_insert(tx, &worker("a/b", "g", "registered"))
    })
    .await;
    let overdue = |before| {
        let (first, last) = (pool_id("a/a"), pool_id("a/z"));
        move |tx: &mut store::Tx<'_>| worker_supply_overdue_between(tx, at(before), &first, &last)
    };
    let found = read(&store, overdue(101)).await;
    assert_eq!((found.len(), found[0].count, found[0].capacity), (1, 1, 2));
    assert_eq!(read(&store, overdue(100)).await, []);
});

on_both!(
    what_comes_from_a_provider_that_its_pool_has_left_is_overdue,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            let mut coming = worker("a/b", "g", "coming");
            coming.state = WorkerState::Requested;
            worker_insert(tx, &coming)?;
            pool_insert(tx, &pool("a/b", "elsewhere"))?;
            let mut coming = worker("a/c", "g", "coming");
            coming.state = WorkerState::Requested;
            worker_insert(tx, &coming)?;
            pool_insert(tx, &pool("a/c", coming.provider_id.as_str()))?;
            for (id, provider) in [("a/d", "second"), ("a/e", "sec"), ("a/f", "s_cond")] {
                let mut of_several = pool(id, "first");
                of_several.definition.further_provider_ids =
                    ["third", "second"].map(|id| id.parse().unwrap()).into();
                pool_insert(tx, &of_several)?;
                let mut coming = worker(id, "g", "coming");
                coming.state = WorkerState::Requested;
                coming.provider_id = provider.parse().unwrap();
                worker_insert(tx, &coming)?;
            }
            Ok(())
        })
        .await;
        let found = read(&store, |tx| {
            worker_supply_overdue_between(tx, at(0), &pool_id("a/a"), &pool_id("a/z"))
        });
        let pools: Vec<_> = found.await.into_iter().map(|group| group.pool_id).collect();
        assert_eq!(pools, ["a/b", "a/e", "a/f"].map(pool_id));
    }
);
