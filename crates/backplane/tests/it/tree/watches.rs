//! Watches: of a node, of its children and of a subtree.

use backplane::tree::{Lifetime, Op, SubtreeWatch, TreeEvent};

use super::on_both;
use super::twin::{Twin, path, within};

on_both! {
    a_watch_of_a_node_sees_its_creation_change_and_deletion_once
    a_watch_of_children_sees_their_creation_and_deletion
    a_watch_ends_with_its_session
    a_watch_of_a_subtree_sees_everything_below_it_in_order
    a_watch_of_a_subtree_outlives_its_session
    a_dropped_watch_is_removed
}

async fn a_watch_of_a_node_sees_its_creation_change_and_deletion_once(twin: &Twin) {
    let (tree, other) = (twin.session().await.tree, twin.session().await.tree);
    let a = path("/a");
    let (stat, watch) = tree.watch_node(&a).await.unwrap();
    assert_eq!(stat, None);
    let created = other.create(&a, b"", Lifetime::Persistent).await.unwrap();
    assert_eq!(within(watch.changed()).await, TreeEvent::Created(a.clone()));
    let (stat, watch) = tree.watch_node(&a).await.unwrap();
    assert_eq!(stat, Some(created));
    // A child is no change of the node.
    other
        .create(&path("/a/b"), b"", Lifetime::Persistent)
        .await
        .unwrap();
    other.delete(&path("/a/b"), None).await.unwrap();
    other.set(&a, b"x", None).await.unwrap();
    assert_eq!(within(watch.changed()).await, TreeEvent::Changed(a.clone()));
    let (_, watch) = tree.watch_node(&a).await.unwrap();
    let (_, of_children) = tree.watch_children(&a).await.unwrap();
    other.delete(&a, None).await.unwrap();
    assert_eq!(within(watch.changed()).await, TreeEvent::Deleted(a.clone()));
    assert_eq!(within(of_children.changed()).await, TreeEvent::Deleted(a));
}

async fn a_watch_of_children_sees_their_creation_and_deletion(twin: &Twin) {
    let (tree, other) = (twin.session().await.tree, twin.session().await.tree);
    let (a, b) = (path("/a"), path("/a/b"));
    other.create(&a, b"", Lifetime::Persistent).await.unwrap();
    let (names, watch) = tree.watch_children(&a).await.unwrap();
    assert_eq!(names, [""; 0]);
    // Data is no child.
    other.set(&a, b"x", None).await.unwrap();
    other.create(&b, b"", Lifetime::Persistent).await.unwrap();
    assert_eq!(
        within(watch.changed()).await,
        TreeEvent::Children(a.clone())
    );
    let (names, watch) = tree.watch_children(&a).await.unwrap();
    assert_eq!(names, ["b"]);
    other.set(&b, b"x", None).await.unwrap();
    other.delete(&b, None).await.unwrap();
    assert_eq!(within(watch.changed()).await, TreeEvent::Children(a));
}

async fn a_watch_ends_with_its_session(twin: &Twin) {
    let session = twin.session().await;
    let (_, watch) = session.tree.watch_node(&path("/a")).await.unwrap();
    session.expire().await;
    assert_eq!(within(watch.changed()).await, TreeEvent::Resync);
}

async fn next(watch: &mut SubtreeWatch) -> TreeEvent {
    within(watch.next()).await.unwrap()
}

async fn a_watch_of_a_subtree_sees_everything_below_it_in_order(twin: &Twin) {
    let (tree, other) = (twin.session().await.tree, twin.session().await.tree);
    let mut watch = tree.watch_subtree(&path("/a")).await.unwrap();
    let mut second = tree.watch_subtree(&path("/a/b")).await.unwrap();
    for name in ["/a", "/ab", "/a/b", "/a/b/c"] {
        other
            .create(&path(name), b"", Lifetime::Persistent)
            .await
            .unwrap();
    }
    other
        .multi(&[
            Op::Set {
                path: path("/a/b"),
                data: b"x".to_vec(),
                expected: None,
            },
            Op::delete(path("/a/b/c")),
        ])
        .await
        .unwrap();
    let expected = [
        TreeEvent::Created(path("/a")),
        TreeEvent::Created(path("/a/b")),
        TreeEvent::Created(path("/a/b/c")),
        TreeEvent::Changed(path("/a/b")),
        TreeEvent::Deleted(path("/a/b/c")),
    ];
    for event in &expected {
        assert_eq!(next(&mut watch).await, *event);
    }
    for event in &expected[1..] {
        assert_eq!(next(&mut second).await, *event);
    }
}

async fn a_watch_of_a_subtree_outlives_its_session(twin: &Twin) {
    let (session, other) = (twin.session().await, twin.session().await.tree);
    let mut watch = session.tree.watch_subtree(&path("/a")).await.unwrap();
    session.expire().await;
    assert_eq!(next(&mut watch).await, TreeEvent::Resync);
    other
        .create(&path("/a"), b"", Lifetime::Persistent)
        .await
        .unwrap();
    // After a lost connection there may be a second note.
    let event = next(&mut watch).await;
    let event = if event == TreeEvent::Resync {
        next(&mut watch).await
    } else {
        event
    };
    assert_eq!(event, TreeEvent::Created(path("/a")));
    drop(session);
    assert_eq!(within(watch.next()).await, None);
}

async fn a_dropped_watch_is_removed(twin: &Twin) {
    let tree = twin.session().await.tree;
    for _ in 0..1_000 {
        let (_, watch) = tree.watch_node(&path("/a")).await.unwrap();
        drop(watch);
        drop(tree.watch_subtree(&path("/a")).await.unwrap());
    }
    let (_, watch) = tree.watch_node(&path("/a")).await.unwrap();
    tree.create(&path("/a"), b"", Lifetime::Persistent)
        .await
        .unwrap();
    assert_eq!(
        within(watch.changed()).await,
        TreeEvent::Created(path("/a"))
    );
}
