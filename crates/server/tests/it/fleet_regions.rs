//! Scans and terminations by region: numbers of calls, and delays between regions.

use std::sync::Arc;
use std::time::Duration;

use cloud::{Call, CloudError, LaunchOutcome};
use domain::id::{LaunchToken, WorkerGroup, WorkerId, WorkerKey};
use domain::launch::{Launch, LaunchState, StoredLaunch};
use domain::worker::{StoredWorker, Worker, WorkerState};
use engine::fleet::{ScanResult, Scanner, Terminator};
use serde_json::{Value, json};
use testing::sizes_around;

use crate::fleet_world::{
    Fleet, MINUTE_MS, POOL, fleet_on_sqlite_first, fleet_test, machine, plain_pool, pool,
};

/// How many workers one call takes in these tests.
const BATCH: usize = 5;
/// 0, 1, limit - 1, limit, limit + 1, 10 times the limit.
const AROUND: [usize; 6] = [0, 1, BATCH - 1, BATCH, BATCH + 1, 10 * BATCH];
const N_REGIONS: usize = 10;
/// How long a test waits for a region that hangs.
const PATIENCE: Duration = Duration::from_millis(50);
const MAX_TRIES: usize = 10_000;
/// However slow the machine is on which the test runs.
const FOREVER: Duration = Duration::from_secs(3_600);

fn region(number: usize) -> WorkerGroup {
    format!("region-{number}").parse().unwrap()
}

fn in_region(number: usize) -> Value {
    let mut config = machine("a");
    config["region"] = json!(region(number).as_str());
    config
}

fn pool_of_region(number: usize) -> String {
    format!("pp/region-{number}")
}

pub(crate) fn down() -> CloudError {
    CloudError::Unavailable("down".to_owned())
}

fn protected() -> CloudError {
    CloudError::Refused("it is protected".to_owned())
}

impl Fleet {
    pub(crate) fn scanner(&self) -> Scanner {
        Scanner::new(Arc::clone(&self.app.engine), "one".parse().unwrap())
    }

    pub(crate) fn ender(&self) -> Terminator {
        Terminator::new(Arc::clone(&self.app.engine), "one".parse().unwrap())
    }

    /// How often this is called meanwhile.
    pub(crate) async fn n_calls<T>(&self, call: Call, work: impl Future<Output = T>) -> (u64, T) {
        let before = self.one.fake.n_calls(call);
        let done = work.await;
        (self.one.fake.n_calls(call) - before, done)
    }

    /// A pool in each region, with one requested worker.
    async fn one_in_each_region(&self) -> Vec<WorkerKey> {
        let mut keys = Vec::new();
        for number in 0..N_REGIONS {
            let id = pool_of_region(number);
            self.make_pool(&id, pool("one", 0, 4, &[in_region(number)]))
                .await;
            self.tasks(&id, 1).await;
        }
        self.round().await;
        for number in 0..N_REGIONS {
            keys.extend(self.workers_in(&pool_of_region(number), "requested").await);
        }
        assert_eq!(keys.len(), N_REGIONS);
        keys
    }

    /// Further rows like that of this worker, in this state.
    pub(crate) async fn copies(
        &self,
        of: &WorkerKey,
        count: usize,
        state: WorkerState,
    ) -> Vec<WorkerKey> {
        let template = self.worker(of).await.unwrap();
        let keys = (0..count).map(|number| {
            // Before those that clouds give, in the order of the names.
            let id: WorkerId = format!("0-{count}-{number:05}").parse().unwrap();
            WorkerKey { id, ..of.clone() }
        });
        let keys: Vec<WorkerKey> = keys.collect();
        let rows = keys.clone();
        self.write(move |tx| {
            for key in &rows {
                let worker = StoredWorker {
                    key: key.clone(),
                    state,
                    ..template.clone().into_stored()
                };
                store::workers::insert(tx, &Worker::from_stored(worker))?;
            }
            Ok(())
        })
        .await;
        keys
    }

    /// Marks these workers as stopped.
    pub(crate) async fn stop(&self, keys: Vec<WorkerKey>) {
        self.write(move |tx| {
            for key in &keys {
                let worker = store::workers::get(tx, key)?.unwrap();
                let worker = StoredWorker {
                    state: WorkerState::Stopped,
                    ..worker.into_stored()
                };
                store::workers::update(tx, &Worker::from_stored(worker))?;
            }
            Ok(())
        })
        .await;
    }

    pub(crate) async fn stopping_one(&self) -> WorkerKey {
        self.make_pool(POOL, plain_pool(100)).await;
        self.tasks(POOL, 1).await;
        self.round().await;
        let [key] = self.workers_in(POOL, "requested").await.try_into().unwrap();
        self.edit(&key, |worker| worker.state = WorkerState::Stopping)
            .await;
        key
    }
}

fleet_on_sqlite_first!(a_region_that_hangs_delays_the_scan_of_no_other, |fleet| {
    let keys = fleet.one_in_each_region().await;
    let hangs = region(0);
    fleet.one.fake.set_hanging(&hangs, true);
    for key in &keys {
        fleet.kill(key);
    }
    let mut scanner = fleet.scanner();
    let mut stopped = 0;
    for _ in 0..MAX_TRIES {
        let scanned = scanner.scan_for(PATIENCE).await.unwrap().unwrap();
        assert_eq!(scanned.problems, 0);
        stopped += scanned.stopped;
        if stopped == N_REGIONS as u64 - 1 {
            break;
        }
    }
    assert_eq!(stopped, N_REGIONS as u64 - 1);
    assert_eq!(fleet.states(&pool_of_region(0)).await, "1 requested");
    // However often it is scanned, one call waits for it.
    scanner.scan_for(PATIENCE).await.unwrap();
    let n_waiting = fleet.one.fake.n_hanging(&hangs, Call::Owned);
    assert_eq!(
        (n_waiting, fleet.one.fake.n_hanging(&hangs, Call::Look)),
        (1, 0)
    );

    fleet.one.fake.set_hanging(&hangs, false);
    for _ in 0..MAX_TRIES {
        stopped += scanner.scan_for(PATIENCE).await.unwrap().unwrap().stopped;
        if stopped == N_REGIONS as u64 {
            return;
        }
    }
    panic!("{stopped} workers were found gone");
});

fleet_on_sqlite_first!(
    a_region_that_fails_twice_is_left_alone_until_the_next_scan,
    |fleet| {
        let key = fleet.stopping_one().await;
        fleet.copies(&key, 100, WorkerState::Running).await;
        fleet.one.fake.set_batches(1, 1);
        for _ in 0..100 {
            fleet.one.fake.fail_next(Call::Look, down());
        }
        fleet.one.fake.fail_next(Call::Owned, down());
        let (n_calls, scanned) = fleet
            .n_calls(Call::Look, fleet.scanner().scan_for(FOREVER))
            .await;
        // The list has failed, and then a look; at most four looks are under way at the same time.
        assert_eq!(scanned.unwrap().unwrap().problems, 2);
        assert!((1..=4).contains(&n_calls), "{n_calls} looks");
    }
);

fleet_on_sqlite_first!(listed_machines_are_not_read_again, |fleet| {
    fleet.make_pool(POOL, plain_pool(100)).await;
    fleet.one.fake.set_batches(BATCH, BATCH);
    let mut n_there = 0;
    for count in AROUND {
        fleet
            .tasks(POOL, u32::try_from(count - n_there).unwrap())
            .await;
        n_there = count;
        fleet.pass_ms(MINUTE_MS);
        fleet.round().await;
        assert_eq!(fleet.machines().len(), count);
        for (lists_sightings, n_looks) in [(true, 0), (false, count.div_ceil(BATCH))] {
            fleet.one.fake.set_lists_sightings(lists_sightings);
            let (n_calls, scanned) = fleet
                .n_calls(Call::Look, fleet.scanner().scan_for(FOREVER))
                .await;
            assert_eq!(n_calls, n_looks as u64, "{count} machines");
            assert_eq!(scanned.unwrap().unwrap().seen, count as u64);
        }
    }
});

fleet_on_sqlite_first!(a_list_is_read_page_by_page, |fleet| {
    fleet.make_pool(POOL, plain_pool(100)).await;
    fleet.one.fake.set_page_size(BATCH);
    let mut n_there = 0;
    for count in AROUND {
        fleet
            .tasks(POOL, u32::try_from(count - n_there).unwrap())
            .await;
        n_there = count;
        fleet.pass_ms(MINUTE_MS);
        fleet.round().await;
        let (n_calls, scanned) = fleet
            .n_calls(Call::Owned, fleet.scanner().scan_for(FOREVER))
            .await;
        assert_eq!(
            n_calls,
            count.div_ceil(BATCH).max(1) as u64,
            "{count} machines"
        );
        let expected = ScanResult {
            seen: count as u64,
            ..ScanResult::default()
        };
        assert_eq!(scanned.unwrap().unwrap(), expected);
    }
});

fleet_on_sqlite_first!(machines_are_ended_many_by_one_call, |fleet| {
    let first = fleet.stopping_one().await;
    fleet.one.fake.set_batches(BATCH, BATCH);
    fleet
        .edit(&first, |worker| worker.state = WorkerState::Running)
        .await;
    for count in AROUND {
        let keys = fleet.copies(&first, count, WorkerState::Stopping).await;
        let (n_calls, n_told) = fleet
            .n_calls(Call::End, fleet.ender().end_for(FOREVER))
            .await;
        assert_eq!(
            (n_calls, n_told.unwrap()),
            (count.div_ceil(BATCH) as u64, count as u64)
        );
        fleet.stop(keys).await;
    }
});

fleet_on_sqlite_first!(
    machines_that_cannot_be_ended_keep_no_other_from_its_end,
    |fleet| {
        let last = fleet.stopping_one().await;
        for count in [100, 101, 1_000] {
            let keys = fleet.copies(&last, count, WorkerState::Stopping).await;
            for key in &keys {
                fleet.one.fake.set_unendable(key, protected());
            }
            fleet.pass_ms(MINUTE_MS);
            let mut ender = fleet.ender();
            let mut n_told = 0;
            // All are tried once, however many there are: a call takes one here.
            let (n_calls, ()) = fleet
                .n_calls(Call::End, async {
                    for _ in 0..3 {
                        n_told += ender.end_for(FOREVER).await.unwrap();
                    }
                })
                .await;
            assert_eq!((n_calls, n_told), (count as u64 + 1, 1));
            // Those that failed are tried again later and later.
            let mut calls = Vec::new();
            for _ in 0..7 {
                fleet.pass_ms(2_000);
                let again = async {
                    for _ in 0..3 {
                        ender.end_for(FOREVER).await.unwrap();
                    }
                };
                calls.push(fleet.n_calls(Call::End, again).await.0 / count as u64);
            }
            assert_eq!(calls, [1, 0, 1, 0, 0, 0, 1]);
            fleet.stop(keys).await;
        }
    }
);

fleet_on_sqlite_first!(
    a_region_that_is_down_is_called_a_few_times_and_no_more,
    |fleet| {
        let first = fleet.stopping_one().await;
        fleet.copies(&first, 100, WorkerState::Stopping).await;
        for _ in 0..100 {
            fleet.one.fake.fail_next(Call::End, down());
        }
        let (n_calls, n_told) = fleet
            .n_calls(Call::End, fleet.ender().end_for(FOREVER))
            .await;
        assert_eq!(n_told.unwrap(), 0);
        assert!((2..=9).contains(&n_calls), "{n_calls} calls");
    }
);

fleet_on_sqlite_first!(
    a_region_that_answers_nothing_is_called_again_after_three_seconds_each_time,
    |fleet| {
        fleet.stopping_one().await;
        let mut ender = fleet.ender();
        let mut calls = Vec::new();
        for pass_ms in [0, 0, 2_999, 1, 2_999, 1, 2_999, 1, 2_999, 1] {
            fleet.pass_ms(pass_ms);
            fleet.one.fake.fail_next(Call::End, down());
            let (n_calls, n_told) = fleet.n_calls(Call::End, ender.end_for(FOREVER)).await;
            assert_eq!(n_told.unwrap(), 0);
            calls.push(n_calls);
            fleet.one.fake.behave();
        }
        assert_eq!(calls, [1, 0, 0, 1, 0, 1, 0, 1, 0, 1]);
        // A clock that is set back delays nothing either.
        fleet.pass_ms(-2 * 60 * MINUTE_MS);
        assert_eq!(ender.end_for(FOREVER).await.unwrap(), 1);
        assert!(fleet.machines().is_empty());
    }
);

fleet_test!(machines_without_an_answer_come_last, |fleet| {
    let first = fleet.stopping_one().await;
    fleet.copies(&first, 100, WorkerState::Stopping).await;
    fleet.one.fake.set_batches(1, 1);
    let mut ender = fleet.ender();
    ender.limits.calls = 1;
    let mut n_told = 0;
    // The first two of each activation get no answer, and the others are not tried.
    for _ in 0..50 {
        for _ in 0..2 {
            fleet.one.fake.fail_next(Call::End, down());
        }
        n_told += ender.end_for(FOREVER).await.unwrap();
        fleet.pass_ms(3_000);
    }
    assert_eq!(n_told, 0);
    // One is left that was never tried: it is the first, although a hundred others have waited
    // longer than their pause.
    fleet.one.fake.fail_next(Call::End, down());
    n_told += ender.end_for(FOREVER).await.unwrap();
    assert_eq!(n_told, 100);
    fleet.pass_ms(1);
    assert_eq!(ender.end_for(FOREVER).await.unwrap(), 1);
});

fleet_on_sqlite_first!(a_region_that_hangs_delays_no_ending_in_another, |fleet| {
    for key in fleet.one_in_each_region().await {
        fleet
            .edit(&key, |worker| worker.state = WorkerState::Stopping)
            .await;
    }
    let hangs = region(0);
    fleet.one.fake.set_hanging(&hangs, true);
    let mut ender = fleet.ender();
    let mut n_told = 0;
    for _ in 0..MAX_TRIES {
        n_told += ender.end_for(PATIENCE).await.unwrap();
        if n_told == N_REGIONS as u64 - 1 {
            break;
        }
    }
    assert_eq!(n_told, N_REGIONS as u64 - 1);
    assert_eq!(fleet.machines().len(), 1);
    ender.end_for(PATIENCE).await.unwrap();
    assert_eq!(fleet.one.fake.n_hanging(&hangs, Call::End), 1);
});

fleet_on_sqlite_first!(
    a_machine_with_our_mark_that_no_launch_made_is_ended_after_an_hour,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        fleet.tasks(POOL, 1).await;
        fleet.one.fake.next_launches([LaunchOutcome::AnswerLost]);
        fleet.round().await;
        let foreign = WorkerKey {
            pool_id: POOL.parse().unwrap(),
            group: region(0),
            id: "of-somebody-else".parse().unwrap(),
        };
        fleet.one.fake.add_foreign(foreign.clone());
        // As after a power cut: the launch was never written.
        let [launch] = fleet.launches(POOL).await.try_into().unwrap();
        let launch = Launch::from_stored(StoredLaunch {
            state: LaunchState::Accepted,
            ..launch.into_stored()
        });
        let later = fleet.now().plus_millis(1);
        fleet
            .write(move |tx| {
                store::launches::update(tx, &launch)?;
                store::launches::delete_before(tx, later, 10).map(drop)
            })
            .await;
        let mut scanner = fleet.scanner();
        let mut ended = Vec::new();
        for minutes in [0, 59, 1, 0] {
            fleet.pass_ms(minutes * MINUTE_MS);
            ended.push(scanner.scan_for(FOREVER).await.unwrap().unwrap().ended);
        }
        assert_eq!(ended, [0, 0, 1, 0]);
        let left: Vec<_> = fleet.machines().into_iter().map(|it| it.key).collect();
        assert_eq!(left, [foreign]);
        assert_eq!(fleet.states(POOL).await, "");
    }
);

fleet_on_sqlite_first!(
    a_machine_of_an_unknown_launch_is_not_ended_at_first_sight,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        fleet.tasks(POOL, 1).await;
        fleet.one.fake.next_launches([LaunchOutcome::AnswerLost]);
        fleet.round().await;
        let [launch] = fleet.launches(POOL).await.try_into().unwrap();
        let launch = Launch::from_stored(StoredLaunch {
            state: LaunchState::Accepted,
            ..launch.into_stored()
        });
        let later = fleet.now().plus_millis(1);
        fleet
            .write(move |tx| {
                store::launches::update(tx, &launch)?;
                store::launches::delete_before(tx, later, 10).map(drop)
            })
            .await;
        for _ in 0..3 {
            fleet.pass_ms(100 * MINUTE_MS);
            // A process that has just begun has not seen it before.
            assert_eq!(fleet.scan().await, json!(null));
        }
        assert_eq!(fleet.machines().len(), 1);
    }
);

fleet_test!(all_launches_without_an_answer_are_looked_at, |fleet| {
    const PAGE: usize = 100;
    let key = fleet.stopping_one().await;
    let [template] = fleet
        .launches(&key.pool_id.to_string())
        .await
        .try_into()
        .unwrap();
    let sizes = sizes_around("engine::fleet::reconcile::PAGE", PAGE).into_iter();
    for (count, is_scanned) in sizes.flat_map(|count| [(count, true), (count, false)]) {
        let (template, created) = (template.clone(), fleet.now());
        let tokens: Vec<LaunchToken> = (0..count)
            .map(|_| fleet.app.engine.random.slugid().parse().unwrap())
            .collect();
        fleet
            .write(move |tx| {
                for token in &tokens {
                    let launch = Launch::from_stored(StoredLaunch {
                        token: token.clone(),
                        state: LaunchState::Open,
                        asked: None,
                        made: 0,
                        created,
                        last_modified: created,
                        ..template.clone().into_stored()
                    });
                    store::launches::insert(tx, &launch)?;
                }
                Ok(())
            })
            .await;
        fleet.pass_ms(10 * MINUTE_MS);
        let n_settled = match is_scanned {
            true => {
                let scanned = fleet.scanner().scan_for(FOREVER).await.unwrap();
                scanned.unwrap().settled
            }
            // As for a provider that no scan can look at.
            false => engine::fleet::settle_old_launches(&fleet.app.engine)
                .await
                .unwrap(),
        };
        assert_eq!(n_settled, count as u64);
    }
});

fleet_test!(machines_that_another_process_ends_are_left_to_it, |fleet| {
    let keys = fleet.one_in_each_region().await;
    for key in &keys {
        fleet
            .edit(key, |worker| worker.state = WorkerState::Stopping)
            .await;
    }
    *fleet.one.elsewhere.lock().unwrap() = Some(region(0));
    let mut ender = fleet.ender();
    let (_, n_accepted) = fleet.n_calls(Call::End, ender.end_stopping()).await;
    assert_eq!(n_accepted.unwrap(), N_REGIONS as u64 - 1);
    *fleet.one.elsewhere.lock().unwrap() = None;
    assert_eq!(ender.end_stopping().await.unwrap(), 1);
});
