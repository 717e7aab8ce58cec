//! Dependencies between tasks, and their release.

use domain::task::{Requires, Task};
use store::{Store, StoreError, Tx, dependencies, tasks};

use crate::samples::at;
use crate::tasks::{change, document, insert, pending, task, task_id};
use crate::world::{on_both, read, write};

fn waiting(number: u32, requires: Requires, dependencies: &[u32]) -> Task {
    waiting_in("a/b", number, requires, dependencies)
}

pub(crate) fn waiting_in(
    queue: &str,
    number: u32,
    requires: Requires,
    dependencies: &[u32],
) -> Task {
    let id = task_id(number);
    let mut document = document(queue);
    document.requires = requires;
    document.dependencies = dependencies
        .iter()
        .map(|number| task_id(*number).to_string())
        .collect();
    let definition = document.define(&id).unwrap();
    Task::new(id, definition)
}

async fn require(store: &Store, task: Task) {
    insert(store, vec![task.clone()]).await;
    write(store, move |tx| dependencies::require(tx, &task)).await;
}

async fn open(store: &Store, number: u32) -> usize {
    read(store, move |tx| {
        dependencies::count_open(tx, &task_id(number), 100)
    })
    .await
}

async fn end(store: &Store, number: u32, success: bool) {
    change(store, number, move |task| {
        let task = task.schedule(at(1)).unwrap().task;
        let (group, worker) = ("g".parse().unwrap(), "w".parse().unwrap());
        let task = task.claim(0, &group, &worker, at(2), at(9)).unwrap().task;
        task.report(0, success, at(3)).unwrap().task
    })
    .await;
}

async fn to_release(store: &Store, number: u32, completed: bool) -> Vec<u32> {
    let found = read(store, move |tx| {
        dependencies::dependents_to_release(tx, &task_id(number), completed, 100)
    });
    let numbers = found.await;
    let numbers = numbers.iter().map(|id| id.as_str()[..8].parse().unwrap());
    numbers.collect()
}

on_both!(unknown_dependencies_are_left_out, |database| {
    let store = database.migrated().await;
    insert(&store, vec![task(1, "a/b"), task(3, "a/b")]).await;
    let expires = task(1, "a/b").definition.expires;
    let asking = waiting(9, Requires::AllCompleted, &[1, 2, 3, 4]);
    let known = read(&store, move |tx| dependencies::required(tx, &asking)).await;
    assert_eq!(known, [(task_id(1), expires), (task_id(3), expires)].into());
    let free = waiting(9, Requires::AllCompleted, &[]);
    assert!(
        read(&store, move |tx| dependencies::required(tx, &free))
            .await
            .is_empty()
    );
});

on_both!(
    dependencies_that_are_met_already_are_released_immediately,
    |database| {
        let store = database.migrated().await;
        insert(&store, (1..=3).map(|number| task(number, "a/b")).collect()).await;
        end(&store, 1, true).await;
        end(&store, 2, false).await;
        require(&store, waiting(8, Requires::AllCompleted, &[1, 2, 3])).await;
        require(&store, waiting(9, Requires::AllResolved, &[1, 2, 3])).await;
        assert_eq!(open(&store, 8).await, 2);
        assert_eq!(open(&store, 9).await, 1);
    }
);

on_both!(the_end_of_a_task_releases_its_dependents, |database| {
    let store = database.migrated().await;
    insert(&store, vec![task(1, "a/b")]).await;
    require(&store, waiting(8, Requires::AllCompleted, &[1])).await;
    require(&store, waiting(9, Requires::AllResolved, &[1])).await;
    assert_eq!(to_release(&store, 1, false).await, [9]);
    assert_eq!(to_release(&store, 1, true).await, [8, 9]);
    write(&store, |tx| {
        dependencies::release(tx, &task_id(1), &task_id(9))
    })
    .await;
    assert_eq!(to_release(&store, 1, true).await, [8]);
    assert_eq!((open(&store, 8).await, open(&store, 9).await), (1, 0));
    let dependents = read(&store, |tx| {
        dependencies::dependents(tx, &task_id(1), None, 9)
    })
    .await;
    let ids: Vec<_> = dependents
        .items
        .into_iter()
        .map(|task| task.id.clone())
        .collect();
    assert_eq!(ids, [task_id(8), task_id(9)]);
    let rest = read(&store, |tx| {
        dependencies::dependents(tx, &task_id(1), Some(&task_id(8)), 9)
    });
    assert_eq!(rest.await.items.len(), 1);
});

on_both!(requiring_twice_changes_nothing, |database| {
    let store = database.migrated().await;
    insert(&store, vec![task(1, "a/b")]).await;
    let asking = waiting(9, Requires::AllCompleted, &[1]);
    require(&store, asking.clone()).await;
    write(&store, |tx| {
        dependencies::release(tx, &task_id(1), &task_id(9))
    })
    .await;
    write(&store, move |tx| dependencies::require(tx, &asking)).await;
    assert_eq!(open(&store, 9).await, 0);
});

on_both!(a_task_can_depend_on_ten_thousand_others, |database| {
    let store = database.migrated().await;
    insert(
        &store,
        (0..10_000).map(|number| task(number, "a/b")).collect(),
    )
    .await;
    let all: Vec<u32> = (0..10_000).collect();
    let asking = waiting(20_000, Requires::AllResolved, &all);
    let same = asking.clone();
    let known = read(&store, move |tx| dependencies::required(tx, &same)).await;
    assert_eq!(known.len(), 10_000);
    require(&store, asking).await;
    let counted =
        |limit| move |tx: &mut Tx<'_>| dependencies::count_open(tx, &task_id(20_000), limit);
    assert_eq!(read(&store, counted(20_000)).await, 10_000);
    assert_eq!(read(&store, counted(7)).await, 7);
});

/// Runs the transaction `meanwhile` after `first` has read and before it writes. Returns the result
/// of `first` in each of its runs.
async fn raced(
    store: &Store,
    other: &Store,
    first: impl Fn(&mut Tx<'_>) -> Result<bool, StoreError> + Send + 'static,
    meanwhile: impl Fn(&mut Tx<'_>) -> Result<(), StoreError> + Clone + Send + 'static,
) -> Vec<bool> {
    let runtime = tokio::runtime::Handle::current();
    let (other, runs) = (other.clone(), std::sync::Mutex::new(Vec::new()));
    let runs = std::sync::Arc::new(runs);
    let seen = std::sync::Arc::clone(&runs);
    let written: Result<(), StoreError> = store
        .write("first", move |tx| {
            let is_first_run = seen.lock().unwrap().is_empty();
            // The first statement takes the snapshot.
            tasks::get(tx, &task_id(1))?;
            if is_first_run {
                let (other, meanwhile) = (other.clone(), meanwhile.clone());
                runtime.block_on(other.write("meanwhile", move |tx| meanwhile(tx)))?;
            }
            // Recorded before the write that may fail.
            seen.lock().unwrap().push(false);
            let what_was_seen = first(tx)?;
            if let Some(last) = seen.lock().unwrap().last_mut() {
                *last = what_was_seen;
            }
            Ok(())
        })
        .await;
    written.unwrap();
    let runs = runs.lock().unwrap();
    runs.clone()
}

fn cancel(tx: &mut Tx<'_>, number: u32) -> Result<(), StoreError> {
    let before = tasks::get(tx, &task_id(number))?.unwrap();
    let after = before.clone().cancel(at(5)).unwrap().task;
    tasks::update(tx, &before, &after).map(drop)
}

async fn releasable(store: &Store, rechecked: u32) -> Vec<(u32, u32)> {
    let found = read(store, move |tx| {
        dependencies::releasable_edges(tx, &[task_id(rechecked)], 9)
    })
    .await;
    let number = |id: &domain::id::TaskId| id.as_str()[..8].parse().unwrap();
    let edges = found.iter();
    edges
        .map(|edge| (number(&edge.required), number(&edge.waiting)))
        .collect()
}

/// PostgreSQL only: SQLite has one writer at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_edge_and_the_end_of_its_task_do_not_conflict_and_a_recheck_sees_both() {
    for edge_first in [true, false] {
        let Some(database) = crate::world::Database::postgres() else {
            return;
        };
        let (store, other) = (database.migrated().await, database.open());
        let asking = waiting(9, Requires::AllResolved, &[1]);
        insert(&store, vec![task(1, "a/b"), asking.clone()]).await;
        let add = move |tx: &mut Tx<'_>| {
            dependencies::require(tx, &asking)?;
            Ok(dependencies::count_open(tx, &task_id(9), 9)? == 0)
        };
        let end = |tx: &mut Tx<'_>| {
            cancel(tx, 1)?;
            Ok(!dependencies::dependents_to_release(tx, &task_id(1), false, 9)?.is_empty())
        };
        let runs = if edge_first {
            raced(&store, &other, end, move |tx| add(tx).map(drop)).await
        } else {
            raced(&store, &other, add, move |tx| end(tx).map(drop)).await
        };
        assert_eq!(
            runs,
            [false],
            "the transaction ran once and did not see the other"
        );
        assert_eq!(releasable(&store, 1).await, [(1, 9)]);
        assert_eq!(releasable(&store, 9).await, [(1, 9)]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_transactions_that_release_the_last_edges_one_sees_none_left() {
    let Some(database) = crate::world::Database::postgres() else {
        return;
    };
    let (store, other) = (database.migrated().await, database.open());
    insert(&store, vec![task(1, "a/b"), task(2, "a/b")]).await;
    require(&store, waiting(9, Requires::AllResolved, &[1, 2])).await;
    let release = |number: u32| {
        move |tx: &mut Tx<'_>| {
            dependencies::release(tx, &task_id(number), &task_id(9))?;
            let left = dependencies::count_open(tx, &task_id(9), 9)?;
            tasks::touch(tx, &task_id(9))?;
            Ok::<_, StoreError>(left == 0)
        }
    };
    let second = release(2);
    let runs = raced(&store, &other, release(1), move |tx| second(tx).map(drop)).await;
    assert_eq!(runs, [false, true]);
}

on_both!(only_edges_to_ended_tasks_are_releasable, |database| {
    let store = database.migrated().await;
    insert(&store, (1..=3).map(|number| task(number, "a/b")).collect()).await;
    require(&store, waiting(8, Requires::AllCompleted, &[1, 2])).await;
    require(&store, waiting(9, Requires::AllResolved, &[1, 2, 3])).await;
    for rechecked in [1, 2, 3, 8, 9] {
        assert_eq!(releasable(&store, rechecked).await, []);
    }
    // Written without the functions that would release them.
    end(&store, 1, true).await;
    end(&store, 2, false).await;
    assert_eq!(releasable(&store, 1).await, [(1, 8), (1, 9)]);
    assert_eq!(releasable(&store, 2).await, [(2, 9)]);
    assert_eq!(releasable(&store, 3).await, []);
    assert_eq!(releasable(&store, 8).await, [(1, 8)]);
    assert_eq!(releasable(&store, 9).await, [(1, 9), (2, 9)]);
    let release = |tx: &mut Tx<'_>| dependencies::release(tx, &task_id(1), &task_id(9));
    write(&store, release).await;
    assert_eq!(releasable(&store, 9).await, [(2, 9)]);
    let two = read(&store, |tx| {
        dependencies::releasable_edges(tx, &[task_id(1), task_id(2)], 1)
    })
    .await;
    assert_eq!(two.len(), 1);
});

on_both!(requested_rechecks_are_stored, |database| {
    let store = database.migrated().await;
    for (number, now) in [(2, 5), (1, 6), (3, 9)] {
        write(&store, move |tx| {
            dependencies::request_recheck(tx, &task_id(number), at(now))
        })
        .await;
    }
    let due = async |before| {
        read(&store, move |tx| {
            dependencies::rechecks_due(tx, at(before), 9)
        })
        .await
    };
    assert_eq!(due(4).await, []);
    assert_eq!(due(8).await, [task_id(2), task_id(1)]);
    write(&store, |tx| {
        dependencies::finish_rechecks(tx, &[task_id(2), task_id(7)])
    })
    .await;
    assert_eq!(due(9).await, [task_id(1), task_id(3)]);
    assert!(read(&store, |tx| dependencies::is_recheck_due(tx, &task_id(1))).await);
    assert!(!read(&store, |tx| dependencies::is_recheck_due(tx, &task_id(2))).await);
});

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recheck_requested_while_another_finishes_is_not_lost() {
    let Some(database) = crate::world::Database::postgres() else {
        return;
    };
    let (store, other) = (database.migrated().await, database.open());
    write(&store, |tx| {
        dependencies::request_recheck(tx, &task_id(1), at(1))
    })
    .await;
    let done = |tx: &mut Tx<'_>| dependencies::finish_rechecks(tx, &[task_id(1)]).map(|()| true);
    let note = |tx: &mut Tx<'_>| dependencies::request_recheck(tx, &task_id(1), at(2));
    let runs = raced(&store, &other, done, note).await;
    assert_eq!(
        runs,
        [true, true],
        "the transaction that finishes the first recheck runs again"
    );
}

on_both!(edges_are_deleted_with_the_waiting_task, |database| {
    let store = database.migrated().await;
    insert(&store, vec![pending(1, "a/b", 5)]).await;
    let cancelled = waiting(9, Requires::AllResolved, &[1]).cancel(at(6));
    require(&store, cancelled.unwrap().task).await;
    write(&store, |tx| tasks::delete_expired(tx, at(200_001), 9)).await;
    assert!(to_release(&store, 1, true).await.is_empty());
});
