//! Costs: machines are charged once, to the unit, and sums include machines that run.

use domain::cost::{CostGrouping, CostKind, CostScope, Currency, Spent};
use domain::id::WorkerKey;
use domain::queue_worker::QueueWorker;
use domain::run_outcome::RunOutcome;
use domain::task::EndReason;
use domain::time::{DAY_MS, HOUR_MS, MINUTE_MS, Timestamp};
use domain::worker::{StoredWorker, Worker, WorkerState};
use store::{Store, StoreError, cost_accounts, cost_reports, meters, pools, queue_workers};
use store::{run_outcomes, workers};
use testing::sizes_around;

use crate::samples::{at, pool, pool_id, queue_worker, worker, worker_key};
use crate::world::{Database, on_both, read, write};

/// A full hour.
const START: i64 = 1_000 * DAY_MS;
const MIN: i64 = MINUTE_MS;

fn minutes(n: i64) -> Timestamp {
    at(START + n * MIN)
}

fn machine(id: &str, price: Option<f64>) -> Worker {
    Worker::from_stored(StoredWorker {
        created: minutes(0),
        expires: minutes(100_000),
        state: WorkerState::Running,
        price,
        ..worker("p/one", "g", id).into_stored()
    })
}

fn key(id: &str) -> WorkerKey {
    worker_key("p/one", "g", id)
}

async fn with_machine(database: &Database, price: Option<f64>) -> Store {
    let store = database.migrated().await;
    write(&store, move |tx| {
        pools::insert(tx, &pool("p/one", "aws-1"))?;
        workers::insert(tx, &machine("m", price)).map(drop)
    })
    .await;
    store
}

/// More runs than any machine of a test has, unless it says otherwise.
const MANY: u32 = 10_000;

/// Charges all that is due; returns how many machines.
async fn charge(store: &Store, now: Timestamp) -> usize {
    charge_within(store, now, MANY).await.0
}

/// Charges a batch; returns how many machines, and whether there is more to charge.
async fn charge_within(store: &Store, now: Timestamp, max_runs: u32) -> (usize, bool) {
    let charged = store.write("charge", move |tx| {
        let due = meters::list_due(tx, now, 100, max_runs)?;
        let mut has_more = due.has_more;
        let charges: Vec<_> = due
            .meters
            .into_iter()
            .map(|due| {
                // Those of one moment are read together.
                let most = 2 * max_runs as usize + 1;
                assert!(due.life.runs.len() <= most || max_runs < AT_ONCE);
                let charge = due.meter.charge(&due.life, now);
                has_more |= charge.has_more;
                (due, charge, now)
            })
            .collect();
        meters::charge(tx, &charges)?;
        Ok::<_, StoreError>((charges.len(), has_more))
    });
    charged.await.unwrap()
}

async fn spent(store: &Store, scope: CostScope, since: Timestamp, until: Timestamp) -> i64 {
    let spent = read(store, move |tx| {
        cost_accounts::spent(tx, &scope, since, until)
    });
    match spent.await.as_slice() {
        [] => 0,
        [
            Spent {
                currency: Currency::Usd,
                micros,
            },
        ] => *micros,
        other => panic!("{other:?}"),
    }
}

async fn spent_by(store: &Store, until: Timestamp) -> i64 {
    let all = spent(store, CostScope::All, minutes(0), until).await;
    let scopes = [
        CostScope::Pool(pool_id("p/one")),
        CostScope::Provider("aws-1".parse().unwrap()),
        CostScope::Owner("ops@example.com".to_owned()),
    ];
    for scope in scopes {
        assert_eq!(spent(store, scope, minutes(0), until).await, all);
    }
    let other = CostScope::Owner("other@example.com".to_owned());
    assert_eq!(spent(store, other, minutes(0), until).await, 0);
    all
}

fn run(number: u32, from: i64, to: i64, reason: EndReason) -> RunOutcome {
    RunOutcome {
        worker: key("m"),
        task_id: format!("{number:08}QACAAAAAAAAAAA").parse().unwrap(),
        run_id: 0,
        reason,
        resolved: minutes(to),
        started: Some(minutes(from)),
    }
}

on_both!(
    money_of_a_running_machine_counts_before_and_after_its_charge,
    |database| {
        let store = with_machine(database, Some(0.7)).await;
        let third = minutes(20);
        assert_eq!(spent_by(&store, third).await, 233_333);
        write(&store, |tx| {
            workers::note_first_claim(tx, &key("m"), minutes(3)).map(drop)
        })
        .await;
        assert_eq!(charge(&store, minutes(18)).await, 1);
        assert_eq!(spent_by(&store, third).await, 233_333);
        write(&store, |tx| meters::note_ended(tx, &key("m"), minutes(20))).await;
        assert_eq!(spent_by(&store, minutes(70)).await, 233_333);
        // It has ended, and nobody knows yet what it did last.
        assert_eq!(used(&store, CostKind::Unknown).await, 2);
        assert_eq!(charge(&store, minutes(21)).await, 1);
        assert_eq!(used(&store, CostKind::Unknown).await, 0);
        assert_eq!(spent_by(&store, minutes(70)).await, 233_333);
        assert_eq!(charge(&store, minutes(90)).await, 0);
        // The next hour has nothing of it.
        let later = spent(&store, CostScope::All, minutes(60), minutes(120)).await;
        assert_eq!(later, 0);
    }
);

on_both!(
    a_machine_without_a_price_was_not_launched_for_one,
    |database| {
        let store = with_machine(database, Some(0.7)).await;
        write(&store, |tx| {
            workers::insert(tx, &machine("n", None)).map(drop)
        })
        .await;
        let rows = read(&store, |tx| {
            store::budgets::spent_by(tx, minutes(0), minutes(20))
        });
        let rows = rows.await;
        let found = rows.iter().map(|row| (row.machines, row.launched));
        assert_eq!(found.collect::<Vec<_>>(), [(2, 1)]);
    }
);

/// The machine asked for work after three minutes, and its runs have ended.
async fn claimed_and_ended(store: &Store, runs: Vec<RunOutcome>) {
    write(store, move |tx| {
        workers::note_first_claim(tx, &key("m"), minutes(3))?;
        run_outcomes::note(tx, &runs).map(drop)
    })
    .await;
}

async fn used(store: &Store, kind: CostKind) -> i64 {
    used_until(store, kind, minutes(1_000_000)).await
}

async fn used_until(store: &Store, kind: CostKind, until: Timestamp) -> i64 {
    let lines = read(store, move |tx| {
        let (by, all) = (CostGrouping::Kind, CostScope::All);
        cost_reports::lines(tx, by, &all, minutes(0), until)
    });
    let lines = lines.await;
    lines.iter().map(|line| line.uses.get(kind).ms / MIN).sum()
}

on_both!(
    the_time_after_an_unseen_end_is_taken_back_from_its_use,
    |database| {
        let store = with_machine(database, Some(0.7)).await;
        let runs = [
            run(1, 5, 10, EndReason::Completed),
            run(2, 12, 32, EndReason::ClaimExpired),
            run(3, 40, 45, EndReason::Canceled),
        ];
        claimed_and_ended(&store, runs.to_vec()).await;
        for now in [20, 35, 50] {
            assert_eq!(charge(&store, minutes(now)).await, 1);
        }
        assert_eq!(used(&store, CostKind::Lost).await, 20);
        assert_eq!(used(&store, CostKind::Failed).await, 5);
        assert_eq!(used(&store, CostKind::Useful).await, 5);
        // The machine was out of sight for a while: it had ended during the second run.
        write(&store, |tx| meters::note_ended(tx, &key("m"), minutes(14))).await;
        assert_eq!(charge(&store, minutes(51)).await, 1);
        let expected = [
            (CostKind::Booting, 3),
            (CostKind::Useful, 5),
            (CostKind::Idle, 4),
            (CostKind::Lost, 2),
            (CostKind::Failed, 0),
            (CostKind::Leaving, 0),
        ];
        for (kind, minutes) in expected {
            assert_eq!(used(&store, kind).await, minutes, "{kind:?}");
        }
        let left = store.count_rows().await.unwrap();
        assert_eq!((left["meters"], left["metered_runs"]), (0, 0));
    }
);

on_both!(
    runs_that_a_worker_did_not_end_are_kept_for_a_day,
    |database| {
        let store = with_machine(database, Some(0.7)).await;
        let runs = [
            run(1, 5, 10, EndReason::Completed),
            run(2, 12, 32, EndReason::ClaimExpired),
        ];
        claimed_and_ended(&store, runs.to_vec()).await;
        let day = DAY_MS / MIN;
        for (now, left) in [(40, 1), (31 + day, 1), (32 + day, 0)] {
            charge(&store, minutes(now)).await;
            let counted = store.count_rows().await.unwrap();
            assert_eq!(counted["metered_runs"], left, "after {now} minutes");
        }
    }
);

on_both!(hours_become_days_and_sums_stay, |database| {
    let store = with_machine(database, Some(1.000_001)).await;
    write(&store, |tx| {
        meters::note_ended(tx, &key("m"), minutes(60 * 30 + 7))
    })
    .await;
    charge(&store, minutes(60 * 31)).await;
    let all = spent_by(&store, minutes(60 * 48)).await;
    assert_eq!(all, 30 * 1_000_001 + 116_666);
    let mut n_folded = 0;
    while write(&store, |tx| {
        cost_accounts::fold_hour(tx, at(START + 2 * DAY_MS))
    })
    .await
    {
        n_folded += 1;
    }
    assert_eq!(n_folded, 31);
    assert_eq!(spent_by(&store, minutes(60 * 48)).await, all);
    let first = spent(&store, CostScope::All, minutes(0), at(START + 24 * HOUR_MS));
    assert_eq!(first.await, 24 * 1_000_001);
});

on_both!(a_price_that_is_not_known_costs_nothing, |database| {
    let store = with_machine(database, None).await;
    assert_eq!(spent_by(&store, minutes(20)).await, 0);
    write(&store, |tx| meters::note_ended(tx, &key("m"), minutes(30))).await;
    assert_eq!(charge(&store, minutes(40)).await, 1);
    assert_eq!(spent_by(&store, minutes(50)).await, 0);
});

on_both!(the_meter_of_an_expired_worker_ends, |database| {
    let store = with_machine(database, Some(1.0)).await;
    let late = minutes(200_000);
    write(&store, move |tx| {
        workers::note_first_claim(tx, &key("m"), minutes(30))?;
        assert_eq!(workers::delete_expired(tx, late, 10)?, 1);
        Ok(())
    })
    .await;
    let due = read(&store, |tx| meters::list_due(tx, minutes(0), 10, MANY)).await;
    assert_eq!(due.meters[0].life.first_claim, Some(minutes(30)));
    assert_eq!(charge(&store, late).await, 1);
    let all = spent_by(&store, minutes(300_000)).await;
    assert_eq!(all, 200_000 * 1_000_000 / 60);
});

on_both!(a_run_is_charged_after_it_was_noted, |database| {
    let store = with_machine(database, Some(6.0)).await;
    write(&store, |tx| {
        workers::note_first_claim(tx, &key("m"), minutes(2))?;
        let runs = [
            run(1, 2, 7, EndReason::Completed),
            run(2, 8, 9, EndReason::InternalError),
        ];
        run_outcomes::note(tx, &runs)?;
        // A second time.
        run_outcomes::note(tx, &runs)?;
        meters::note_ended(tx, &key("m"), minutes(10))
    })
    .await;
    let due = read(&store, |tx| meters::list_due(tx, minutes(11), 10, MANY)).await;
    let charge = due.meters[0].meter.charge(&due.meters[0].life, minutes(11));
    assert!(charge.is_settled);
    let uses = charge.hours[&minutes(0)];
    let of = |kind| uses.get(kind).micros;
    assert_eq!(
        CostKind::CHARGED.map(of),
        [500_000, 200_000, 200_000, 100_000, 0, 0]
    );
});

on_both!(
    machines_are_charged_together_as_far_as_their_runs_fit,
    |database| {
        let store = with_machine(database, Some(1.0)).await;
        write(&store, |tx| {
            workers::note_first_claim(tx, &key("m"), minutes(0)).map(drop)
        })
        .await;
        for other in 0..15 {
            let other = format!("other{other:02}");
            write(&store, move |tx| {
                workers::insert(tx, &machine(&other, None))?;
                workers::note_first_claim(tx, &key(&other), minutes(0)).map(drop)
            })
            .await;
        }
        // Sixteen machines have five runs each.
        let machines = (0..15).map(|other| format!("other{other:02}"));
        for id in machines.chain(["m".to_owned()]) {
            let runs = (0..5).map(|number| RunOutcome {
                worker: key(&id),
                ..run(number, 1, 2, EndReason::Completed)
            });
            let runs: Vec<_> = runs.collect();
            write(&store, move |tx| run_outcomes::note(tx, &runs).map(drop)).await;
        }
        // Halved until the runs fit.
        let fitting = [(80, 16), (79, 8), (40, 8), (39, 4), (10, 2), (9, 1), (5, 1)];
        for (max_runs, n_machines) in fitting {
            let due = meters_within(&store, minutes(5), max_runs).await;
            assert_eq!(due.meters.len(), n_machines, "{max_runs}");
            assert_eq!(due.has_more, n_machines < 16, "{max_runs}");
            assert!(due.meters.iter().all(|due| due.life.runs.len() == 5));
        }
        // As many as are asked for: perhaps more are due.
        let full = read(&store, |tx| meters::list_due(tx, minutes(5), 16, MANY));
        assert!(full.await.has_more);
    }
);

async fn meters_within(store: &Store, now: Timestamp, max_runs: u32) -> meters::DueMeters {
    read(store, move |tx| meters::list_due(tx, now, 100, max_runs)).await
}

/// Runs that go on at one moment, in the tests of parts.
const AT_ONCE: u32 = 4;

/// Charges until there is no more; returns in how many batches.
async fn charge_in_parts(store: &Store, now: Timestamp, max_runs: u32) -> usize {
    let mut n_batches = 1;
    while charge_within(store, now, max_runs).await.1 {
        n_batches += 1;
        assert!(n_batches < 1_000, "it does not get on");
    }
    n_batches
}

#[tokio::test]
async fn a_machine_with_many_runs_is_charged_in_parts_of_a_limited_number_of_runs() {
    const LIMIT: usize = 10;
    for count in sizes_around("server::background::costs::MAX_RUNS", LIMIT) {
        let store = with_machine(&Database::sqlite(), Some(1.0)).await;
        let n_runs = u32::try_from(count).unwrap();
        let runs = (0..n_runs).map(|n| {
            let start = 3 + i64::from(n);
            run(n, start, start + 1, EndReason::Completed)
        });
        claimed_and_ended(&store, runs.collect()).await;
        let now = minutes(4 + i64::from(n_runs));
        let n_batches = charge_in_parts(&store, now, u32::try_from(LIMIT).unwrap()).await;
        assert_eq!(n_batches, count.div_ceil(LIMIT).max(1), "{count}");
        assert_eq!(used(&store, CostKind::Useful).await, i64::from(n_runs));
        assert_eq!(used_until(&store, CostKind::Idle, now).await, 1);
        let left = store.count_rows().await.unwrap();
        assert_eq!((left["meters"], left["metered_runs"]), (1, 0));
    }
}

/// The minutes of each use that one more machine adds, after some runs of it are charged, and after
/// its end is known.
async fn uses_in_parts(store: &Store, runs: &[RunOutcome], max_runs: u32) -> [Vec<i64>; 2] {
    let id = format!("parts{max_runs}");
    let of_it = runs.iter().cloned().map(|run| RunOutcome {
        worker: key(&id),
        ..run
    });
    let of_it: Vec<_> = of_it.collect();
    let mut before = Vec::new();
    for kind in CostKind::CHARGED {
        before.push(used(store, kind).await);
    }
    let (one, other) = (id.clone(), id);
    write(store, move |tx| {
        workers::insert(tx, &machine(&one, Some(0.7)))?;
        workers::note_first_claim(tx, &key(&one), minutes(3))?;
        run_outcomes::note(tx, &of_it).map(drop)
    })
    .await;
    let mut uses = [Vec::new(), Vec::new()];
    charge_in_parts(store, minutes(60), max_runs).await;
    for (kind, before) in CostKind::CHARGED.into_iter().zip(&before) {
        uses[0].push(used_until(store, kind, minutes(60)).await - before);
    }
    write(store, move |tx| {
        meters::note_ended(tx, &key(&other), minutes(14))
    })
    .await;
    charge_in_parts(store, minutes(61), max_runs).await;
    for (kind, before) in CostKind::CHARGED.into_iter().zip(&before) {
        uses[1].push(used(store, kind).await - before);
    }
    let left = store.count_rows().await.unwrap();
    assert_eq!((left["meters"], left["metered_runs"]), (0, 0));
    uses
}

on_both!(
    parts_charge_and_take_back_the_same_as_all_at_once,
    |database| {
        use EndReason::{Canceled, ClaimExpired, Completed, Failed};
        let store = database.migrated().await;
        write(&store, |tx| pools::insert(tx, &pool("p/one", "aws-1"))).await;
        // A long run, three that go on together, and what ended after the end of the machine.
        let runs = [
            run(1, 3, 50, ClaimExpired),
            run(2, 4, 7, Completed),
            run(3, 4, 6, Failed),
            run(4, 4, 5, Canceled),
            run(5, 9, 13, Completed),
            run(6, 12, 30, ClaimExpired),
            run(7, 20, 33, Canceled),
            run(8, 40, 44, Canceled),
            run(9, 45, 55, ClaimExpired),
        ];
        let expected = uses_in_parts(&store, &runs, MANY).await;
        // Useful, booting, idle, failed, leaving, lost.
        let before = vec![7, 3, 5, 0, 0, 45];
        assert_eq!(expected, [before, vec![7, 3, 0, 0, 0, 4]]);
        for max_runs in [1, 2, 3, 4, 8] {
            let uses = uses_in_parts(&store, &runs, max_runs).await;
            assert_eq!(uses, expected, "{max_runs}");
        }
    }
);

on_both!(
    a_part_is_not_charged_while_a_run_that_ended_is_not_known,
    |database| {
        let store = with_machine(database, Some(1.0)).await;
        let runs = (3..9).map(|n: u32| {
            let start = i64::from(n);
            run(n, start, start + 1, EndReason::Completed)
        });
        claimed_and_ended(&store, runs.collect()).await;
        let saw = |last: i64| {
            let seen = QueueWorker {
                last_task_ended: Some(minutes(last)),
                ..queue_worker("p/one", "g", "m")
            };
            write(&store, move |tx| queue_workers::upsert(tx, &seen))
        };
        saw(10).await;
        assert_eq!(charge_within(&store, minutes(20), 2).await, (1, false));
        assert_eq!(used(&store, CostKind::Useful).await, 0);
        saw(9).await;
        assert_eq!(charge_in_parts(&store, minutes(20), 2).await, 3);
        assert_eq!(used(&store, CostKind::Useful).await, 6);
    }
);

on_both!(a_meter_that_moved_since_is_not_charged_again, |database| {
    let store = with_machine(database, Some(1.0)).await;
    claimed_and_ended(&store, Vec::new()).await;
    let old = meters_within(&store, minutes(20), MANY).await;
    charge(&store, minutes(20)).await;
    let again = store.write("charge", move |tx| {
        let charges = old.meters.iter().map(|due| {
            let charge = due.meter.charge(&due.life, minutes(20));
            (due.clone(), charge, minutes(20))
        });
        meters::charge(tx, &charges.collect::<Vec<_>>())
    });
    let again: Result<(), StoreError> = again.await;
    again.unwrap_err();
    assert_eq!(spent_by(&store, minutes(20)).await, 333_333);
});

on_both!(
    a_batch_moves_the_meters_of_all_its_machines_in_one_statement,
    |database| {
        let store = with_machine(database, Some(1.0)).await;
        for other in 0..30 {
            let other = format!("other{other:02}");
            write(&store, move |tx| {
                workers::insert(tx, &machine(&other, None)).map(drop)
            })
            .await;
        }
        store.take_counts();
        assert_eq!(charge(&store, minutes(20)).await, 31);
        assert_eq!(store.take_counts().statements("meter_update"), 1);
    }
);
