//! Tasks: their rows, claims, demand and deletion.

use domain::Version;
use domain::demand::Demand;
use domain::id::{PoolId, TaskId};
use domain::task::{Priority, Task, TaskDocument, TaskGroup, Transition};
use serde_json::json;
use store::pending_tasks::{self, PendingPosition};
use store::{Store, StoreError, Tx, claimed_tasks, demand, dependencies, task_groups, tasks};

use crate::samples::{at, pool_id, worker_key};
use crate::world::{on_both, read, write};

/// Names a task by a number.
pub(crate) fn task_id(number: u32) -> TaskId {
    format!("{number:08}QACAAAAAAAAAAA").parse().unwrap()
}

pub(crate) fn document(queue: &str) -> TaskDocument {
    serde_json::from_value(json!({
        "taskQueueId": queue, "schedulerId": "-", "dependencies": [], "requires": "all-completed",
        "routes": [], "priority": "low", "retries": 1, "created": "1970-01-01T00:00:00Z",
        "deadline": "1970-01-01T00:01:40Z", "expires": "1970-01-01T00:03:20Z", "scopes": [],
        "payload": {"command": ["é", 1.5]}, "metadata": {}, "tags": {"kind": "test"}, "extra": {},
        "taskGroupId": "00000000QACAAAAAAAAAAA",
    }))
    .unwrap()
}

pub(crate) fn task(number: u32, queue: &str) -> Task {
    let id = task_id(number);
    let definition = document(queue).define(&id).unwrap();
    Task::new(id, definition)
}

pub(crate) fn pending(number: u32, queue: &str, now: i64) -> Task {
    task(number, queue).schedule(at(now)).unwrap().task
}

fn claimed(task: Task, worker: &str, now: i64, until: i64) -> Task {
    let (run_id, _) = task.last_run().unwrap();
    let (group, worker) = ("g".parse().unwrap(), worker.parse().unwrap());
    let moved = task.claim(run_id, &group, &worker, at(now), at(until));
    moved.unwrap().task
}

fn cancelled(task: Task) -> Task {
    task.cancel(at(7)).unwrap().task
}

pub(crate) async fn insert(store: &Store, tasks: Vec<Task>) {
    write(store, move |tx| {
        for task in &tasks {
            assert!(tasks::insert(tx, task, task.definition.created)?);
        }
        Ok(())
    })
    .await;
}

/// Reads a task, changes it, writes it and returns it as it is stored then.
pub(crate) async fn change(
    store: &Store,
    number: u32,
    step: impl Fn(Task) -> Task + Send + 'static,
) -> Task {
    write(store, move |tx| {
        let before = tasks::get(tx, &task_id(number))?.unwrap();
        let after = step(before.clone());
        tasks::update(tx, &before, &after)?;
        Ok(tasks::get(tx, &task_id(number))?.unwrap())
    })
    .await
}

async fn next(store: &Store, queue: &'static str, now: i64) -> Vec<String> {
    let tasks = read(store, move |tx| {
        pending_tasks::next(tx, &pool_id(queue), at(now), 100)
    })
    .await;
    tasks.items.iter().map(|task| task.id.to_string()).collect()
}

async fn demand(store: &Store, queue: &'static str, now: i64) -> (u64, u64) {
    let demand = read(store, move |tx| demand::of(tx, &pool_id(queue), at(now))).await;
    (demand.pending, demand.claimed)
}

fn ids(numbers: &[u32]) -> Vec<String> {
    numbers
        .iter()
        .map(|number| task_id(*number).to_string())
        .collect()
}

on_both!(a_task_is_read_as_it_was_written, |database| {
    let store = database.migrated().await;
    insert(&store, vec![task(1, "a/b"), pending(2, "a/b", 5)]).await;
    let (one, two) = read(&store, |tx| {
        Ok((tasks::get(tx, &task_id(1))?, tasks::get(tx, &task_id(2))?))
    })
    .await;
    assert_eq!(one, Some(task(1, "a/b")));
    assert_eq!(two, Some(pending(2, "a/b", 5)));
    assert_eq!(read(&store, |tx| tasks::get(tx, &task_id(3))).await, None);
});

on_both!(a_second_task_with_the_same_id_is_not_inserted, |database| {
    let store = database.migrated().await;
    insert(&store, vec![pending(1, "a/b", 5)]).await;
    let other = task(1, "c/d");
    assert!(
        !write(&store, move |tx| tasks::insert(
            tx,
            &other,
            other.definition.created
        ))
        .await
    );
    assert_eq!(
        read(&store, |tx| tasks::get(tx, &task_id(1))).await,
        Some(pending(1, "a/b", 5))
    );
    assert_eq!(demand(&store, "a/b", 6).await, (1, 0));
});

on_both!(demand_follows_a_task_from_pending_to_its_end, |database| {
    let store = database.migrated().await;
    insert(&store, vec![task(1, "a/b")]).await;
    assert_eq!(demand(&store, "a/b", 6).await, (0, 0));
    change(&store, 1, |task| task.schedule(at(5)).unwrap().task).await;
    assert_eq!(demand(&store, "a/b", 6).await, (1, 0));
    let running = change(&store, 1, |task| claimed(task, "w", 7, 20)).await;
    assert_eq!(running.version, Version(3));
    assert_eq!(demand(&store, "a/b", 8).await, (0, 1));
    let claimed_since = |since, now| {
        read(&store, move |tx| {
            demand::claimed_since(tx, &pool_id("a/b"), at(since), at(now))
        })
    };
    assert_eq!(
        (claimed_since(7, 8).await, claimed_since(8, 8).await),
        (1, 0)
    );
    // A clock that was ahead wrote the claim, or the claim has expired.
    assert_eq!(
        (claimed_since(0, 6).await, claimed_since(0, 20).await),
        (0, 0)
    );
    // An expired claim does not count.
    assert_eq!(demand(&store, "a/b", 20).await, (0, 0));
    change(&store, 1, |task| {
        task.reclaim(0, at(9), at(30)).unwrap().task
    })
    .await;
    assert_eq!(demand(&store, "a/b", 20).await, (0, 1));
    change(&store, 1, |task| task.expire_claim(0, at(30)).unwrap().task).await;
    assert_eq!(demand(&store, "a/b", 31).await, (1, 0));
    change(&store, 1, |task| claimed(task, "w", 32, 40)).await;
    change(&store, 1, |task| task.report(1, true, at(33)).unwrap().task).await;
    assert_eq!(demand(&store, "a/b", 34).await, (0, 0));
});

on_both!(
    of_two_changes_of_one_task_the_second_sees_the_first,
    |database| {
        let store = database.migrated().await;
        insert(&store, vec![pending(1, "a/b", 5)]).await;
        let stale = read(&store, |tx| tasks::get(tx, &task_id(1)))
            .await
            .unwrap();
        change(&store, 1, |task| claimed(task, "w", 7, 20)).await;
        let late = claimed(stale.clone(), "other", 8, 20);
        let failed: Result<_, StoreError> = store
            .write("stale", move |tx| tasks::update(tx, &stale, &late))
            .await;
        assert!(
            matches!(failed, Err(StoreError::TooManyConflicts { .. })),
            "{failed:?}"
        );
        let kept = read(&store, |tx| tasks::get(tx, &task_id(1)))
            .await
            .unwrap();
        assert_eq!(kept.runs[0].claim.as_ref().unwrap().worker_id.as_str(), "w");
    }
);

on_both!(tasks_are_next_by_priority_and_then_by_arrival, |database| {
    let store = database.migrated().await;
    let urgent = |task: Task, priority| task.change_priority(priority).unwrap().task;
    insert(
        &store,
        vec![
            pending(3, "a/b", 5),
            urgent(pending(2, "a/b", 6), Priority::High),
            pending(1, "a/b", 7),
            urgent(pending(4, "a/b", 8), Priority::High),
            pending(5, "a/bc", 8),
        ],
    )
    .await;
    assert_eq!(next(&store, "a/b", 10).await, ids(&[2, 4, 3, 1]));
    change(&store, 1, |task| {
        task.change_priority(Priority::Highest).unwrap().task
    })
    .await;
    assert_eq!(next(&store, "a/b", 10).await, ids(&[1, 2, 4, 3]));
    let listed = read(&store, |tx| {
        pending_tasks::list(tx, &pool_id("a/b"), None, 2)
    })
    .await;
    let listed = listed.items;
    let positions: Vec<PendingPosition> = listed.iter().map(|row| row.position).collect();
    assert_eq!(listed[1].task.id, task_id(2));
    assert_eq!((listed[1].run_id, listed[1].inserted), (0, at(6)));
    let rest = read(&store, move |tx| {
        pending_tasks::list(tx, &pool_id("a/b"), Some(positions[1]), 9)
    });
    let rest = rest.await.items.into_iter();
    let rest: Vec<TaskId> = rest.map(|row| row.task.id.clone()).collect();
    assert_eq!(rest, [task_id(4), task_id(3)]);
});

on_both!(
    tasks_past_their_deadline_are_neither_counted_nor_claimed,
    |database| {
        let store = database.migrated().await;
        insert(&store, vec![pending(1, "a/b", 5)]).await;
        assert_eq!(next(&store, "a/b", 99_999).await, ids(&[1]));
        assert!(
            read(&store, |tx| pending_tasks::any(
                tx,
                &pool_id("a/b"),
                at(99_999)
            ))
            .await
        );
        assert!(next(&store, "a/b", 100_000).await.is_empty());
        assert!(
            !read(&store, |tx| pending_tasks::any(
                tx,
                &pool_id("a/b"),
                at(100_000)
            ))
            .await
        );
        assert_eq!(demand(&store, "a/b", 100_000).await, (0, 0));
    }
);

on_both!(
    demands_of_all_pools_are_read_in_pages_without_gaps,
    |database| {
        let store = database.migrated().await;
        let mut tasks = Vec::new();
        for (number, queue) in (0..).zip(["p/a", "p/b", "p/c", "p/d", "p/e", "p/a"]) {
            tasks.push(pending(number, queue, 5));
        }
        for (number, queue) in (10..).zip(["p/b", "p/d", "p/f", "p/f"]) {
            tasks.push(claimed(pending(number, queue, 5), "w", 6, 50));
        }
        insert(&store, tasks).await;
        let expected: Vec<(PoolId, Demand)> = [
            ("p/a", 2, 0),
            ("p/b", 1, 1),
            ("p/c", 1, 0),
            ("p/d", 1, 1),
            ("p/e", 1, 0),
            ("p/f", 0, 2),
        ]
        .map(|(queue, pending, claimed)| (pool_id(queue), Demand { pending, claimed }))
        .to_vec();
        let total = read(&store, |tx| demand::total(tx, at(10))).await;
        assert_eq!((total.pending, total.claimed), (6, 4));
        for limit in 1..=7_u32 {
            let mut all = Vec::new();
            // More pages than pools would mean an endless loop.
            for _ in 0..10 {
                let after = all.last().map(|(id, _): &(PoolId, Demand)| id.clone());
                let page = read(&store, move |tx| {
                    demand::all(tx, after.as_ref(), limit, at(10))
                })
                .await;
                assert!(page.len() <= limit as usize);
                if page.is_empty() {
                    break;
                }
                all.extend(page);
            }
            assert_eq!(all, expected, "limit {limit}");
        }
    }
);

on_both!(claims_are_found_by_worker_queue_and_end, |database| {
    let store = database.migrated().await;
    insert(
        &store,
        vec![
            claimed(pending(1, "a/b", 5), "w", 9, 30),
            claimed(pending(2, "a/b", 5), "w", 8, 20),
            claimed(pending(3, "a/b", 5), "v", 7, 40),
            claimed(pending(4, "c/d", 5), "w", 6, 10),
        ],
    )
    .await;
    let of_worker = read(&store, |tx| {
        claimed_tasks::list_of_worker(tx, &worker_key("a/b", "g", "w"), 9)
    });
    assert_eq!(of_worker.await, [(task_id(1), 0), (task_id(2), 0)]);
    let expired = read(&store, |tx| claimed_tasks::list_expired(tx, at(20), 9)).await;
    assert_eq!(expired, [(task_id(4), 0), (task_id(2), 0)]);
    let listed = read(&store, |tx| {
        claimed_tasks::list(tx, &pool_id("a/b"), None, 2)
    })
    .await;
    let listed: Vec<_> = listed
        .items
        .iter()
        .map(|row| (row.claimed, row.task.id.clone()))
        .collect();
    assert_eq!(listed, [(at(7), task_id(3)), (at(8), task_id(2))]);
    let rest = read(&store, |tx| {
        claimed_tasks::list(tx, &pool_id("a/b"), Some((at(8), &task_id(2))), 9)
    });
    assert_eq!(rest.await.items[0].task.id, task_id(1));
});

on_both!(groups_list_all_tasks_and_unresolved_tasks, |database| {
    let store = database.migrated().await;
    insert(&store, vec![task(1, "a/b"), task(2, "a/b"), task(3, "a/b")]).await;
    let group_id = || "00000000QACAAAAAAAAAAA".parse().unwrap();
    change(&store, 2, |task| task.cancel(at(9)).unwrap().task).await;
    let (tasks, active, size) = read(&store, move |tx| {
        Ok((
            task_groups::tasks(tx, &group_id(), Some(&task_id(1)), 9)?.items,
            task_groups::active(tx, &group_id(), None, 9)?,
            task_groups::size(tx, &group_id())?,
        ))
    })
    .await;
    let listed: Vec<TaskId> = tasks.into_iter().map(|task| task.id.clone()).collect();
    assert_eq!(listed, [task_id(2), task_id(3)]);
    assert_eq!(active, [task_id(1), task_id(3)]);
    assert_eq!(size, 3);
});

on_both!(a_group_is_inserted_once_sealed_and_deleted, |database| {
    let store = database.migrated().await;
    let group = TaskGroup::new(
        "00000000QACAAAAAAAAAAA".parse().unwrap(),
        "-".parse().unwrap(),
        at(1),
    );
    let (first, id) = (group.clone(), group.id.clone());
    let inserted = |tx: &mut Tx<'_>| {
        let first = TaskGroup::new(
            "00000000QACAAAAAAAAAAA".parse().unwrap(),
            "-".parse().unwrap(),
            at(1),
        );
        task_groups::insert(tx, &first)
    };
    write(&store, inserted).await;
    let again = store.write("test_write", inserted).await;
    assert!(matches!(again, Err(StoreError::TooManyConflicts { .. })));
    let read_back = read(&store, move |tx| task_groups::get(tx, &id)).await;
    assert_eq!(read_back.as_ref(), Some(&first));
    let mut sealed = group.clone();
    sealed.sealed = Some(at(4));
    let version = write(&store, move |tx| task_groups::update(tx, &sealed)).await;
    assert_eq!(version, Version(2));
    let expires = group.expires;
    let deleted = move |tx: &mut Tx<'_>| task_groups::delete_expired(tx, expires, 9);
    assert_eq!(write(&store, deleted).await, 0);
    let deleted = move |tx: &mut Tx<'_>| task_groups::delete_expired(tx, expires.plus_millis(1), 9);
    assert_eq!(write(&store, deleted).await, 1);
});

on_both!(
    overdue_tasks_are_found_until_they_are_resolved,
    |database| {
        let store = database.migrated().await;
        insert(&store, vec![task(1, "a/b"), pending(2, "a/b", 5)]).await;
        let overdue = |now| move |tx: &mut Tx<'_>| tasks::list_overdue(tx, at(now), 9);
        assert!(read(&store, overdue(100_000)).await.is_empty());
        assert_eq!(read(&store, overdue(100_001)).await.len(), 2);
        change(&store, 1, |task| task.miss_deadline(at(100_001)).task).await;
        assert_eq!(read(&store, overdue(100_001)).await, [task_id(2)]);
    }
);

on_both!(an_expired_task_is_deleted_with_all_its_rows, |database| {
    let store = database.migrated().await;
    insert(
        &store,
        vec![
            cancelled(pending(1, "a/b", 5)),
            cancelled(claimed(pending(2, "a/b", 5), "w", 6, 900_000)),
            pending(3, "a/c", 5),
        ],
    )
    .await;
    let gone = |now| move |tx: &mut Tx<'_>| tasks::delete_expired(tx, at(now), 1);
    assert_eq!(write(&store, gone(200_000)).await, 0);
    assert_eq!(write(&store, gone(200_001)).await, 1);
    assert_eq!(write(&store, gone(200_001)).await, 1);
    assert_eq!(write(&store, gone(200_001)).await, 0);
    assert_eq!(demand(&store, "a/b", 7).await, (0, 0));
    assert_eq!(read(&store, |tx| tasks::get(tx, &task_id(1))).await, None);
    // No event has reported its end yet.
    assert_eq!(demand(&store, "a/c", 7).await, (1, 0));
    // The id can be used again.
    insert(&store, vec![pending(1, "a/b", 5)]).await;
});

on_both!(large_tasks_are_read_a_few_at_a_time, |database| {
    let store = database.migrated().await;
    let large = |number| {
        let mut document = document("a/b");
        document.dependencies = vec![task_id(99).to_string()];
        document.payload = json!("é".repeat(500_000));
        Task::new(task_id(number), document.define(&task_id(number)).unwrap())
    };
    insert(&store, vec![task(99, "x/y")]).await;
    for number in 1..=10 {
        let task = large(number).schedule(at(5)).unwrap().task;
        write(&store, move |tx| {
            assert!(tasks::insert(tx, &task, task.definition.created)?);
            dependencies::require(tx, &task)
        })
        .await;
    }
    read(&store, |tx| {
        let group_id = "00000000QACAAAAAAAAAAA".parse().unwrap();
        let after = |list: Vec<Task>| list.last().map(|task| task.id.clone()).unwrap();
        let next = pending_tasks::next(tx, &pool_id("a/b"), at(10), 100)?;
        assert_eq!((next.items.len(), next.is_cut), (8, true));
        let listed = pending_tasks::list(tx, &pool_id("a/b"), None, 100)?;
        assert_eq!((listed.items.len(), listed.is_cut), (8, true));
        let rest = pending_tasks::list(tx, &pool_id("a/b"), Some(listed.items[7].position), 100)?;
        assert_eq!((rest.items.len(), rest.is_cut), (2, false));
        let group = task_groups::tasks(tx, &group_id, None, 100)?;
        assert_eq!((group.items.len(), group.is_cut), (8, true));
        let rest = task_groups::tasks(tx, &group_id, Some(&after(group.items)), 100)?;
        assert_eq!((rest.items.len(), rest.is_cut), (3, false));
        let dependents = dependencies::dependents(tx, &task_id(99), None, 100)?;
        assert_eq!((dependents.items.len(), dependents.is_cut), (8, true));
        let asked: Vec<TaskId> = (0..=10).map(task_id).collect();
        let several = tasks::get_several(tx, &asked)?;
        assert_eq!((several.items.len(), several.is_cut), (10, true));
        assert_eq!(several.items[0], None);
        let rest = tasks::get_several(tx, &asked[10..])?;
        assert_eq!((rest.items.len(), rest.is_cut), (1, false));
        Ok(())
    })
    .await;
});

/// Claims the next task until none is left, and returns the claimed tasks.
async fn claim_all(store: Store, worker: String) -> Vec<TaskId> {
    let mut got = Vec::new();
    loop {
        let name = worker.clone();
        let claimed: Result<Option<TaskId>, StoreError> = store
            .write("claim", move |tx| {
                let next = pending_tasks::next(tx, &pool_id("a/b"), at(10), 1)?;
                let Some(before) = next.items.into_iter().next() else {
                    return Ok(None);
                };
                let (group, worker) = ("g".parse().unwrap(), name.parse().unwrap());
                let Transition { task, .. } = before
                    .clone()
                    .claim(0, &group, &worker, at(10), at(50))
                    .unwrap();
                tasks::update(tx, &before, &task)?;
                Ok(Some(task.id.clone()))
            })
            .await;
        match claimed {
            Ok(Some(id)) => got.push(id),
            Ok(None) => return got,
            // The transaction has conflicted with others too often.
            Err(StoreError::TooManyConflicts { .. }) => {}
            Err(problem) => panic!("{problem}"),
        }
    }
}

on_both!(
    many_claims_through_two_stores_get_each_task_once,
    |database| {
        let (one, two) = (database.migrated().await, database.open());
        insert(
            &one,
            (0..120).map(|number| pending(number, "a/b", 5)).collect(),
        )
        .await;
        let claimers: Vec<_> = (0..8)
            .map(|number| {
                let store = if number % 2 == 0 {
                    one.clone()
                } else {
                    two.clone()
                };
                tokio::spawn(claim_all(store, format!("w{number}")))
            })
            .collect();
        let mut all = Vec::new();
        for claimer in claimers {
            all.extend(claimer.await.unwrap());
        }
        all.sort();
        assert_eq!(all, (0..120).map(task_id).collect::<Vec<_>>());
        assert_eq!(demand(&one, "a/b", 11).await, (0, 120));
    }
);
