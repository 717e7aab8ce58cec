//! Costs: machines are charged once, to the unit, and sums include machines that run.

use domain::cost::{CostGrouping, CostKind, CostScope, Currency, Spent};
use domain::id::WorkerKey;
use domain::run_outcome::RunOutcome;
use domain::task::EndReason;
use domain::time::{DAY_MS, HOUR_MS, MINUTE_MS, Timestamp};
use domain::worker::{StoredWorker, Worker, WorkerState};
use store::{Store, StoreError, cost_accounts, cost_reports, meters, pools, run_outcomes, workers};
use testing::sizes_around;

use crate::samples::{at, pool, pool_id, worker, worker_key};
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

/// Charges all that is due; returns how many machines.
async fn charge(store: &Store, now: Timestamp) -> usize {
    let charged = store.write("charge", move |tx| {
        let due = meters::list_due(tx, now, 100)?;
        let charges: Vec<_> = due
            .into_iter()
            .map(|due| {
                let charge = due.meter.charge(&due.life, now);
                (due, charge, now)
            })
            .collect();
        meters::charge(tx, &charges)?;
        Ok::<_, StoreError>(charges.len())
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
        assert_eq!(charge(&store, minutes(21)).await, 1);
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
    let lines = read(store, move |tx| {
        let (by, all) = (CostGrouping::Kind, CostScope::All);
        cost_reports::lines(tx, by, &all, minutes(0), minutes(1_000_000))
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
    let due = read(&store, |tx| meters::list_due(tx, minutes(0), 10)).await;
    assert_eq!(due[0].life.first_claim, Some(minutes(30)));
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
    let due = read(&store, |tx| meters::list_due(tx, minutes(11), 10)).await;
    let charge = due[0].meter.charge(&due[0].life, minutes(11));
    assert!(charge.is_settled);
    let uses = charge.hours[&minutes(0)];
    let of = |kind| uses.get(kind).micros;
    assert_eq!(
        CostKind::ALL.map(of),
        [500_000, 200_000, 200_000, 100_000, 0, 0]
    );
});

#[tokio::test]
async fn machines_with_many_runs_are_charged_one_by_one() {
    let limit = 2_000;
    for count in sizes_around("store::cost::meters::MAX_RUNS", limit) {
        let store = with_machine(&Database::sqlite(), Some(1.0)).await;
        write(&store, move |tx| {
            workers::insert(tx, &machine("other", None))?;
            workers::note_first_claim(tx, &key("m"), minutes(0))?;
            let numbers = 0..u32::try_from(count).unwrap();
            let runs: Vec<_> = numbers
                .map(|number| run(number, 1, 2, EndReason::Completed))
                .collect();
            run_outcomes::note(tx, &runs).map(drop)
        })
        .await;
        let due = read(&store, |tx| meters::list_due(tx, minutes(5), 10)).await;
        assert_eq!(due.len(), if count < limit { 2 } else { 1 });
        let first = due.iter().find(|due| due.key == key("m")).unwrap();
        assert_eq!(first.life.runs.len(), count);
        let n_charged = charge(&store, minutes(5)).await;
        assert_eq!(n_charged, due.len());
    }
}
