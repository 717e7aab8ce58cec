//! Run outcomes: each is counted once, lists are ordered, and old or excess outcomes are deleted.

use domain::id::PoolId;
use domain::run_outcome::{OutcomeCounts, RunOutcome};
use domain::task::EndReason;
use domain::time::{DAY_MS, HOUR_MS, MINUTE_MS};
use store::kept_runs::{self, KeptRuns};
use store::run_counts::{self, Tallies};
use store::run_outcomes::{self, RunCursor};
use store::{Store, Tx, events, outbox, pools, run_messages};

use crate::samples::{at, event, pool, pool_id, worker_key};
use crate::world::{Database, on_both, read, write};

const HOUR: i64 = HOUR_MS;

/// A completed run of the task with this number.
fn outcome(pool: &str, worker: &str, number: u32, resolved: i64) -> RunOutcome {
    RunOutcome {
        worker: worker_key(pool, "g", worker),
        task_id: format!("{number:08}QACAAAAAAAAAAA").parse().unwrap(),
        run_id: 0,
        reason: EndReason::Completed,
        resolved: at(resolved),
        started: None,
    }
}

/// A database with two pools of one configuration, and a third pool.
async fn with_pools(database: &Database) -> Store {
    let store = database.migrated().await;
    write(&store, |tx| {
        for id in ["p/one", "p/two", "p/other"] {
            pools::insert(tx, &pool(id, "aws-1"))?;
        }
        Ok(())
    })
    .await;
    database.raw(
        "INSERT INTO worker_types (worker_pool_id, worker_configuration_id, check_payload) \
         VALUES ('p/two', 'build', 0), ('p/one', 'build', 0), ('p/other', 'test', 0)",
    );
    store
}

/// Stores outcomes, and returns how many are new.
async fn note(store: &Store, outcomes: Vec<RunOutcome>) -> usize {
    write(store, move |tx| run_outcomes::note(tx, &outcomes))
        .await
        .len()
}

async fn of_pools(store: &Store, pools: &[&str], after: Option<RunCursor>, n: u32) -> Vec<String> {
    let pools: Vec<PoolId> = pools.iter().map(|id| pool_id(id)).collect();
    let found = read(store, move |tx| {
        run_outcomes::list_of_pools(tx, &pools, after.as_ref(), n)
    });
    found.await.iter().map(name).collect()
}

async fn of_worker(store: &Store, worker: &str, after: Option<RunCursor>, n: u32) -> Vec<String> {
    let key = worker_key("p/one", "g", worker);
    let found = read(store, move |tx| {
        run_outcomes::list_of_worker(tx, &key, after.as_ref(), n)
    });
    found.await.iter().map(name).collect()
}

/// Names an outcome by worker, task and run.
fn name(outcome: &RunOutcome) -> String {
    let task = outcome.task_id.as_str()[..8].trim_start_matches('0');
    format!("{} {task}/{}", outcome.worker.id, outcome.run_id)
}

async fn counts(store: &Store, pool: &str, now: i64) -> [(u64, u64, u64); 3] {
    let id = pool_id(pool);
    sums(&read(store, move |tx| run_counts::of_pool(tx, &id, at(now))).await)
}

fn sums(tallies: &Tallies) -> [(u64, u64, u64); 3] {
    let sum = |tally: &OutcomeCounts| (tally.completed, tally.failed, tally.exception());
    [sum(&tallies[0]), sum(&tallies[1]), sum(&tallies[2])]
}

on_both!(a_duplicate_outcome_is_recognized, |database| {
    let store = with_pools(database).await;
    let first = outcome("p/one", "w", 1, 5);
    let second = RunOutcome {
        run_id: 1,
        reason: EndReason::ClaimExpired,
        resolved: at(6),
        ..first.clone()
    };
    assert_eq!(
        note(&store, vec![first.clone(), first.clone(), second.clone()]).await,
        2
    );
    assert_eq!(note(&store, vec![second.clone(), first.clone()]).await, 0);
    assert_eq!(of_worker(&store, "w", None, 9).await, ["w 1/1", "w 1/0"]);
    assert_eq!(counts(&store, "p/one", 9).await, [(1, 0, 1); 3]);
    let key = worker_key("p/one", "g", "w");
    let found = read(&store, move |tx| {
        run_outcomes::list_of_worker(tx, &key, None, 9)
    });
    assert_eq!(found.await, [second, first], "both keep all fields");
});

on_both!(outcomes_of_unknown_pools_are_not_stored, |database| {
    let store = with_pools(database).await;
    let told = vec![
        outcome("p/elsewhere", "w", 1, 5),
        outcome("p/one", "w", 2, 5),
    ];
    assert_eq!(note(&store, told).await, 1);
    assert_eq!(
        of_pools(&store, &["p/one", "p/elsewhere"], None, 9).await,
        ["w 2/0"]
    );
    assert_eq!(counts(&store, "p/elsewhere", 9).await, [(0, 0, 0); 3]);
});

on_both!(runs_are_listed_from_newest_to_oldest_in_pages, |database| {
    let store = with_pools(database).await;
    // Reported in another order than they ended, some at the same moment.
    let times = [(1, 10), (2, 40), (3, 20), (4, 40), (5, 30)];
    let told = times.map(|(number, time)| outcome("p/one", "w", number, time));
    assert_eq!(note(&store, told.to_vec()).await, 5);
    note(&store, vec![outcome("p/one", "v", 9, 25)]).await;
    assert_eq!(
        of_worker(&store, "w", None, 3).await,
        ["w 4/0", "w 2/0", "w 5/0"]
    );
    let after = RunCursor::from(&told[1]);
    assert_eq!(
        of_worker(&store, "w", Some(after.clone()), 9).await,
        ["w 5/0", "w 3/0", "w 1/0"]
    );
    assert_eq!(
        of_pools(&store, &["p/one"], Some(after), 2).await,
        ["w 5/0", "v 9/0"]
    );
});

on_both!(runs_of_several_pools_are_merged_into_one_list, |database| {
    let store = with_pools(database).await;
    let pools = ["p/one", "p/other", "p/two"];
    let told: Vec<_> = (0..60_u32)
        .map(|number| {
            let pool = pools[number as usize % 3];
            // Three share each moment.
            outcome(
                pool,
                &format!("w{}", number % 3),
                number,
                i64::from(number / 3),
            )
        })
        .collect();
    note(&store, told.clone()).await;
    let expected: Vec<String> = told.iter().rev().map(name).collect();
    assert_eq!(of_pools(&store, &pools, None, 60).await, expected);
    for limit in [1, 2, 7] {
        let mut seen = Vec::new();
        let mut after = None;
        while seen.len() < 60 {
            let ids: Vec<_> = pools.iter().map(|id| pool_id(id)).collect();
            let page = read(&store, {
                let after = after.clone();
                move |tx| run_outcomes::list_of_pools(tx, &ids, after.as_ref(), limit)
            })
            .await;
            after = page.last().map(RunCursor::from);
            seen.extend(page.iter().map(name));
        }
        assert_eq!(seen, expected, "{limit} in each page");
    }
});

on_both!(
    counts_of_a_configuration_are_the_sum_of_its_pools,
    |database| {
        let store = with_pools(database).await;
        let told = vec![
            outcome("p/one", "w", 1, 5),
            outcome("p/two", "w", 2, 5),
            outcome("p/other", "w", 3, 5),
        ];
        note(&store, told).await;
        let (pools, tallies) = read(&store, |tx| {
            let id = "build".parse().unwrap();
            let pools = run_outcomes::pools_of_configuration(tx, &id)?;
            Ok((pools, run_counts::of_configuration(tx, &id, at(9))?))
        })
        .await;
        assert_eq!(pools, [pool_id("p/one"), pool_id("p/two")]);
        assert_eq!(sums(&tallies), [(2, 0, 0); 3]);
    }
);

on_both!(outcomes_are_counted_over_windows_by_hours, |database| {
    let store = with_pools(database).await;
    let now = 1_000 * HOUR + 20 * MINUTE_MS;
    let ages = [
        0,
        HOUR,
        2 * HOUR,
        23 * HOUR,
        26 * HOUR,
        6 * DAY_MS,
        8 * DAY_MS,
    ];
    let told = ages.iter().zip(0..).map(|(age, number)| RunOutcome {
        reason: if *age == HOUR {
            EndReason::Failed
        } else {
            EndReason::Completed
        },
        ..outcome("p/one", "w", number, now - age)
    });
    note(&store, told.collect()).await;
    assert_eq!(
        counts(&store, "p/one", now).await,
        [(1, 1, 0), (3, 1, 0), (5, 1, 0)]
    );
    let two_hours_later = now + 2 * HOUR;
    assert_eq!(
        counts(&store, "p/one", two_hours_later).await,
        [(0, 0, 0), (2, 1, 0), (5, 1, 0)]
    );
    write(&store, move |tx| {
        assert_eq!(run_counts::delete_before(tx, at(now - DAY_MS), 2)?, 2);
        assert_eq!(run_counts::delete_before(tx, at(now - DAY_MS), 2)?, 1);
        assert_eq!(run_counts::delete_before(tx, at(now - DAY_MS), 2)?, 0);
        Ok(())
    })
    .await;
    assert_eq!(
        counts(&store, "p/one", now).await,
        [(1, 1, 0), (3, 1, 0), (3, 1, 0)]
    );
});

async fn has_excess(store: &Store, pool: &'static str, kept: KeptRuns) -> bool {
    let find = move |tx: &mut Tx<'_>| kept_runs::find_excess(tx, &pool_id(pool), kept, 1);
    read(store, find).await.is_some()
}

/// Trims in steps of this size until a look finds nothing, and returns the number of deleted
/// outcomes.
async fn trim(store: &Store, pool: &'static str, kept: KeptRuns, step: u32) -> u64 {
    trim_found(store, pool, kept, [step, step]).await
}

/// The same. A look finds at most this many crowded workers.
async fn trim_found(
    store: &Store,
    pool: &'static str,
    kept: KeptRuns,
    [step, n_workers]: [u32; 2],
) -> u64 {
    let mut total = 0;
    loop {
        let look =
            move |tx: &mut Tx<'_>| kept_runs::find_excess(tx, &pool_id(pool), kept, n_workers);
        let Some(mut excess) = read(store, look).await else {
            return total;
        };
        loop {
            let trim =
                move |tx: &mut Tx<'_>| kept_runs::trim(tx, &pool_id(pool), kept, &excess, step);
            let trimmed = write(store, trim).await;
            assert!(trimmed.n_deleted <= u64::from(step));
            total += trimmed.n_deleted;
            if trimmed.n_deleted < u64::from(step) {
                break;
            }
            excess = trimmed.rest;
        }
    }
}

on_both!(trimming_asks_about_each_crowded_worker_once, |database| {
    let store = with_pools(database).await;
    let hour = |number: u32| i64::from(number) * HOUR;
    let kept = KeptRuns {
        of_pool: 1_000,
        of_worker: 1,
        since: at(0),
    };
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    for n_workers in [1, 2, 9, 10] {
        // Two of each worker, in different order, and a newer one of another.
        let workers = names.iter().take(n_workers).enumerate();
        let told = workers.flat_map(|(place, name)| {
            let place = u32::try_from(place).unwrap();
            let outcomes = [place, 50 - place];
            outcomes.map(|number| outcome("p/one", name, number, hour(number)))
        });
        let newest = outcome("p/one", "w", 99, hour(99));
        note(&store, told.chain([newest]).collect()).await;
        store.take_counts();
        let n_deleted = trim_found(&store, "p/one", kept, [1, 100]).await;
        assert_eq!(n_deleted, n_workers as u64);
        let counts = store.take_counts();
        let n_asked = counts.statements("run_outcome_delete_too_many_of_worker");
        assert!(n_asked <= 2 * n_workers as u64, "{n_asked}");
    }
});

on_both!(
    the_newest_outcomes_of_a_pool_and_of_a_worker_are_kept,
    |database| {
        let store = with_pools(database).await;
        let hour = |number: u32| i64::from(number) * HOUR;
        let told: Vec<_> = (0..10)
            .map(|number| outcome("p/one", "busy", number, hour(number)))
            .chain((10..14).map(|number| outcome("p/one", "w", number, hour(number))))
            .chain([outcome("p/other", "w", 99, 0)])
            .collect();
        note(&store, told).await;
        let kept = |of_pool, of_worker| KeptRuns {
            of_pool,
            of_worker,
            since: at(0),
        };
        assert!(!has_excess(&store, "p/none", kept(0, 0)).await);
        assert!(!has_excess(&store, "p/one", kept(14, 10)).await);
        assert!(
            has_excess(&store, "p/one", kept(13, 10)).await,
            "of the pool"
        );
        assert!(
            has_excess(&store, "p/one", kept(14, 9)).await,
            "of a worker"
        );
        let is_old = KeptRuns {
            since: at(1),
            ..kept(14, 10)
        };
        assert!(has_excess(&store, "p/one", is_old).await, "an old one");
        assert_eq!(trim(&store, "p/one", kept(100, 4), 2).await, 6);
        let all = [
            "w 13/0", "w 12/0", "w 11/0", "w 10/0", "busy 9/0", "busy 8/0", "busy 7/0", "busy 6/0",
        ];
        assert_eq!(of_pools(&store, &["p/one"], None, 99).await, all);
        assert_eq!(trim(&store, "p/one", kept(5, 4), 2).await, 3);
        assert_eq!(of_pools(&store, &["p/one"], None, 99).await, all[..5]);
        assert_eq!(of_pools(&store, &["p/other"], None, 99).await, ["w 99/0"]);
        assert_eq!(
            counts(&store, "p/one", 0).await[2],
            (14, 0, 0),
            "counts stay when outcomes are deleted"
        );
    }
);

on_both!(
    outcomes_that_may_be_reported_again_are_kept_longer,
    |database| {
        let store = with_pools(database).await;
        let minute = |number: u32| i64::from(number) * MINUTE_MS;
        let told: Vec<_> = (0..30)
            .map(|number| outcome("p/one", "w", number, minute(number)))
            .collect();
        note(&store, told.clone()).await;
        let kept = KeptRuns {
            of_pool: 3,
            of_worker: 2,
            since: at(0),
        };
        // The newest is from minute 29, so outcomes since minute 19 may have duplicates.
        assert_eq!(trim(&store, "p/one", kept, 100).await, 19);
        assert_eq!(note(&store, told[19..].to_vec()).await, 0);
        assert_eq!(counts(&store, "p/one", 0).await[2], (30, 0, 0));
    }
);

on_both!(
    workers_without_deletable_outcomes_do_not_use_up_the_limit,
    |database| {
        let store = with_pools(database).await;
        let minute = |number: u32| i64::from(number) * MINUTE_MS;
        let told: Vec<_> = ["a", "b", "c", "z"]
            .into_iter()
            .zip([60, 60, 60, 0])
            .flat_map(|(worker, from)| (from..from + 3).map(move |at| (worker, at)))
            .zip(0..)
            .map(|((worker, at), number)| outcome("p/one", worker, number, minute(at)))
            .collect();
        note(&store, told).await;
        let kept = KeptRuns {
            of_pool: 99,
            of_worker: 2,
            since: at(0),
        };
        assert_eq!(trim(&store, "p/one", kept, 2).await, 1);
        assert_eq!(of_worker(&store, "z", None, 9).await.len(), 2);
        assert_eq!(of_worker(&store, "a", None, 9).await.len(), 3);
    }
);

on_both!(old_outcomes_are_deleted_pool_by_pool, |database| {
    let store = with_pools(database).await;
    let told = vec![
        outcome("p/one", "w", 1, 10),
        outcome("p/one", "w", 2, 20),
        outcome("p/two", "w", 3, 10),
    ];
    note(&store, told).await;
    let kept = KeptRuns {
        of_pool: 9,
        of_worker: 9,
        since: at(20),
    };
    let mut pools = Vec::new();
    let mut after = None;
    loop {
        let last = after.clone();
        let next = read(&store, move |tx| kept_runs::next_pool(tx, last.as_ref())).await;
        let Some(next) = next else { break };
        pools.push(next.to_string());
        after = Some(next);
    }
    assert_eq!(pools, ["p/one", "p/two"]);
    assert_eq!(trim(&store, "p/one", kept, 9).await, 1);
    assert_eq!(trim(&store, "p/two", kept, 9).await, 1);
    assert_eq!(trim(&store, "p/two", kept, 9).await, 0);
    assert_eq!(
        of_pools(&store, &["p/one", "p/two"], None, 9).await,
        ["w 2/0"]
    );
});

on_both!(many_writers_count_each_outcome_once, |database| {
    let store = with_pools(database).await;
    let told: Vec<_> = (0..40)
        .map(|number| outcome(["p/one", "p/two"][number as usize % 2], "w", number, 5))
        .collect();
    let writers: Vec<_> = (0..8_usize)
        .map(|writer| {
            let (store, mut told) = (store.clone(), told.clone());
            // Each writer has its own order.
            told.rotate_left(writer * 5);
            tokio::spawn(async move {
                let mut n_new = 0;
                for part in told.chunks(10) {
                    n_new += note(&store, part.to_vec()).await;
                }
                n_new
            })
        })
        .collect();
    let mut n_new = 0;
    for writer in writers {
        n_new += writer.await.unwrap();
    }
    assert_eq!(n_new, 40);
    for pool in ["p/one", "p/two"] {
        assert_eq!(counts(&store, pool, 9).await, [(20, 0, 0); 3]);
    }
});

on_both!(
    only_messages_about_runs_are_read_from_the_stream,
    |database| {
        let store = database.migrated().await;
        write(&store, |tx| {
            for id in ["a", "b"] {
                outbox::push(tx, &event(id, "p/one"))?;
            }
            events::assign_positions(tx, 9)
        })
        .await;
        database.raw(
            "UPDATE outbox SET topic = 'exchange/taskcluster-queue/v1/task-failed', \
         payload = '{\"x\": 1}' WHERE event_id = 'b'",
        );
        let told = read(&store, |tx| run_messages::list(tx, 0, 9, 9)).await;
        let [(position, payload)] = &told.items[..] else {
            panic!("{told:?}");
        };
        assert_eq!((*position, payload.as_str()), (2, "{\"x\": 1}"));
        for (after, until) in [(2, 9), (0, 1)] {
            let told = read(&store, move |tx| run_messages::list(tx, after, until, 9)).await;
            assert!(told.items.is_empty());
        }
    }
);
