//! Nodes: created, read, changed and deleted, alone and in transactions.

use std::collections::BTreeSet;

use backplane::tree::{
    Lifetime, MAX_DATA_BYTES, MAX_OPS, Op, OpResult, TreeError, TreePath, create_parents,
    delete_subtree, walk,
};

use super::on_both;
use super::twin::{Twin, path, within};

on_both! {
    a_node_is_created_read_changed_and_deleted
    calls_about_missing_and_existing_nodes_say_what_is_wrong
    sequential_names_count_all_children_that_were_ever_created
    an_ephemeral_node_ends_with_its_session_and_has_no_children
    a_transaction_takes_effect_completely_or_not_at_all
    a_transaction_sees_its_own_changes
    data_of_the_maximum_size_is_kept_and_larger_data_is_refused
    a_transaction_has_a_maximum_number_of_operations
    a_subtree_is_read_and_deleted_at_any_size
    a_walk_has_a_maximum_number_of_nodes
    missing_parents_are_created
}

async fn a_node_is_created_read_changed_and_deleted(twin: &Twin) {
    let tree = twin.session().await.tree;
    let created = tree
        .create(&path("/a"), b"one", Lifetime::Persistent)
        .await
        .unwrap();
    assert_eq!(
        (created.version, created.n_children, created.size_bytes),
        (0, 0, 3)
    );
    assert_eq!((created.next_sequence, created.owner), (0, None));
    assert_eq!(created.created, created.changed);
    let stat = tree.set(&path("/a"), b"other", Some(0)).await.unwrap();
    assert_eq!((stat.version, stat.size_bytes), (1, 5));
    assert_eq!(stat.created_by, created.created_by);
    let node = tree.get(&path("/a")).await.unwrap();
    assert_eq!(
        (node.data.as_slice(), node.stat),
        (b"other".as_slice(), stat)
    );
    assert_eq!(tree.exists(&path("/a")).await, Ok(Some(stat)));
    let second = tree
        .create(&path("/a/b"), b"", Lifetime::Persistent)
        .await
        .unwrap();
    assert!(second.created_by > created.created_by);
    tree.create(&path("/a/ä"), b"", Lifetime::Persistent)
        .await
        .unwrap();
    assert_eq!(tree.children(&path("/a")).await.unwrap(), ["b", "ä"]);
    assert_eq!(tree.children(&TreePath::root()).await.unwrap(), ["a"]);
    let stat = tree.exists(&path("/a")).await.unwrap().unwrap();
    assert_eq!(
        (stat.n_children, stat.next_sequence, stat.version),
        (2, 2, 1)
    );
    tree.delete(&path("/a/b"), Some(0)).await.unwrap();
    tree.delete(&path("/a/ä"), None).await.unwrap();
    let stat = tree.exists(&path("/a")).await.unwrap().unwrap();
    assert_eq!((stat.n_children, stat.next_sequence), (0, 2));
    tree.delete(&path("/a"), Some(1)).await.unwrap();
    assert_eq!(tree.exists(&path("/a")).await, Ok(None));
}

async fn calls_about_missing_and_existing_nodes_say_what_is_wrong(twin: &Twin) {
    let tree = twin.session().await.tree;
    let (a, b) = (path("/a"), path("/a/b"));
    let missing = || TreeError::NoNode(path("/a"));
    assert_eq!(tree.get(&a).await, Err(missing()));
    assert_eq!(tree.set(&a, b"", None).await, Err(missing()));
    assert_eq!(tree.delete(&a, None).await, Err(missing()));
    assert_eq!(tree.children(&a).await, Err(missing()));
    assert!(
        tree.watch_children(&a)
            .await
            .is_err_and(|error| error == missing())
    );
    let orphan = tree.create(&b, b"", Lifetime::Persistent).await;
    assert_eq!(orphan, Err(missing()));
    let orphan = tree
        .create_sequential(&a, "x", b"", Lifetime::Persistent)
        .await;
    assert_eq!(orphan, Err(missing()));
    tree.create(&a, b"", Lifetime::Persistent).await.unwrap();
    tree.create(&b, b"", Lifetime::Persistent).await.unwrap();
    let again = tree.create(&a, b"", Lifetime::Persistent).await;
    assert_eq!(again, Err(TreeError::NodeExists(a.clone())));
    let wrong = TreeError::BadVersion(a.clone());
    assert_eq!(tree.set(&a, b"", Some(7)).await, Err(wrong.clone()));
    assert_eq!(
        tree.delete(&b, Some(7)).await,
        Err(TreeError::BadVersion(b.clone()))
    );
    assert_eq!(
        tree.delete(&a, None).await,
        Err(TreeError::NotEmpty(a.clone()))
    );
    let root = TreePath::root();
    assert_eq!(
        tree.delete(&root, None).await,
        Err(TreeError::Root("deleted"))
    );
    let created = tree.create(&root, b"", Lifetime::Persistent).await;
    assert_eq!(created, Err(TreeError::Root("created")));
    let bad = tree
        .create_sequential(&a, "x/y", b"", Lifetime::Persistent)
        .await;
    assert!(matches!(bad, Err(TreeError::BadPath(_))));
}

async fn sequential_names_count_all_children_that_were_ever_created(twin: &Twin) {
    let tree = twin.session().await.tree;
    tree.create(&path("/a"), b"", Lifetime::Persistent)
        .await
        .unwrap();
    tree.create(&path("/a/lock"), b"", Lifetime::Persistent)
        .await
        .unwrap();
    let mut names = Vec::new();
    let parent = path("/a");
    for prefix in ["", "node-", ""] {
        let created = tree.create_sequential(&parent, prefix, b"x", Lifetime::Persistent);
        let (created, stat) = created.await.unwrap();
        assert_eq!(tree.exists(&created).await, Ok(Some(stat)));
        tree.delete(&created, None).await.unwrap();
        names.push(created.name().to_owned());
    }
    assert_eq!(names, ["0000000001", "node-0000000002", "0000000003"]);
    let root = TreePath::root();
    let at_root = tree.create_sequential(&root, "n", b"", Lifetime::Ephemeral);
    assert_eq!(at_root.await.unwrap().0, path("/n0000000001"));
    // The client library cannot send this.
    let unnamed = tree.create_sequential(&root, "", b"", Lifetime::Ephemeral);
    assert!(matches!(unnamed.await, Err(TreeError::Root(_))));
}

async fn an_ephemeral_node_ends_with_its_session_and_has_no_children(twin: &Twin) {
    let (first, second) = (twin.session().await, twin.session().await);
    let watching = twin.session().await.tree;
    let (a, b) = (path("/a"), path("/b"));
    let stat = first
        .tree
        .create(&a, b"", Lifetime::Ephemeral)
        .await
        .unwrap();
    let session = first.tree.session().borrow().connected().unwrap();
    assert_eq!(stat.owner, Some(session.0));
    second
        .tree
        .create(&b, b"", Lifetime::Ephemeral)
        .await
        .unwrap();
    let child = first
        .tree
        .create(&path("/a/c"), b"", Lifetime::Persistent)
        .await;
    assert_eq!(child, Err(TreeError::EphemeralParent(path("/a/c"))));
    // Sessions end when they expire, and when they are closed.
    let (_, a_ended) = watching.watch_node(&a).await.unwrap();
    first.expire().await;
    within(a_ended.changed()).await;
    assert_eq!(watching.exists(&a).await, Ok(None));
    let (_, b_ended) = watching.watch_node(&b).await.unwrap();
    drop(second);
    within(b_ended.changed()).await;
    assert_eq!(watching.exists(&b).await, Ok(None));
    first
        .tree
        .create(&a, b"", Lifetime::Ephemeral)
        .await
        .unwrap();
}

async fn a_transaction_takes_effect_completely_or_not_at_all(twin: &Twin) {
    let tree = twin.session().await.tree;
    let (a, b) = (path("/a"), path("/b"));
    tree.create(&a, b"old", Lifetime::Persistent).await.unwrap();
    let before = tree.get(&a).await.unwrap();
    let failing = [
        Op::Set {
            path: a.clone(),
            data: b"new".to_vec(),
            expected: Some(0),
        },
        Op::create(b.clone(), "b"),
        Op::create(path("/a/c"), "c"),
        Op::Check {
            path: a.clone(),
            expected: Some(0),
        },
        Op::delete(path("/b")),
    ];
    let error = tree.multi(&failing).await.unwrap_err();
    let source = Box::new(TreeError::BadVersion(a.clone()));
    assert_eq!(error, TreeError::Operation { index: 3, source });
    assert_eq!(tree.get(&a).await, Ok(before));
    assert_eq!(tree.exists(&b).await, Ok(None));
    let sequential = Op::CreateSequential {
        parent: a.clone(),
        prefix: "n-".to_owned(),
        data: Vec::new(),
        lifetime: Lifetime::Ephemeral,
    };
    let results = tree
        .multi(&[
            Op::Check {
                path: a.clone(),
                expected: Some(0),
            },
            Op::Set {
                path: a.clone(),
                data: b"new".to_vec(),
                expected: None,
            },
            sequential,
            Op::create(b.clone(), ""),
            Op::delete(b.clone()),
        ])
        .await
        .unwrap();
    assert_eq!(results[0], OpResult::Checked);
    assert!(matches!(&results[1], OpResult::Set(stat) if stat.version == 1));
    assert_eq!(results[2], OpResult::Created(path("/a/n-0000000000")));
    assert_eq!(results[4], OpResult::Deleted);
    assert_eq!(tree.get(&a).await.unwrap().data, b"new");
    assert_eq!(tree.multi(&[]).await, Ok(Vec::new()));
}

async fn a_transaction_sees_its_own_changes(twin: &Twin) {
    let tree = twin.session().await.tree;
    let ops = [
        Op::create(path("/a"), ""),
        Op::create(path("/a/b"), ""),
        Op::Set {
            path: path("/a/b"),
            data: b"x".to_vec(),
            expected: Some(0),
        },
        Op::Check {
            path: path("/a/b"),
            expected: Some(1),
        },
        Op::delete(path("/a/b")),
        Op::delete(path("/a")),
    ];
    tree.multi(&ops).await.unwrap();
    assert_eq!(tree.children(&TreePath::root()).await.unwrap(), [""; 0]);
}

async fn data_of_the_maximum_size_is_kept_and_larger_data_is_refused(twin: &Twin) {
    let tree = twin.session().await.tree;
    let node = path("/a");
    tree.create(&node, b"", Lifetime::Persistent).await.unwrap();
    for size_bytes in [
        0,
        1,
        MAX_DATA_BYTES - 1,
        MAX_DATA_BYTES,
        MAX_DATA_BYTES + 1,
        10 * MAX_DATA_BYTES,
    ] {
        let data = vec![7; size_bytes];
        let too_large = TreeError::TooLarge {
            path: node.clone(),
            size_bytes,
        };
        let set = tree.set(&node, &data, None).await;
        if size_bytes > MAX_DATA_BYTES {
            assert_eq!(set, Err(too_large));
        } else {
            set.unwrap();
            assert_eq!(tree.get(&node).await.unwrap().data, data);
        }
    }
    let half = vec![0; MAX_DATA_BYTES / 2 + 1];
    let ops = [
        Op::create(path("/b"), half.clone()),
        Op::create(path("/c"), half),
    ];
    let both = tree.multi(&ops).await;
    assert!(matches!(both, Err(TreeError::MultiTooLarge(_))));
}

async fn a_transaction_has_a_maximum_number_of_operations(twin: &Twin) {
    let tree = twin.session().await.tree;
    for n_ops in testing::sizes_around("backplane::tree::MAX_OPS", MAX_OPS) {
        let ops: Vec<Op> = (0..n_ops)
            .map(|number| match number % 2 {
                0 => Op::create(path("/a"), ""),
                _ => Op::delete(path("/a")),
            })
            .collect();
        match tree.multi(&ops).await {
            Ok(results) => assert!(results.len() == n_ops && n_ops <= MAX_OPS),
            Err(error) => assert!(error == TreeError::TooManyOps(n_ops) && n_ops > MAX_OPS),
        }
        if n_ops % 2 == 1 && n_ops <= MAX_OPS {
            tree.delete(&path("/a"), None).await.unwrap();
        }
    }
}

async fn a_subtree_is_read_and_deleted_at_any_size(twin: &Twin) {
    let tree = twin.session().await.tree;
    let reads = testing::sizes_around("backplane::tree::walk::READS_AT_ONCE", 64);
    let deletions = testing::sizes_around("backplane::tree::walk::DELETIONS_AT_ONCE", 500);
    let sizes: BTreeSet<usize> = reads.into_iter().chain(deletions).collect();
    for n_children in sizes {
        tree.create(&path("/a"), b"top", Lifetime::Persistent)
            .await
            .unwrap();
        let top = path("/a");
        let creations =
            (0..n_children).map(|_| tree.create_sequential(&top, "n", b"x", Lifetime::Persistent));
        let created = futures_util::future::join_all(creations).await;
        assert!(created.iter().all(Result::is_ok));
        let nodes = walk(&tree, &top, n_children + 1).await.unwrap();
        assert_eq!(nodes.len(), n_children + 1);
        assert!(nodes.is_sorted_by_key(|(path, _)| path.clone()));
        assert_eq!(delete_subtree(&tree, &top).await, Ok(n_children + 1));
    }
    assert_eq!(delete_subtree(&tree, &path("/a")).await, Ok(0));
}

async fn a_walk_has_a_maximum_number_of_nodes(twin: &Twin) {
    let tree = twin.session().await.tree;
    tree.create(&path("/a"), b"", Lifetime::Persistent)
        .await
        .unwrap();
    for number in 0..12 {
        let child = path(&format!("/a/{number}"));
        tree.create(&child, b"", Lifetime::Persistent)
            .await
            .unwrap();
        let below = child.join("below").unwrap();
        tree.create(&below, b"", Lifetime::Persistent)
            .await
            .unwrap();
    }
    for limit in testing::sizes_around("backplane::tree::walk::MAX_WALKED", 25) {
        match walk(&tree, &path("/a"), limit).await {
            Ok(nodes) => assert!(nodes.len() == 25 && limit >= 25),
            Err(error) => assert!(matches!(error, TreeError::Full(_)) && limit < 25),
        }
    }
}

async fn missing_parents_are_created(twin: &Twin) {
    let tree = twin.session().await.tree;
    create_parents(&tree, &TreePath::root()).await.unwrap();
    create_parents(&tree, &path("/a")).await.unwrap();
    assert_eq!(tree.exists(&path("/a")).await, Ok(None));
    create_parents(&tree, &path("/a/b/c")).await.unwrap();
    create_parents(&tree, &path("/a/b/d/e")).await.unwrap();
    assert_eq!(tree.children(&path("/a/b")).await.unwrap(), ["d"]);
}
