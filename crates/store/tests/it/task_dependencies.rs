//! Who waits for whom, and is released when.

use domain::task::{Requires, Task};
use store::{
    Store, StoreError, Tx, task_delete_expired, task_dependency_release, task_dependents,
    task_dependents_to_release, task_get, task_open_dependencies, task_release_done,
    task_release_later, task_releases, task_require, task_touch, task_unknown_dependencies,
    task_update,
};

use crate::samples::at;
use crate::tasks::{change, document, insert, pending, task, task_id};
use crate::world::{on_both, read, write};

fn waiting(number: u32, requires: Requires, dependencies: &[u32]) -> Task {
    let id = task_id(number);
    let mut document = document("a/b");
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
    write(store, move |tx| task_require(tx, &task)).await;
}

async fn open(store: &Store, number: u32) -> usize {
    read(store, move |tx| {
        task_open_dependencies(tx, &task_id(number), 100)
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
        task_dependents_to_release(tx, &task_id(number), completed, 100)
    });
    let numbers = found.await;
    let numbers = numbers.iter().map(|id| id.as_str()[..8].parse().unwrap());
    numbers.collect()
}

on_both!(what_is_unknown_is_named, |database| {
    let store = database.migrated().await;
    insert(&store, vec![task(1, "a/b"), task(3, "a/b")]).await;
    let asking = waiting(9, Requires::AllCompleted, &[1, 2, 3, 4]);
    let unknown = read(&store, move |tx| task_unknown_dependencies(tx, &asking)).await;
    assert_eq!(unknown, [task_id(2), task_id(4)]);
    let free = waiting(9, Requires::AllCompleted, &[]);
    assert!(
        read(&store, move |tx| task_unknown_dependencies(tx, &free))
            .await
            .is_empty()
    );
});

on_both!(what_has_happened_already_is_released_at_once, |database| {
    let store = database.migrated().await;
    insert(&store, (1..=3).map(|number| task(number, "a/b")).collect()).await;
    end(&store, 1, true).await;
    end(&store, 2, false).await;
    require(&store, waiting(8, Requires::AllCompleted, &[1, 2, 3])).await;
    require(&store, waiting(9, Requires::AllResolved, &[1, 2, 3])).await;
    assert_eq!(open(&store, 8).await, 2);
    assert_eq!(open(&store, 9).await, 1);
});

on_both!(an_end_releases_those_that_waited_for_it, |database| {
    let store = database.migrated().await;
    insert(&store, vec![task(1, "a/b")]).await;
    require(&store, waiting(8, Requires::AllCompleted, &[1])).await;
    require(&store, waiting(9, Requires::AllResolved, &[1])).await;
    assert_eq!(to_release(&store, 1, false).await, [9]);
    assert_eq!(to_release(&store, 1, true).await, [8, 9]);
    write(&store, |tx| {
        task_dependency_release(tx, &task_id(1), &task_id(9))
    })
    .await;
    assert_eq!(to_release(&store, 1, true).await, [8]);
    assert_eq!((open(&store, 8).await, open(&store, 9).await), (1, 0));
    let dependents = read(&store, |tx| task_dependents(tx, &task_id(1), None, 9)).await;
    let ids: Vec<_> = dependents.items.into_iter().map(|task| task.id).collect();
    assert_eq!(ids, [task_id(8), task_id(9)]);
    let rest = read(&store, |tx| {
        task_dependents(tx, &task_id(1), Some(&task_id(8)), 9)
    });
    assert_eq!(rest.await.items.len(), 1);
});

on_both!(requiring_twice_changes_nothing, |database| {
    let store = database.migrated().await;
    insert(&store, vec![task(1, "a/b")]).await;
    let asking = waiting(9, Requires::AllCompleted, &[1]);
    require(&store, asking.clone()).await;
    write(&store, |tx| {
        task_dependency_release(tx, &task_id(1), &task_id(9))
    })
    .await;
    write(&store, move |tx| task_require(tx, &asking)).await;
    assert_eq!(open(&store, 9).await, 0);
});

on_both!(a_task_may_wait_for_ten_thousand, |database| {
    let store = database.migrated().await;
    insert(
        &store,
        (0..10_000).map(|number| task(number, "a/b")).collect(),
    )
    .await;
    let all: Vec<u32> = (0..10_000).collect();
    let asking = waiting(20_000, Requires::AllResolved, &all);
    let same = asking.clone();
    let unknown = read(&store, move |tx| task_unknown_dependencies(tx, &same)).await;
    assert!(unknown.is_empty());
    require(&store, asking).await;
    let counted =
        |limit| move |tx: &mut Tx<'_>| task_open_dependencies(tx, &task_id(20_000), limit);
    assert_eq!(read(&store, counted(20_000)).await, 10_000);
    assert_eq!(read(&store, counted(7)).await, 7);
});

/// One transaction reads, another does what it would have seen, and both write: one runs again.
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
            // The snapshot is taken with the first statement.
            task_get(tx, &task_id(1))?;
            if is_first_run {
                let (other, meanwhile) = (other.clone(), meanwhile.clone());
                runtime.block_on(other.write("meanwhile", move |tx| meanwhile(tx)))?;
            }
            // Remembered before the write that may fail.
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

/// SQLite has one writer at a time, so only PostgreSQL can show this.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_adds_an_edge_sees_the_end_of_what_it_requires() {
    let Some(database) = crate::world::Database::postgres() else {
        return;
    };
    let (store, other) = (database.migrated().await, database.open());
    insert(
        &store,
        vec![task(1, "a/b"), waiting(9, Requires::AllResolved, &[1])],
    )
    .await;
    let add = |tx: &mut Tx<'_>| {
        let task = task_get(tx, &task_id(9))?.unwrap();
        task_require(tx, &task)?;
        Ok(task_open_dependencies(tx, &task_id(9), 9)? == 0)
    };
    let end = |tx: &mut Tx<'_>| {
        let before = task_get(tx, &task_id(1))?.unwrap();
        let after = before.clone().cancel(at(5)).unwrap().task;
        task_update(tx, &before, &after).map(drop)
    };
    let runs = raced(&store, &other, add, end).await;
    assert_eq!(runs, [false, true]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_that_release_the_last_edges_one_sees_that_none_is_left() {
    let Some(database) = crate::world::Database::postgres() else {
        return;
    };
    let (store, other) = (database.migrated().await, database.open());
    insert(&store, vec![task(1, "a/b"), task(2, "a/b")]).await;
    require(&store, waiting(9, Requires::AllResolved, &[1, 2])).await;
    let release = |number: u32| {
        move |tx: &mut Tx<'_>| {
            task_dependency_release(tx, &task_id(number), &task_id(9))?;
            let left = task_open_dependencies(tx, &task_id(9), 9)?;
            task_touch(tx, &task_id(9))?;
            Ok::<_, StoreError>(left == 0)
        }
    };
    let second = release(2);
    let runs = raced(&store, &other, release(1), move |tx| second(tx).map(drop)).await;
    assert_eq!(runs, [false, true]);
}

on_both!(what_is_left_to_release_is_remembered, |database| {
    let store = database.migrated().await;
    for (number, now) in [(2, 5), (1, 6), (2, 7)] {
        write(&store, move |tx| {
            task_release_later(tx, &task_id(number), at(now))
        })
        .await;
    }
    let left = read(&store, |tx| task_releases(tx, 9)).await;
    assert_eq!(left, [task_id(2), task_id(1)]);
    write(&store, |tx| task_release_done(tx, &task_id(2))).await;
    assert_eq!(read(&store, |tx| task_releases(tx, 9)).await, [task_id(1)]);
});

on_both!(edges_go_with_the_task_that_waits, |database| {
    let store = database.migrated().await;
    insert(&store, vec![pending(1, "a/b", 5)]).await;
    let cancelled = waiting(9, Requires::AllResolved, &[1]).cancel(at(6));
    require(&store, cancelled.unwrap().task).await;
    write(&store, |tx| task_delete_expired(tx, at(200_001), 9)).await;
    assert!(to_release(&store, 1, true).await.is_empty());
});
