//! Faults of a real server: killed, stopped, and lost connections under a lock.

use std::sync::Arc;
use std::time::Duration;

use backplane::tree::{
    Lifetime, Lock, LockError, Op, SessionState, Tree, TreeError, TreePath, ZookeeperTree,
    create_with_lock, lock_path, walk,
};

use super::client_process::ClientProcess;
use super::twin::{Server, connect, path, within};

const LONG: Duration = Duration::from_secs(120);
/// Of calls that are to end at their limit: others are answered in less on a busy machine too.
const SHORT: Duration = Duration::from_secs(5);

async fn wait_for(tree: &Arc<dyn Tree>, wanted: impl Fn(SessionState) -> bool) -> SessionState {
    let mut state = tree.session();
    let found = within(state.wait_for(|state| wanted(*state)))
        .await
        .unwrap();
    *found
}

#[tokio::test]
async fn a_server_that_restarts_within_the_session_keeps_it_and_its_lock() {
    let Some(server) = Server::spawn().await else {
        return;
    };
    let mut settings = server.settings(&TreePath::root());
    settings.session = Duration::from_secs(30);
    let tree = connect(settings).await;
    let before = *tree.session().borrow();
    create_with_lock(&tree, &path("/a"), b"").await.unwrap();
    let lock = Lock::acquire(&tree, &path("/a"), "x", LONG).await.unwrap();
    let mut watch = tree.watch_subtree(&path("/a")).await.unwrap();
    let (_, node_watch) = tree.watch_node(&path("/a")).await.unwrap();
    server.kill().await;
    // The holder learns it at the loss of the connection, long before the session ends.
    within(lock.uncertain()).await;
    let stopped = lock.guard(std::future::pending::<()>()).await;
    assert!(matches!(stopped, Err(LockError::Suspended(_))));
    server.start().await;
    let after = wait_for(&tree, |state| state.connected().is_some()).await;
    assert_eq!(after, before);
    assert!(lock.is_certain());
    let write = Op::Set {
        path: path("/a"),
        data: b"x".to_vec(),
        expected: None,
    };
    lock.write(&[write]).await.unwrap();
    assert_eq!(
        within(node_watch.changed()).await,
        backplane::tree::TreeEvent::Changed(path("/a"))
    );
    assert_eq!(
        within(watch.next()).await,
        Some(backplane::tree::TreeEvent::Resync)
    );
    // The watch goes on in the new connection.
    tree.set(&path("/a"), b"y", None).await.unwrap();
    let changed = async {
        while watch.next().await != Some(backplane::tree::TreeEvent::Changed(path("/a"))) {}
    };
    within(changed).await;
    lock.release().await.unwrap();
}

#[tokio::test]
async fn a_server_that_stays_away_ends_the_session_and_a_new_one_follows() {
    let Some(server) = Server::spawn().await else {
        return;
    };
    let mut settings = server.settings(&TreePath::root());
    settings.call_limit = SHORT;
    let tree = connect(settings).await;
    let before = tree.session().borrow().connected().unwrap();
    create_with_lock(&tree, &path("/a"), b"").await.unwrap();
    let lock = Lock::acquire(&tree, &path("/a"), "x", LONG).await.unwrap();
    tree.create(&path("/ephemeral"), b"", Lifetime::Ephemeral)
        .await
        .unwrap();
    server.kill().await;
    // Calls end at their time limit, before and after the end of the session.
    let error = within(tree.get(&path("/a"))).await.unwrap_err();
    assert!(error.is_temporary(), "{error}");
    wait_for(&tree, |state| state == SessionState::Lost).await;
    let error = within(tree.get(&path("/a"))).await.unwrap_err();
    assert!(
        matches!(
            error,
            TreeError::Disconnected {
                limit_ms: 5_000,
                ..
            }
        ),
        "{error}"
    );
    server.start().await;
    let after = wait_for(&tree, |state| state.connected().is_some()).await;
    assert_ne!(after.connected(), Some(before));
    // The server waits for clients of the old session after its start, so this takes a moment.
    let (stat, watch) = tree.watch_node(&path("/ephemeral")).await.unwrap();
    if stat.is_some() {
        within(watch.changed()).await;
    }
    let late = lock.write(&[Op::delete(path("/a"))]).await.unwrap_err();
    assert!(matches!(late, LockError::Lost(_)), "{late}");
    let next = Lock::acquire(&tree, &path("/a"), "y", LONG).await.unwrap();
    assert!(next.number() > lock.number());
}

#[tokio::test]
async fn a_stopped_server_suspends_the_session_and_calls_end_at_their_limit() {
    let Some(server) = Server::spawn().await else {
        return;
    };
    let mut settings = server.settings(&TreePath::root());
    settings.call_limit = SHORT;
    let tree = connect(settings).await;
    create_with_lock(&tree, &path("/a"), b"").await.unwrap();
    let lock = Lock::acquire(&tree, &path("/a"), "x", LONG).await.unwrap();
    server.control(&["freeze", &server.name]).await;
    let error = within(tree.set(&path("/a"), b"late", None))
        .await
        .unwrap_err();
    // Whichever is noticed first: the end of the limit, or that nobody answers.
    let limit_ms = SHORT.as_millis();
    let expected = [TreeError::TimedOut { limit_ms }, TreeError::ConnectionLost];
    assert!(expected.contains(&error), "{error:?}");
    assert!(error.is_outcome_unknown() && error.is_temporary());
    within(lock.uncertain()).await;
    wait_for(&tree, |state| state == SessionState::Lost).await;
    server.control(&["thaw", &server.name]).await;
    wait_for(&tree, |state| state.connected().is_some()).await;
    let again = async {
        loop {
            match Lock::acquire(&tree, &path("/a"), "y", LONG).await {
                Ok(next) => return next,
                Err(LockError::Tree(error)) if error.is_temporary() => {}
                Err(LockError::Lost(_) | LockError::Suspended(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    assert!(within(again).await.number() > lock.number());
}

/// Kazoo's issue 732: the connection is lost while a contender is to be removed.
#[tokio::test]
async fn a_contender_is_removed_although_the_connection_was_lost_meanwhile() {
    let Some(server) = Server::spawn().await else {
        return;
    };
    let mut settings = server.settings(&TreePath::root());
    settings.session = Duration::from_secs(40);
    settings.call_limit = SHORT;
    let (holder, loser) = (
        connect(settings.clone()).await,
        connect(settings.clone()).await,
    );
    create_with_lock(&holder, &path("/a"), b"").await.unwrap();
    let lock = Lock::acquire(&holder, &path("/a"), "holder", LONG)
        .await
        .unwrap();
    let waiter = {
        let loser = Arc::clone(&loser);
        tokio::spawn(async move { Lock::acquire(&loser, &path("/a"), "loser", LONG).await })
    };
    let directory = lock_path(&path("/a")).unwrap();
    within(async {
        while holder.children(&directory).await.unwrap().len() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    server.kill().await;
    wait_for(&loser, |state| matches!(state, SessionState::Suspended(_))).await;
    // The attempt ends while the session is suspended.
    waiter.abort();
    let _ = waiter.await;
    let suspended = *loser.session().borrow();
    assert!(matches!(suspended, SessionState::Suspended(_)));
    server.start().await;
    wait_for(&holder, |state| state.connected().is_some()).await;
    settings.call_limit = LONG;
    let looker = connect(settings).await;
    within(async {
        loop {
            let (names, watch) = looker.watch_children(&directory).await.unwrap();
            if names.len() == 1 {
                return;
            }
            watch.changed().await;
        }
    })
    .await;
    assert_eq!(
        loser.session().borrow().connected(),
        match suspended {
            SessionState::Suspended(id) => Some(id),
            SessionState::Connected(_) | SessionState::Lost => None,
        }
    );
    lock.release().await.unwrap();
}

#[tokio::test]
async fn the_lock_of_a_killed_process_is_free_after_its_session() {
    let Some(server) = Server::main() else {
        return;
    };
    let root = path(&format!("/{}", crate::broker::unique("killed")));
    let tree = connect(server.settings(&root)).await;
    create_with_lock(&tree, &path("/a"), b"").await.unwrap();
    let mut client = ClientProcess::start(&root).await;
    assert!(
        Lock::try_acquire(&tree, &path("/a"), "x")
            .await
            .unwrap()
            .is_none()
    );
    client.kill();
    let lock = Lock::acquire(&tree, &path("/a"), "x", LONG).await.unwrap();
    lock.release().await.unwrap();
}

#[tokio::test]
async fn ten_thousand_nodes_are_created_read_and_deleted() {
    let Some(server) = Server::main() else {
        return;
    };
    let root = path(&format!("/{}", crate::broker::unique("many")));
    let mut settings = server.settings(&root);
    // It is about amounts: a busy disk may take longer than a short session.
    settings.session = Duration::from_secs(40);
    settings.call_limit = LONG;
    let tree = connect(settings).await;
    let top = path("/top");
    tree.create(&top, b"", Lifetime::Persistent).await.unwrap();
    for _ in 0..20 {
        let creations = (0..500)
            .map(|_| tree.create_sequential(&top, "n", b"0123456789", Lifetime::Persistent));
        let created = futures_util::future::join_all(creations).await;
        assert!(created.iter().all(Result::is_ok));
    }
    let nodes = walk(&tree, &top, 10_001).await.unwrap();
    assert_eq!(nodes.len(), 10_001);
    assert_eq!(
        backplane::tree::delete_subtree(&tree, &top).await,
        Ok(10_001)
    );
}

/// Without a server, the handle opens, and connects once there is one.
#[tokio::test]
async fn a_tree_opened_before_its_server_connects_later() {
    let Some(server) = Server::spawn().await else {
        return;
    };
    server.kill().await;
    let mut settings = server.settings(&TreePath::root());
    settings.call_limit = LONG;
    let tree = ZookeeperTree::open(settings).unwrap();
    let call = tree
        .create(&TreePath::root(), b"", Lifetime::Persistent)
        .await;
    assert_eq!(call, Err(TreeError::Root("created")));
    let node = path("/a");
    let call = tree.create(&node, b"", Lifetime::Persistent);
    let (created, ()) = tokio::join!(within(call), server.start());
    assert_eq!(created.unwrap().version, 0);
}
