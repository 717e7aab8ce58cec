//! A year of costs: of 100,000 workers in 400 pools with three launch configs each. It is written
//! as the server writes it: by charges, and by adding hours to their days.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Context as _;
use domain::cost::{Amount, Charge, CostGrouping, CostKind, CostScope, Uses, cost_between};
use domain::id::WorkerKey;
use domain::pool::{Pool, PoolDefinition};
use domain::run_outcome::RunOutcome;
use domain::task::EndReason;
use domain::time::{DAY_MS, HOUR_MS, MINUTE_MS, Timestamp};
use domain::worker::{NewWorker, Terms, Worker};
use engine::costs;
use serde_json::{Map, Value, json};
use store::meters::DueMeter;
use store::{Store, StoreError, Tx, cost_accounts, meters};

use super::{Arguments, REPORTED_DAYS, owner, pool_id};
use crate::machine::Stopwatch;
use crate::output;

const LAUNCH_CONFIGS: u32 = 3;
/// More runs than the machines that run have.
const MANY_RUNS: u32 = 10_000;
/// Machines with many runs, and how many each of them has.
const BUSY_MACHINES: u32 = 100;
const RUNS_EACH: u32 = 200;
/// The limits of the server's transactions.
const BUSY_BATCH: u32 = 100;
const BUSY_RUNS: u32 = 2_000;
const BATCH: u32 = 10_000;
/// Days whose hours are not added up.
const DAYS_OF_HOURS: i64 = 2;

pub(super) async fn measure(
    store: &Store,
    arguments: &Arguments,
    now: Timestamp,
) -> anyhow::Result<Map<String, Value>> {
    output::note("workers");
    fill_workers(store, arguments, now).await?;
    let before = arguments.bytes();
    output::note("a year of costs");
    let n_accounts = fill_accounts(store, arguments, now).await?;
    let mut figures = Map::new();
    figures.insert("accounts".to_owned(), n_accounts.into());
    figures.insert("fileBytesWithoutCosts".to_owned(), before.into());
    figures.insert("fileBytes".to_owned(), arguments.bytes().into());
    store.gather_statistics().await?;
    output::note("reports of costs");
    figures.insert("reports".to_owned(), reports(store, arguments, now).await?);
    figures.insert("charge".to_owned(), charge(store, now).await?);
    output::note("machines with many runs");
    let runs = charge_runs(store, arguments, now).await?;
    figures.insert("chargeOfManyRuns".to_owned(), runs);
    Ok(figures)
}

async fn fill_workers(store: &Store, arguments: &Arguments, now: Timestamp) -> anyhow::Result<()> {
    let pools = arguments.pools;
    let made = store.write("bench_pools", move |tx| {
        (0..pools).try_for_each(|number| {
            let pool = Pool::new(pool_id(number), definition(number), now);
            store::pools::insert(tx, &pool)
        })
    });
    let made: Result<(), StoreError> = made.await;
    made.context("cannot make pools")?;
    for first in (0..arguments.workers).step_by(BATCH as usize) {
        let next = first.saturating_add(BATCH).min(arguments.workers);
        let made = store.write("bench_workers", move |tx| {
            (first..next).try_for_each(|number| {
                store::workers::insert(tx, &worker(number, pools, now)).map(drop)
            })
        });
        let made: Result<(), StoreError> = made.await;
        made.context("cannot make workers")?;
    }
    Ok(())
}

fn definition(number: u32) -> PoolDefinition {
    PoolDefinition {
        provider_id: "bench".parse().expect("this is a provider id"),
        further_provider_ids: Vec::new(),
        description: String::new(),
        config: Map::new(),
        owner: owner(number),
        email_on_error: false,
    }
}

fn worker(number: u32, pools: u32, now: Timestamp) -> Worker {
    let (pool, within) = (number % pools, number / pools);
    let new = NewWorker {
        key: WorkerKey {
            pool_id: pool_id(pool),
            group: "bench".parse().expect("this is a group"),
            id: format!("w{within:07}").parse().expect("this is an id"),
        },
        provider_id: format!("provider-{}", pool % 4)
            .parse()
            .expect("this is a provider id"),
        launch_config_id: Some(
            format!("lc-{}", within % LAUNCH_CONFIGS)
                .parse()
                .expect("this is an id"),
        ),
        capacity: 1,
        price: Some(0.096),
        expires: now.plus_millis(10 * DAY_MS),
        terms: Terms::default(),
        provider_data: json!({}),
    };
    new.declare(now.plus_millis(-4 * MINUTE_MS))
}

/// Charges one machine of each account for the year, with all uses. Returns the number of
/// accounts.
async fn fill_accounts(
    store: &Store,
    arguments: &Arguments,
    now: Timestamp,
) -> anyhow::Result<usize> {
    let limit = arguments.workers;
    let due = store.read("bench_due", move |tx| meters::list_due(tx, now, limit, 1));
    let mut seen = BTreeSet::new();
    let mut due: Vec<DueMeter> = due.await?.meters;
    due.retain(|due| seen.insert(due.account));
    let (n_accounts, days) = (due.len(), arguments.days);
    let due = Arc::new(due);
    // Each day is charged at its first hour; the last days have all their hours.
    let today = now.start_of(DAY_MS);
    let mut hours: Vec<Timestamp> = (DAYS_OF_HOURS..days)
        .map(|day| today.plus_millis(-day * DAY_MS))
        .collect();
    let n_hours = now.millis_since(today.plus_millis((1 - DAYS_OF_HOURS) * DAY_MS)) / HOUR_MS;
    let recent = (0..=n_hours).map(|hour| now.start_of(HOUR_MS).plus_millis(-hour * HOUR_MS));
    hours.extend(recent);
    for chunk in hours.chunks(20) {
        let (chunk, due) = (chunk.to_vec(), Arc::clone(&due));
        let charged = store.write("bench_charge", move |tx| {
            let charges = due.iter().map(|due| (due.clone(), year(due, &chunk), now));
            meters::charge(tx, &charges.collect::<Vec<_>>())
        });
        let charged: Result<(), StoreError> = charged.await;
        charged.context("cannot charge machines")?;
    }
    let before = today.plus_millis((1 - DAYS_OF_HOURS) * DAY_MS);
    let fold = move |tx: &mut Tx<'_>| cost_accounts::fold_hour(tx, before);
    while store.write("bench_fold", fold).await? {}
    Ok(n_accounts)
}

/// The uses of some hours; the meter does not move.
fn year(due: &DueMeter, hours: &[Timestamp]) -> Charge {
    let uses = |hour: &Timestamp| {
        let mut uses = Uses::default();
        for kind in CostKind::CHARGED {
            let ms = 10 * HOUR_MS + due.account * 997 % HOUR_MS;
            let start = due.meter.started;
            let micros = cost_between(&due.meter, start, start.plus_millis(ms));
            uses.add(kind, Amount { ms, micros });
        }
        (*hour, uses)
    };
    Charge {
        hours: hours.iter().map(uses).collect(),
        charged: due.meter.charged,
        is_settled: false,
        has_more: false,
        kind: CostKind::Useful,
    }
}

async fn reports(store: &Store, arguments: &Arguments, now: Timestamp) -> anyhow::Result<Value> {
    let since = now.plus_millis(-REPORTED_DAYS * DAY_MS);
    let mut figures = Map::new();
    for by in CostGrouping::ALL {
        let read = || async {
            let read = store.read("bench_report", move |tx| {
                costs::report(tx, by, &CostScope::All, since, now)
            });
            read.await.map(drop)
        };
        figures.insert(format!("{by} ms"), arguments.median_ms(read).await?);
    }
    let scopes = [
        ("pool", CostScope::Pool(pool_id(0))),
        ("all", CostScope::All),
    ];
    for (name, scope) in scopes {
        let read = || async {
            let scope = scope.clone();
            let read = store.read("bench_spent", move |tx| {
                cost_accounts::spent(tx, &scope, since.start_of(DAY_MS), now)
            });
            read.await.map(drop)
        };
        figures.insert(
            format!("spent by {name} ms"),
            arguments.median_ms(read).await?,
        );
    }
    Ok(Value::Object(figures))
}

/// Charges 1,000 machines that run.
async fn charge(store: &Store, now: Timestamp) -> anyhow::Result<Value> {
    let watch = Stopwatch::start();
    let n_charged = store.write("bench_charges", move |tx| {
        let due = meters::list_due(tx, now, 1_000, MANY_RUNS)?;
        let again = now.plus_millis(5 * MINUTE_MS);
        let charges = due.meters.into_iter().map(|due| {
            let charge = due.meter.charge(&due.life, now);
            (due, charge, again)
        });
        let charges: Vec<_> = charges.collect();
        meters::charge(tx, &charges)?;
        Ok::<_, StoreError>(charges.len())
    });
    let n_charged = n_charged.await?;
    Ok(json!({"machines": n_charged, "ms": watch.elapsed().as_secs_f64() * 1_000.0}))
}

/// Charges machines that have ended after many runs, in transactions like those of the server.
async fn charge_runs(
    store: &Store,
    arguments: &Arguments,
    now: Timestamp,
) -> anyhow::Result<Value> {
    let n_machines = BUSY_MACHINES.min(arguments.workers);
    let pools = arguments.pools;
    let filled = store.write("bench_runs", move |tx| {
        (0..n_machines).try_for_each(|number| {
            let worker = worker(number, pools, now);
            let runs = (0..RUNS_EACH).map(|run| run_of(&worker, run));
            store::workers::note_first_claim(tx, &worker.key, worker.created)?;
            store::run_outcomes::note(tx, &runs.collect::<Vec<_>>())?;
            meters::note_ended(tx, &worker.key, now)
        })
    });
    let filled: Result<(), StoreError> = filled.await;
    filled.context("cannot note runs")?;
    let watch = Stopwatch::start();
    let (mut n_batches, mut n_settled) = (0, 0);
    while n_settled < n_machines {
        let settled = store.write("bench_charge_runs", move |tx| {
            // The ended machines are due first.
            let due = meters::list_due(tx, Timestamp::from_millis(0), BUSY_BATCH, BUSY_RUNS)?;
            let charges = due.meters.into_iter().map(|due| {
                let charge = due.meter.charge(&due.life, now);
                (due, charge, now)
            });
            let charges: Vec<_> = charges.collect();
            meters::charge(tx, &charges)?;
            let n_settled = charges.iter().filter(|(_, charge, _)| charge.is_settled);
            Ok::<_, StoreError>(u32::try_from(n_settled.count()).unwrap_or(u32::MAX))
        });
        let settled = settled.await?;
        anyhow::ensure!(settled > 0, "machines that ended are not settled");
        n_settled = n_settled.saturating_add(settled);
        n_batches += 1;
    }
    let seconds = watch.elapsed().as_secs_f64();
    let runs_per_second = f64::from(n_machines * RUNS_EACH) / seconds;
    Ok(
        json!({"machines": n_machines, "runs": n_machines * RUNS_EACH, "transactions": n_batches,
        "ms": seconds * 1_000.0, "runsPerSecond": runs_per_second}),
    )
}

/// A run of a second, one after the other.
fn run_of(worker: &Worker, number: u32) -> RunOutcome {
    let started = worker.created.plus_millis(i64::from(number) * 1_000);
    RunOutcome {
        worker: worker.key.clone(),
        task_id: format!("{number:08}QACAAAAAAAAAAA")
            .parse()
            .expect("this is an id"),
        run_id: 0,
        reason: EndReason::Completed,
        resolved: started.plus_millis(1_000),
        started: Some(started),
    }
}
