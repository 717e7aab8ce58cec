//! Locks: one holder at a time, with growing numbers, and nothing left behind.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use backplane::tree::{
    Lifetime, Lock, LockError, LockHolder, Op, Tree, TreeError, TreePath, create_with_lock,
    delete_with_lock, is_locked, lock_holder, lock_path,
};

use super::counting::Counting;
use super::on_both;
use super::twin::{Twin, path, within};

on_both! {
    a_lock_has_one_holder_and_is_released
    a_missing_node_cannot_be_locked_and_is_not_created
    the_numbers_of_holders_grow_also_after_the_node_was_made_again
    a_waiter_gets_the_lock_when_its_holder_releases_or_drops_it
    a_waiter_that_gives_up_leaves_nothing_behind
    a_lost_attempt_leaves_nothing_behind
    a_holder_whose_session_ends_is_stopped_and_cannot_write
    a_waiter_whose_session_ends_gets_an_error
    an_operation_that_fails_under_a_lock_keeps_its_index
    a_node_is_deleted_with_its_lock_and_waiters_learn_it
    each_release_wakes_one_waiter
}

const LONG: Duration = Duration::from_secs(120);

async fn lockable(tree: &Arc<dyn Tree>) -> TreePath {
    let node = path("/build");
    create_with_lock(tree, &node, b"data").await.unwrap();
    node
}

/// Waits until the lock has this many contenders.
async fn contenders(tree: &Arc<dyn Tree>, node: &TreePath, n_expected: usize) {
    let directory = lock_path(node).unwrap();
    within(async {
        loop {
            let (names, watch) = tree.watch_children(&directory).await.unwrap();
            if names.len() == n_expected {
                return;
            }
            watch.changed().await;
        }
    })
    .await;
}

async fn a_lock_has_one_holder_and_is_released(twin: &Twin) {
    let (a, b) = (twin.session().await.tree, twin.session().await.tree);
    let node = lockable(&a).await;
    assert!(!is_locked(&b, &node).await.unwrap());
    assert_eq!(lock_holder(&b, &node).await.unwrap(), None);
    let lock = Lock::try_acquire(&a, &node, "first")
        .await
        .unwrap()
        .unwrap();
    assert!(lock.is_certain());
    assert!(
        Lock::try_acquire(&b, &node, "second")
            .await
            .unwrap()
            .is_none()
    );
    assert!(
        Lock::try_acquire(&a, &node, "same session")
            .await
            .unwrap()
            .is_none()
    );
    let busy = Lock::acquire(&b, &node, "second", Duration::from_millis(100)).await;
    assert_eq!(
        busy.unwrap_err().to_string(),
        "another process still holds the lock of /build after 100 ms"
    );
    assert!(is_locked(&b, &node).await.unwrap());
    contenders(&b, &node, 1).await;
    let holder = LockHolder {
        holder: "first".to_owned(),
        number: lock.number(),
        n_waiting: 0,
    };
    assert_eq!(lock_holder(&b, &node).await.unwrap(), Some(holder));
    lock.release().await.unwrap();
    let lock = Lock::try_acquire(&b, &node, "second")
        .await
        .unwrap()
        .unwrap();
    drop(lock);
    contenders(&a, &node, 0).await;
}

async fn a_missing_node_cannot_be_locked_and_is_not_created(twin: &Twin) {
    let tree = twin.session().await.tree;
    let node = path("/build");
    let error = Lock::try_acquire(&tree, &node, "x").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "node /build does not exist, or cannot be locked"
    );
    let error = Lock::acquire(&tree, &node, "x", LONG).await.unwrap_err();
    assert!(matches!(error, LockError::NoNode(_)));
    assert!(!is_locked(&tree, &node).await.unwrap());
    assert_eq!(lock_holder(&tree, &node).await.unwrap(), None);
    // Nor is the directory of a node without one.
    tree.create(&node, b"", Lifetime::Persistent).await.unwrap();
    let error = Lock::try_acquire(&tree, &node, "x").await.unwrap_err();
    assert!(matches!(error, LockError::NoNode(_)));
    assert_eq!(tree.children(&node).await.unwrap(), [""; 0]);
}

async fn the_numbers_of_holders_grow_also_after_the_node_was_made_again(twin: &Twin) {
    let (a, b) = (twin.session().await.tree, twin.session().await.tree);
    let mut numbers = Vec::new();
    for _ in 0..3 {
        let node = lockable(&a).await;
        for tree in [&a, &b, &a] {
            let lock = Lock::acquire(tree, &node, "x", LONG).await.unwrap();
            numbers.push(lock.number());
            lock.release().await.unwrap();
        }
        delete_with_lock(&a, &node, &[]).await.unwrap();
    }
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
}

async fn a_waiter_gets_the_lock_when_its_holder_releases_or_drops_it(twin: &Twin) {
    let (a, b) = (twin.session().await.tree, twin.session().await.tree);
    let node = lockable(&a).await;
    for is_dropped in [false, true] {
        let lock = Lock::acquire(&a, &node, "a", LONG).await.unwrap();
        let (tree, waited_for) = (Arc::clone(&b), node.clone());
        let waiter =
            tokio::spawn(async move { Lock::acquire(&tree, &waited_for, "b", LONG).await });
        contenders(&a, &node, 2).await;
        let number = lock.number();
        if is_dropped {
            drop(lock);
        } else {
            lock.release().await.unwrap();
        }
        let next = within(waiter).await.unwrap().unwrap();
        assert!(next.number() > number);
        next.release().await.unwrap();
    }
}

async fn a_waiter_that_gives_up_leaves_nothing_behind(twin: &Twin) {
    let (a, b) = (twin.session().await.tree, twin.session().await.tree);
    let node = lockable(&a).await;
    let lock = Lock::acquire(&a, &node, "a", LONG).await.unwrap();
    for _ in 0..3 {
        let waiter = Lock::acquire(&b, &node, "b", LONG);
        tokio::select! {
            _ = waiter => panic!("the lock is held"),
            () = contenders(&a, &node, 2) => {}
        }
        contenders(&a, &node, 1).await;
    }
    lock.release().await.unwrap();
    contenders(&a, &node, 0).await;
}

async fn a_lost_attempt_leaves_nothing_behind(twin: &Twin) {
    let (a, b) = (twin.session().await.tree, twin.session().await.tree);
    let node = lockable(&a).await;
    // All look before the first one holds the lock, so most of them create a contender and lose.
    let attempts = (0..20).map(|number| {
        let tree = if number % 2 == 0 { &a } else { &b };
        Lock::try_acquire(tree, &node, "x")
    });
    let attempts = futures_util::future::join_all(attempts).await;
    let locks: Vec<Lock> = attempts.into_iter().filter_map(Result::unwrap).collect();
    assert_eq!(locks.len(), 1);
    contenders(&a, &node, 1).await;
    drop(locks);
    contenders(&a, &node, 0).await;
}

async fn a_holder_whose_session_ends_is_stopped_and_cannot_write(twin: &Twin) {
    let (session, other) = (twin.session().await, twin.session().await.tree);
    let node = lockable(&other).await;
    let write = [Op::Set {
        path: node.clone(),
        data: b"late".to_vec(),
        expected: None,
    }];
    let lock = Lock::acquire(&session.tree, &node, "a", LONG)
        .await
        .unwrap();
    lock.write(&write).await.unwrap();
    assert_eq!(lock.guard(async { 7 }).await.unwrap(), 7);
    let work = lock.guard(std::future::pending::<()>());
    let (stopped, _) = tokio::join!(within(work), session.expire());
    assert!(matches!(
        stopped,
        Err(LockError::Suspended(_) | LockError::Lost(_))
    ));
    assert!(!lock.is_certain());
    within(lock.uncertain()).await;
    // A late write: the next holder has the lock already.
    let next = within(Lock::acquire(&other, &node, "b", LONG))
        .await
        .unwrap();
    assert!(next.number() > lock.number());
    let of_next = [Op::Set {
        path: node.clone(),
        data: b"next".to_vec(),
        expected: None,
    }];
    next.write(&of_next).await.unwrap();
    let late = lock.write(&write).await.unwrap_err();
    assert!(matches!(late, LockError::Lost(_)), "{late}");
    assert_eq!(other.get(&node).await.unwrap().data, b"next");
    lock.release().await.unwrap();
    assert!(is_locked(&other, &node).await.unwrap());
}

async fn a_waiter_whose_session_ends_gets_an_error(twin: &Twin) {
    let (session, other) = (twin.session().await, twin.session().await.tree);
    let node = lockable(&other).await;
    let lock = Lock::acquire(&other, &node, "a", LONG).await.unwrap();
    let waiter = Lock::acquire(&session.tree, &node, "b", LONG);
    let end = async {
        contenders(&other, &node, 2).await;
        session.expire().await;
    };
    let (waited, ()) = tokio::join!(within(waiter), end);
    assert!(matches!(waited.unwrap_err(), LockError::Lost(_)));
    contenders(&other, &node, 1).await;
    lock.release().await.unwrap();
}

async fn an_operation_that_fails_under_a_lock_keeps_its_index(twin: &Twin) {
    let tree = twin.session().await.tree;
    let node = lockable(&tree).await;
    let lock = Lock::acquire(&tree, &node, "a", LONG).await.unwrap();
    let ops = [Op::create(path("/x"), ""), Op::delete(path("/missing"))];
    let LockError::Tree(error) = lock.write(&ops).await.unwrap_err() else {
        panic!("another error");
    };
    let source = Box::new(TreeError::NoNode(path("/missing")));
    assert_eq!(error, TreeError::Operation { index: 1, source });
    assert_eq!(tree.exists(&path("/x")).await, Ok(None));
}

async fn a_node_is_deleted_with_its_lock_and_waiters_learn_it(twin: &Twin) {
    let (a, b) = (twin.session().await.tree, twin.session().await.tree);
    let node = lockable(&a).await;
    let lock = Lock::acquire(&a, &node, "a", LONG).await.unwrap();
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let (tree, node) = (Arc::clone(&b), node.clone());
            tokio::spawn(async move { Lock::acquire(&tree, &node, "b", LONG).await })
        })
        .collect();
    contenders(&a, &node, 4).await;
    // Another child keeps the node, and nothing of it is deleted.
    a.create(&node.join("other").unwrap(), b"", Lifetime::Persistent)
        .await
        .unwrap();
    let error = delete_with_lock(&a, &node, &[]).await.unwrap_err();
    assert_eq!(error, TreeError::NotEmpty(node.clone()));
    contenders(&a, &node, 4).await;
    let first = [lock.check(), Op::delete(node.join("other").unwrap())];
    delete_with_lock(&a, &node, &first).await.unwrap();
    for waiter in waiters {
        let error = within(waiter).await.unwrap().unwrap_err();
        assert!(matches!(error, LockError::NoNode(_)), "{error}");
    }
    lock.release().await.unwrap();
    let again = delete_with_lock(&a, &node, &[]).await;
    assert_eq!(again, Err(TreeError::NoNode(node)));
}

async fn each_release_wakes_one_waiter(twin: &Twin) {
    let tree = twin.session().await.tree;
    let node = lockable(&tree).await;
    for n_waiters in [0_usize, 1, 65, 650] {
        let counting = Counting::of(Arc::clone(&tree));
        let counted: Arc<dyn Tree> = Arc::clone(&counting) as Arc<dyn Tree>;
        let first = Lock::acquire(&counted, &node, "first", LONG).await.unwrap();
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        for _ in 0..n_waiters {
            let (tree, node, sender) = (Arc::clone(&counted), node.clone(), sender.clone());
            tokio::spawn(async move {
                let lock = Lock::acquire(&tree, &node, "waiter", LONG).await.unwrap();
                sender.send(lock).unwrap();
            });
        }
        contenders(&tree, &node, n_waiters + 1).await;
        // All wait for their predecessors: each has created, listed and watched.
        within(async {
            while counting.n_calls.load(Ordering::SeqCst) < 3 * n_waiters + 2
                || counting.n_watches.load(Ordering::SeqCst) < n_waiters
            {
                tokio::task::yield_now().await;
            }
        })
        .await;
        counting.take_calls();
        let before = counting.n_wakeups.swap(0, Ordering::SeqCst);
        assert_eq!(before, 0);
        let mut held = first;
        for n_released in 1..=n_waiters {
            let number = held.number();
            held.release().await.unwrap();
            held = within(receiver.recv()).await.unwrap();
            assert!(held.number() > number);
            assert_eq!(counting.n_wakeups.load(Ordering::SeqCst), n_released);
        }
        held.release().await.unwrap();
        // A hand-over deletes a node, and lists the contenders once.
        assert_eq!(counting.take_calls(), 2 * n_waiters + 1);
    }
}
