//! Limits of the fleet's loop: how much it reads, requests and keeps at a time.
//!
//! Some limits are smaller here than the server's defaults.

use std::collections::BTreeSet;
use std::sync::Arc;

use cloud::Call;
use domain::facts::{MAX_CANDIDATES, TURN_MS};
use domain::id::{LaunchToken, WorkerGroup, WorkerKey};
use domain::launch::{Launch, LaunchState, StoredLaunch};
use domain::plan::MAX_ADVICE;
use domain::time::{SECOND_MS, Timestamp};
use domain::worker::{Worker, WorkerState};
use engine::fleet::{
    PlannedLaunch, ScanLimits, Scanner, TerminationLimits, Terminator, start_launches,
};
use serde_json::{Value, json};
use store::plans::PlanRecord;
use testing::sizes_around;
use tokio::sync::Semaphore;

use crate::fleet_regions::down;
use crate::fleet_world::{Fleet, IDLE_MS, MINUTE_MS, POOL, fleet_test, plain_pool};

/// Most limits in these tests.
const LIMIT: usize = 5;
const MAX_SPINS: usize = 50_000_000;

fn pages(count: usize) -> u64 {
    (count / LIMIT + 1) as u64
}

impl Fleet {
    fn limited_ender(&self, limits: TerminationLimits) -> Terminator {
        let mut ender = self.ender();
        ender.limits = limits;
        ender
    }

    fn limited_scanner(&self, limits: ScanLimits) -> Scanner {
        let mut scanner = self.scanner();
        scanner.limits = limits;
        scanner
    }

    /// A worker and its machine.
    async fn running_one(&self) -> WorkerKey {
        let key = self.stopping_one().await;
        self.edit(&key, |worker| worker.state = WorkerState::Running)
            .await;
        key
    }
}

/// Lets others do something until this is so.
async fn until(is_so: impl Fn() -> bool) {
    for _ in 0..MAX_SPINS {
        if is_so() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("it never came to be so");
}

fleet_test!(rows_that_are_to_end_are_read_page_by_page, |fleet| {
    let first = fleet.running_one().await;
    let limits = TerminationLimits {
        page: 5,
        ..TerminationLimits::default()
    };
    for count in sizes_around("engine::fleet::termination::PAGE", LIMIT) {
        let keys = fleet.copies(&first, count, WorkerState::Stopping).await;
        let mut ender = fleet.limited_ender(limits);
        let (n_told, counts) = fleet.counted(ender.end_stopping()).await;
        assert_eq!(n_told.unwrap(), count as u64);
        assert_eq!(counts.transactions("worker_list_stopping"), pages(count));
        fleet.stop(keys).await;
    }
});

fleet_test!(
    an_activation_ends_a_bounded_number_of_machines_of_a_region,
    |fleet| {
        let first = fleet.running_one().await;
        let limits = TerminationLimits {
            of_region: LIMIT,
            ..TerminationLimits::default()
        };
        for count in sizes_around("engine::fleet::termination::MAX_OF_REGION", LIMIT) {
            let keys = fleet.copies(&first, count, WorkerState::Stopping).await;
            let mut ender = fleet.limited_ender(limits);
            let mut left = count;
            while left > 0 {
                let now = left.min(LIMIT);
                assert_eq!(ender.end_stopping().await.unwrap(), now as u64);
                left -= now;
                // If something is left, the task is woken, so that the rest does not wait for the
                // next scan.
                let bell = fleet.app.engine.wakeups.ending(&"one".parse().unwrap());
                let rung = futures_util::FutureExt::now_or_never(bell.notified());
                assert_eq!(rung.is_some(), left > 0);
            }
            assert_eq!(ender.end_stopping().await.unwrap(), 0);
            fleet.stop(keys).await;
        }
    }
);

fleet_test!(
    a_bounded_number_of_calls_ends_machines_at_the_same_time,
    |fleet| {
        const MAX_CALLS: usize = 8;
        let first = fleet.running_one().await;
        fleet.one.fake.set_batches(1, 1);
        for count in sizes_around("engine::fleet::termination::MAX_CALLS", MAX_CALLS) {
            let keys = fleet.copies(&first, count, WorkerState::Stopping).await;
            let expected = count.min(MAX_CALLS) as u64;
            let n_hanging = || fleet.one.fake.n_hanging(&first.group, Call::End);
            fleet.one.fake.set_hanging(&first.group, true);
            let mut ender = fleet.limited_ender(TerminationLimits::default());
            let looking = async {
                until(|| n_hanging() == expected).await;
                // All calls that may be made are made at once, so there are no more to come.
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                assert_eq!(n_hanging(), expected);
                fleet.one.fake.set_hanging(&first.group, false);
            };
            let (n_told, ()) = tokio::join!(ender.end_stopping(), looking);
            assert_eq!(n_told.unwrap(), count as u64);
            fleet.stop(keys).await;
        }
    }
);

fleet_test!(
    a_region_in_which_too_many_endings_fail_is_skipped,
    |fleet| {
        const MAX_FAILURES: usize = 2;
        let first = fleet.running_one().await;
        fleet.one.fake.set_batches(1, 1);
        // One after the other, so that none is under way when the last one fails.
        let limits = TerminationLimits {
            calls: 1,
            ..TerminationLimits::default()
        };
        for n_failures in sizes_around("engine::fleet::termination::MAX_FAILURES", MAX_FAILURES) {
            let n_workers = 30 + n_failures;
            let keys = fleet.copies(&first, n_workers, WorkerState::Stopping).await;
            for _ in 0..n_failures {
                fleet.one.fake.fail_next(Call::End, down());
            }
            let mut ender = fleet.limited_ender(limits);
            let ending = fleet.n_calls(Call::End, ender.end_stopping());
            let (n_calls, n_told) = ending.await;
            let expected = if n_failures < MAX_FAILURES {
                (n_workers, n_workers - n_failures)
            } else {
                (MAX_FAILURES, 0)
            };
            let found = (n_calls, n_told.unwrap());
            assert_eq!(found, (expected.0 as u64, expected.1 as u64));
            fleet.one.fake.behave();
            fleet.stop(keys).await;
        }
    }
);

fleet_test!(all_rows_of_a_region_are_looked_at, |fleet| {
    let key = fleet.running_one().await;
    let limits = ScanLimits {
        page: 5,
        ..ScanLimits::default()
    };
    for count in sizes_around("engine::fleet::scan::PAGE", LIMIT) {
        // One of them has a machine; the others are old enough for that to mean something.
        fleet.copies(&key, count, WorkerState::Stopping).await;
        fleet.pass_ms(10 * MINUTE_MS);
        let mut scanner = fleet.limited_scanner(limits);
        let (scanned, counts) = fleet.counted(scanner.scan()).await;
        let scanned = scanned.unwrap().unwrap();
        assert_eq!((scanned.stopped, scanned.seen), (count as u64, 1));
        assert_eq!(counts.transactions("scan_page"), pages(count + 1));
    }
});

fleet_test!(
    a_transaction_of_a_scan_changes_a_bounded_number_of_workers,
    |fleet| {
        let key = fleet.running_one().await;
        let limits = ScanLimits {
            changes: LIMIT,
            ..ScanLimits::default()
        };
        // The first scans change the one with a machine.
        for _ in 0..2 {
            fleet.pass_ms(10 * MINUTE_MS);
            fleet.scan().await;
        }
        for count in sizes_around("engine::fleet::scan::MAX_CHANGES", LIMIT) {
            fleet.copies(&key, count, WorkerState::Stopping).await;
            fleet.pass_ms(10 * MINUTE_MS);
            let mut scanner = fleet.limited_scanner(limits);
            let (scanned, counts) = fleet.counted(scanner.scan()).await;
            let scanned = scanned.unwrap().unwrap();
            assert_eq!((scanned.stopped, scanned.seen), (count as u64, 1));
            let n_transactions = count.div_ceil(LIMIT) as u64;
            assert_eq!(counts.transactions("scan_apply"), n_transactions);
        }
    }
);

fleet_test!(
    a_bounded_number_of_calls_reads_machines_at_the_same_time,
    |fleet| {
        const MAX_CALLS: usize = 4;
        let key = fleet.running_one().await;
        fleet.one.fake.set_batches(1, 1);
        for count in sizes_around("engine::fleet::scan::MAX_CALLS", MAX_CALLS) {
            let keys = fleet.copies(&key, count, WorkerState::Running).await;
            fleet.one.looks.take_most();
            let mut scanner = fleet.limited_scanner(ScanLimits::default());
            let scan = fleet.n_calls(Call::Look, scanner.scan());
            let (n_calls, scanned) = scan.await;
            assert_eq!(scanned.unwrap().unwrap().problems, 0);
            // The list shows the one that has a machine.
            assert_eq!(n_calls, count as u64);
            assert_eq!(fleet.one.looks.take_most(), count.min(MAX_CALLS));
            fleet.stop(keys).await;
        }
    }
);

fleet_test!(calls_about_machines_of_different_pages_overlap, |fleet| {
    const MAX_CALLS: usize = 4;
    let key = fleet.running_one().await;
    let limits = ScanLimits {
        page: 2,
        ..ScanLimits::default()
    };
    for n_pages in [1, MAX_CALLS - 1, MAX_CALLS, MAX_CALLS + 1, 10 * MAX_CALLS] {
        // With the one that the list shows, which needs no call.
        let copies = fleet.copies(&key, 2 * n_pages - 1, WorkerState::Running);
        let keys = copies.await;
        let permits = Arc::new(Semaphore::new(0));
        *fleet.one.look_permits.lock().unwrap() = Some(Arc::clone(&permits));
        fleet.one.looks.take_most();
        let expected = n_pages.min(MAX_CALLS);
        let opening = async {
            until(|| fleet.one.looks.now() == expected).await;
            permits.add_permits(n_pages);
        };
        let mut scanner = fleet.limited_scanner(limits);
        let (scanned, ()) = tokio::join!(scanner.scan(), opening);
        let scanned = scanned.unwrap().unwrap();
        assert_eq!((scanned.problems, scanned.seen), (0, 1));
        assert_eq!(permits.available_permits(), 0);
        assert_eq!(fleet.one.looks.take_most(), expected);
        fleet.stop(keys).await;
    }
    *fleet.one.look_permits.lock().unwrap() = None;
});

fleet_test!(a_region_in_which_too_many_reads_fail_is_skipped, |fleet| {
    const MAX_FAILURES: usize = 2;
    const N_WORKERS: usize = 30;
    let key = fleet.running_one().await;
    fleet.one.fake.set_batches(1, 1);
    let keys = fleet.copies(&key, N_WORKERS, WorkerState::Running).await;
    let limits = ScanLimits {
        calls: 1,
        ..ScanLimits::default()
    };
    for n_failures in sizes_around("engine::fleet::scan::MAX_FAILURES", MAX_FAILURES) {
        for _ in 0..n_failures {
            fleet.one.fake.fail_next(Call::Look, down());
        }
        let mut scanner = fleet.limited_scanner(limits);
        let scan = fleet.n_calls(Call::Look, scanner.scan());
        let (n_calls, scanned) = scan.await;
        let n_problems = n_failures.min(MAX_FAILURES);
        assert_eq!(scanned.unwrap().unwrap().problems, n_problems as u64);
        let expected = if n_failures < MAX_FAILURES {
            keys.len()
        } else {
            MAX_FAILURES
        };
        assert_eq!(n_calls, expected as u64, "{n_failures} failures");
        fleet.one.fake.behave();
    }
});

fleet_test!(
    a_scan_goes_on_behind_the_regions_of_the_scan_before,
    |fleet| {
        let key = fleet.running_one().await;
        let template = fleet.worker(&key).await.unwrap();
        fleet.kill(&key);
        fleet.stop(vec![key]).await;
        let limits = ScanLimits {
            regions: LIMIT,
            page: 3,
            ..ScanLimits::default()
        };
        for count in sizes_around("engine::fleet::scan::MAX_REGIONS", LIMIT) {
            let now = fleet.now();
            // All are too young to be missed, apart from the last one.
            let rows: Vec<Worker> = (0..count)
                .map(|number| {
                    let mut worker = template.clone().into_stored();
                    worker.key.group = group(number);
                    worker.key.id = format!("of-{count}").parse().unwrap();
                    worker.created = now;
                    if number + 1 == count {
                        worker.state = WorkerState::Stopping;
                    }
                    Worker::from_stored(worker)
                })
                .collect();
            let inserted = rows.clone();
            fleet
                .write(move |tx| {
                    inserted
                        .iter()
                        .try_for_each(|worker| store::workers::insert(tx, worker).map(drop))
                })
                .await;
            let mut scanner = fleet.limited_scanner(limits);
            let mut stopped = Vec::new();
            // Two more regions are those of the pool and of the fake cloud.
            for _ in 0..=(count + 2).div_ceil(LIMIT) {
                stopped.push(scanner.scan().await.unwrap().unwrap().stopped);
            }
            assert_eq!(
                stopped.iter().sum::<u64>(),
                count.min(1) as u64,
                "{count}: {stopped:?}"
            );
            fleet
                .stop(rows.into_iter().map(|worker| worker.key.clone()).collect())
                .await;
        }
    }
);

fn group(number: usize) -> WorkerGroup {
    format!("group-{number:04}").parse().unwrap()
}

fleet_test!(
    a_bounded_number_of_launches_runs_at_the_same_time,
    |fleet| {
        const AT_ONCE: usize = 16;
        fleet.stopping_one().await;
        let [template] = fleet.launches(POOL).await.try_into().unwrap();
        let pool = fleet.stored_pool(POOL).await.unwrap();
        let config = {
            let (pool, id) = (pool.id.clone(), template.launch_config_id.clone());
            fleet.read(move |tx| store::launch_configs::get(tx, &pool, &id))
        };
        let config = Arc::new(config.await.unwrap());
        for count in sizes_around("engine::fleet::launches::MAX_AT_ONCE", AT_ONCE) {
            let launch_permits = Arc::new(Semaphore::new(0));
            *fleet.one.launch_permits.lock().unwrap() = Some(Arc::clone(&launch_permits));
            let launches = new_launches(fleet, &template, count).await;
            let all = launches.into_iter().map(|launch| PlannedLaunch {
                launch,
                launch_config: Arc::clone(&config),
                bid_data: Arc::default(),
            });
            fleet.one.launches.take_most();
            start_launches(&fleet.app.engine, &pool, all.collect());
            for n_done in 0..count {
                let expected = (count - n_done).min(AT_ONCE);
                until(|| fleet.one.launches.now() == expected).await;
                launch_permits.add_permits(1);
                until(|| fleet.one.launches.now() < expected || n_done + expected < count).await;
            }
            until(|| fleet.one.launches.now() == 0).await;
            fleet.app.engine.launch_tracker.finish().await;
            assert_eq!(fleet.one.launches.take_most(), count.min(AT_ONCE));
        }
        *fleet.one.launch_permits.lock().unwrap() = None;
        let launches = fleet.launches(POOL).await;
        let is_accepted = |launch: &Launch| launch.state == LaunchState::Accepted;
        assert!(launches.iter().all(is_accepted));
    }
);

/// Launches like `template` that were not sent to a cloud yet.
async fn new_launches(fleet: &Fleet, template: &Launch, count: usize) -> Vec<Launch> {
    let launches = (0..count).map(|_| {
        Launch::from_stored(StoredLaunch {
            token: fleet
                .app
                .engine
                .random
                .slugid()
                .parse::<LaunchToken>()
                .unwrap(),
            state: LaunchState::Open,
            asked: None,
            made: 0,
            created: fleet.now(),
            last_modified: fleet.now(),
            version: domain::Version::FIRST,
            ..template.clone().into_stored()
        })
    });
    let launches: Vec<Launch> = launches.collect();
    let rows = launches.clone();
    fleet
        .write(move |tx| {
            rows.iter()
                .try_for_each(|launch| store::launches::insert(tx, launch))
        })
        .await;
    launches
}

fleet_test!(of_the_plans_of_a_pool_the_last_hundred_are_kept, |fleet| {
    const KEPT: usize = 100;
    for count in sizes_around("engine::fleet::decide::KEPT_PLANS", KEPT) {
        let pool = format!("pp/of-{count}");
        fleet.make_pool(&pool, plain_pool(4)).await;
        earlier_plans(fleet, &pool, count).await;
        fleet.tasks(&pool, 1).await;
        fleet.provision().await;
        let plans = fleet.plans(&pool).await;
        assert_eq!(plans.len(), (count + 1).min(KEPT));
        // Newest first; the oldest were deleted.
        let newest = i64::try_from(count + 1).unwrap();
        let numbers = plans.iter().map(|plan| newest - plan.number);
        let kept = i64::try_from(plans.len()).unwrap();
        assert!(numbers.eq(0..kept), "of {count}");
    }
});

/// Writes `count` plans as if they had been made before.
async fn earlier_plans(fleet: &Fleet, pool: &str, count: usize) {
    let (pool, created): (_, Timestamp) = (pool.to_owned(), fleet.now());
    fleet
        .write(move |tx| {
            for _ in 0..count {
                let record = PlanRecord {
                    pool_id: pool.parse().unwrap(),
                    number: store::turns::take(tx, &format!("pool:{pool}"))?,
                    created,
                    plan: json!({}),
                };
                store::plans::insert(tx, &record, None, i64::MAX)?;
            }
            Ok(())
        })
        .await;
}

fleet_test!(a_plan_advises_a_bounded_number_of_workers, |fleet| {
    let sizes = sizes_around("domain::plan::advice::MAX_ADVICE", MAX_ADVICE);
    fleet.make_pool(POOL, plain_pool(20_000)).await;
    let [first] = fleet.idle(POOL, 1).await.try_into().ok().unwrap();
    fleet.pass_ms(IDLE_MS + SECOND_MS);
    // It gets its advice before the others exist.
    fleet.round().await;
    for count in sizes {
        let keys = idle_copies(fleet, &first.key, count).await;
        let (most, mut left) = (MAX_ADVICE as u64, count as u64);
        // Each round reads a part of the workers, which may be the same as before. To find the last
        // of ten parts takes dozens of rounds.
        let rest = if left > 2 * most { left / 2 } else { 0 };
        while left > rest {
            fleet.pass_ms(TURN_MS);
            let now = advised(&fleet.round().await);
            assert!(now <= left.min(most), "{now} of {left}");
            if count < MAX_ADVICE {
                assert_eq!(now, left);
            }
            left -= now;
        }
        if left == 0 {
            assert_eq!(advised(&fleet.round().await), 0);
        }
        fleet.stop(keys).await;
    }
});

fleet_test!(the_plan_of_a_large_pool_reads_its_workers_once, |fleet| {
    fleet.make_pool(POOL, plain_pool(20_000)).await;
    let [first] = fleet.idle(POOL, 1).await.try_into().ok().unwrap();
    fleet.pass_ms(IDLE_MS + SECOND_MS);
    fleet.round().await;
    let limit = MAX_CANDIDATES as usize;
    // The first worker runs, too. In a small pool, the transaction that writes reads again.
    let reads = [
        "worker_supply_between",
        "worker_supply_quarantined_between",
        "worker_supply_silent_between",
        "worker_supply_fresh_between",
        "worker_supply_overdue_between",
        "worker_list_running",
    ];
    for (count, n_reads) in [(limit - 1, 2), (limit, 1)] {
        let keys = idle_copies(fleet, &first.key, count).await;
        fleet.pass_ms(TURN_MS);
        fleet.app.engine.wakeups.take_pools();
        let (done, counts) = fleet.counted(fleet.round()).await;
        assert!(advised(&done) >= count as u64 - 1, "{done}");
        for statement in reads {
            assert_eq!(counts.statements(statement), n_reads, "{statement}");
        }
        assert_eq!(counts.statements("worker_get_some"), 1);
        assert_eq!(counts.statements("worker_get"), 0);
        let (now, engine) = (fleet.app.engine.clock.now(), &fleet.app.engine);
        let next = engine.wakeups.next_pool_ms(now, &BTreeSet::new());
        assert_eq!(next == Some(TURN_MS), n_reads == 1, "{next:?}");
        fleet.stop(keys).await;
    }
});

fn advised(done: &Value) -> u64 {
    done["advised"].as_u64().unwrap_or(0)
}

/// Further workers that have been idle for as long as this one, without advice to stop.
async fn idle_copies(fleet: &Fleet, of: &WorkerKey, count: usize) -> Vec<WorkerKey> {
    let keys = fleet.copies(of, count, WorkerState::Running).await;
    // As the server does each ten seconds.
    let store = &fleet.app.engine.store;
    store.gather_missing_statistics().await.unwrap();
    let rows = keys.clone();
    fleet
        .write(move |tx| {
            for key in &rows {
                let mut worker = store::workers::get(tx, key)?.unwrap().into_stored();
                worker.terms.advice = None;
                store::workers::update(tx, &Worker::from_stored(worker))?;
            }
            Ok(())
        })
        .await;
    keys
}
