//! The health of launch configs, from the results of recent launches.

use domain::Version;
use domain::facts::LaunchRecord;
use domain::launch::{Cause, Launch, LaunchState, StoredLaunch};
use domain::plan::{Health, Refusals, Tries};
use domain::worker::WorkerState;
use store::launch_health::{self, HealthWindow};
use store::{Store, launches, workers};

use crate::launches::{launch, refused, token, unknown};
use crate::samples::{at, edit, pool_id, worker, worker_key};
use crate::world::{on_both, read, write};

/// A launch that was settled at this moment.
fn settled(number: u8, state: LaunchState, made: u32, moment: i64) -> Launch {
    Launch::from_stored(StoredLaunch {
        state,
        made,
        last_modified: at(moment),
        ..launch(number, "a/b", "lc", LaunchState::Open).into_stored()
    })
}

/// A window since this moment, in which no machine is late.
fn window_since(since: i64) -> HealthWindow {
    HealthWindow {
        since: at(since),
        until: at(1_000_000),
        launched_before: at(0),
        registered_before: at(0),
    }
}

async fn health(store: &Store, window: HealthWindow) -> LaunchRecord {
    let of_pool = read(store, move |tx| {
        launch_health::between(tx, &window, &pool_id("a/b"), &pool_id("a/b"))
    });
    let of_all = read(store, move |tx| {
        launch_health::between(tx, &window, &pool_id("a/a"), &pool_id("a/z"))
    });
    let of_pool = of_pool.await;
    assert_eq!(of_pool, of_all.await, "both statements return the same");
    let [results] = of_pool.as_slice() else {
        panic!("{of_pool:?}");
    };
    assert_eq!(results.launch_config_id.as_str(), "lc");
    results.record
}

on_both!(
    a_launch_config_has_other_results_at_another_provider,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            let elsewhere = |number| {
                Launch::from_stored(StoredLaunch {
                    provider_id: "other".parse().unwrap(),
                    ..launch(number, "a/b", "lc", LaunchState::Open).into_stored()
                })
            };
            for number in 1..=2 {
                launches::insert(tx, &launch(number, "a/b", "lc", LaunchState::Open))?;
            }
            launches::insert(tx, &elsewhere(3))?;
            launches::update(tx, &settled(1, refused(Cause::Configuration), 0, 2_000))?;
            let accepted = Launch::from_stored(StoredLaunch {
                state: LaunchState::Accepted,
                made: 3,
                last_modified: at(2_001),
                ..elsewhere(3).into_stored()
            });
            launches::update(tx, &accepted).map(drop)
        })
        .await;
        let results = read(&store, |tx| {
            launch_health::between(tx, &window_since(0), &pool_id("a/b"), &pool_id("a/b"))
        });
        let results = results.await;
        let numbers: Vec<_> = results
            .iter()
            .map(|one| {
                let refusals = one.record.tries.refusals.map(|it| it.in_a_row);
                (
                    one.provider_id.as_str(),
                    one.record.health.created,
                    refusals,
                )
            })
            .collect();
        assert_eq!(numbers, [("cloud", 0, Some(1)), ("other", 3, None)]);
        let starting = read(&store, |tx| {
            launches::starting(tx, &pool_id("a/b"), at(0), at(0))
        })
        .await;
        let starting = starting
            .iter()
            .map(|one| (one.provider_id.as_str(), one.machines));
        assert_eq!(starting.collect::<Vec<_>>(), [("cloud", 3), ("other", 3)]);
    }
);

on_both!(health_is_derived_from_recent_launches, |database| {
    let store = database.migrated().await;
    write(&store, |tx| {
        for number in 1..=6 {
            launches::insert(tx, &launch(number, "a/b", "lc", LaunchState::Open))?;
        }
        let withdrawn = LaunchState::Withdrawn {
            problem: "too many".to_owned(),
        };
        launches::update(tx, &settled(1, refused(Cause::Capacity), 0, 2_000))?;
        launches::update(tx, &settled(2, refused(Cause::Throttled), 0, 2_100))?;
        launches::update(tx, &settled(3, LaunchState::Accepted, 3, 2_200))?;
        launches::update(tx, &settled(4, LaunchState::Accepted, 1, 2_300))?;
        launches::update(tx, &settled(6, withdrawn, 0, 2_400))?;
        launches::note_registered(tx, &token(3), at(3_000))?;
        launches::note_registered(tx, &token(3), at(4_000))?;
        launches::note_never_registered(tx, &token(3), at(5_000))
    })
    .await;
    let all = health(&store, window_since(1_000)).await;
    let expected = Health {
        // Without the throttled launch and the withdrawn launch.
        attempted: 12,
        failed: 3,
        quota: 0,
        short: 2,
        created: 4,
        registered: 2,
        never_registered: 1,
        overdue: 0,
        silent: 0,
        last_failure: Some(at(5_000)),
        ..Health::default()
    };
    assert_eq!(all.health, expected);
    let tries = Tries {
        // A partly failed launch is a refusal. All launches are from one plan.
        refusals: Some(Refusals {
            in_a_row: 1,
            cause: Cause::Capacity,
            last: at(2_300),
        }),
        plans_without_workers: 1,
        last: Some(at(1_005)),
    };
    assert_eq!(all.tries, tries);
    // The first launch has no recent event, whenever it was created. Another one still lacks a
    // machine.
    let later = health(&store, window_since(2_050)).await.health;
    assert_eq!((later.attempted, later.failed), (6, 0));
    let last = health(&store, window_since(5_000)).await.health;
    assert_eq!((last.attempted, last.registered, last.short), (6, 2, 2));
});

on_both!(
    refusals_count_by_plans_since_the_last_acceptance,
    |database| {
        let store = database.migrated().await;
        // The result of each launch, its plan, and the number of consecutive refusals after it.
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
                let open = Launch::from_stored(StoredLaunch {
                    plan,
                    ..launch(number, "a/b", "lc", LaunchState::Open).into_stored()
                });
                launches::insert(tx, &open)?;
                launches::update(tx, &settled(number, state.clone(), 3, moment))
            })
            .await;
            let refusals = health(&store, window_since(0)).await.tries.refusals;
            let expected = cause.map(|cause| Refusals {
                in_a_row,
                cause,
                last: at(moment),
            });
            assert_eq!(refusals, expected, "after launch {number}");
        }
        // A registration does not show whether the provider has capacity.
        write(&store, |tx| {
            launches::note_registered(tx, &token(5), at(9_000))
        })
        .await;
        assert!(
            health(&store, window_since(0))
                .await
                .tries
                .refusals
                .is_some()
        );
    }
);

on_both!(
    events_written_by_a_clock_that_is_ahead_do_not_count,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            for (number, moment) in [(1, 2_000), (2, 5_000), (3, 5_001)] {
                let open = Launch::from_stored(StoredLaunch {
                    plan: i64::from(number),
                    created: at(moment),
                    ..launch(number, "a/b", "lc", LaunchState::Open).into_stored()
                });
                launches::insert(tx, &open)?;
                let state = refused(Cause::Capacity);
                launches::update(tx, &settled(number, state, 0, moment))?;
            }
            Ok(())
        })
        .await;
        for (until, in_a_row, last) in [(4_999, 1, 2_000), (5_000, 2, 5_000), (5_001, 3, 5_001)] {
            let window = HealthWindow {
                until: at(until),
                ..window_since(0)
            };
            let tries = health(&store, window).await.tries;
            let refusals = tries.refusals.unwrap();
            assert_eq!((refusals.in_a_row, refusals.last), (in_a_row, at(last)));
            assert_eq!(tries.last, Some(at(last)));
        }
    }
);

on_both!(
    machines_count_as_overdue_from_the_time_limit_on,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            launches::insert(tx, &launch(1, "a/b", "lc", LaunchState::Open))?;
            launches::update(tx, &settled(1, LaunchState::Accepted, 3, 2_000))?;
            launches::note_registered(tx, &token(1), at(3_000))
        })
        .await;
        let late = |launched_before, registered_before| {
            let store = store.clone();
            async move {
                // It has no recent event, and still lacks machines.
                let window = HealthWindow {
                    since: at(100_000),
                    until: at(1_000_000),
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
        // All machines have registered or failed, and the launch has no recent event.
        write(&store, |tx| {
            launches::note_registered(tx, &token(1), at(4_000))?;
            launches::note_never_registered(tx, &token(1), at(5_000))
        })
        .await;
        let window = HealthWindow {
            launched_before: at(90_000),
            registered_before: at(90_000),
            ..window_since(5_000)
        };
        let known = health(&store, window).await.health;
        assert_eq!(
            (known.overdue, known.silent, known.never_registered),
            (0, 2, 1)
        );
        let none = read(&store, |tx| {
            launch_health::between(tx, &window_since(5_001), &pool_id("a/b"), &pool_id("a/b"))
        });
        assert_eq!(none.await, []);
        // The end of a worker that never asked for work is an event, too.
        write(&store, |tx| launches::note_silent(tx, &token(1), at(6_000))).await;
        let known = health(&store, window_since(5_001)).await.health;
        assert_eq!((known.registered, known.last_failure), (2, Some(at(6_000))));
    }
);

on_both!(
    a_first_claim_is_counted_once_in_a_workers_life,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            launches::insert(tx, &launch(1, "a/b", "lc", LaunchState::Accepted))?;
            for (id, state) in [
                ("a", WorkerState::Running),
                ("b", WorkerState::Running),
                ("coming", WorkerState::Requested),
                ("leaving", WorkerState::Stopping),
            ] {
                let mut worker = worker("a/b", "g", id);
                edit(&mut worker, |it| {
                    it.state = state;
                    it.terms.launch_token = Some(token(1).to_string());
                });
                workers::insert(tx, &worker)?;
            }
            let mut declared = worker("a/b", "g", "declared");
            edit(&mut declared, |it| it.terms.launch_token = None);
            workers::insert(tx, &declared).map(drop)
        })
        .await;
        let asks = [
            "a", "a", "b", "coming", "leaving", "declared", "unknown", "a",
        ];
        let noted = write(&store, move |tx| {
            let asks = asks.iter().enumerate().map(|(number, id)| {
                let now = at(2_000 + i64::try_from(number).unwrap());
                workers::note_first_claim(tx, &worker_key("a/b", "g", id), now)
                    .map(|worker| worker.is_some())
            });
            asks.collect::<Result<Vec<_>, _>>()
        })
        .await;
        assert_eq!(noted, [true, false, true, false, false, true, false, false]);
        let records = read(&store, |tx| {
            launch_health::between(tx, &window_since(0), &pool_id("a/b"), &pool_id("a/b"))
        })
        .await;
        assert_eq!(records[0].record.claimed, 2);
        let unchanged = read(&store, |tx| workers::get(tx, &worker_key("a/b", "g", "a"))).await;
        assert_eq!(unchanged.unwrap().version, Version::FIRST);
    }
);
