//! Seals: what others write to the tree, and what they move or put back in it, is not believed.

use std::sync::Arc;

use access::Secret;
use access::seal::{Key, Keyring};
use backplane::tree::{
    Lifetime, Lock, MAX_DATA_BYTES, Node, Op, OpResult, SealedTree, Tree, TreeError, TreeExport,
    TreePath, create_with_lock, lock_path,
};
use domain::time::Timestamp;

use super::on_both;
use super::twin::{Twin, path};

on_both! {
    what_was_sealed_is_read_and_looks_as_if_there_were_no_seals
    what_others_write_is_empty_and_says_why
    data_that_is_moved_or_put_back_is_not_believed
    a_node_whose_number_the_tree_gives_is_sealed_too
    an_image_named_lock_is_no_lock
    contenders_for_locks_carry_no_seal
    a_transaction_must_know_the_versions_of_what_it_replaces
    nodes_of_an_older_key_are_sealed_again_and_then_the_key_can_go
    an_export_leaves_out_what_is_not_to_be_trusted
    data_up_to_the_limit_has_room_for_its_seal
}

fn keyring(numbers: &[u8]) -> Arc<Keyring> {
    let key = |number: &u8| Key {
        id: format!("k{number}"),
        secret: Secret::new(format!(
            "{}=",
            "A".repeat(42)
                + &"AEIMQUYcgkosw048"
                    .chars()
                    .nth(usize::from(*number))
                    .unwrap()
                    .to_string()
        )),
    };
    Arc::new(Keyring::new(numbers.iter().map(key).collect()).unwrap())
}

fn sealed(tree: &Arc<dyn Tree>, numbers: &[u8]) -> Arc<dyn Tree> {
    Arc::new(SealedTree::new(Arc::clone(tree), keyring(numbers)))
}

fn assert_forged(node: &Node, why: &str) {
    let problem = node.forged.as_deref().unwrap_or("it is believed");
    assert!(problem.contains(why), "{problem}");
    assert_eq!(node.data, b"");
}

async fn what_was_sealed_is_read_and_looks_as_if_there_were_no_seals(twin: &Twin) {
    let session = twin.session().await;
    let tree = sealed(&session.tree, &[1]);
    let node = path("/a");
    tree.create(&node, b"one", Lifetime::Persistent)
        .await
        .unwrap();
    assert_eq!(tree.get(&node).await.unwrap().data, b"one");
    assert_ne!(session.tree.get(&node).await.unwrap().data, b"one");
    tree.set(&node, b"two", Some(0)).await.unwrap();
    tree.set(&node, b"three", None).await.unwrap();
    let read = tree.get(&node).await.unwrap();
    assert_eq!(
        (read.data, read.stat.version, read.forged),
        (b"three".to_vec(), 2, None)
    );
    let old = tree.set(&node, b"four", Some(1)).await;
    assert_eq!(old, Err(TreeError::BadVersion(node.clone())));
    let ops = [
        Op::create(path("/b"), "of a transaction"),
        Op::Set {
            path: node.clone(),
            data: b"five".to_vec(),
            expected: Some(2),
        },
    ];
    tree.multi(&ops).await.unwrap();
    assert_eq!(tree.get(&node).await.unwrap().data, b"five");
    assert_eq!(
        tree.get(&path("/b")).await.unwrap().data,
        b"of a transaction"
    );
    let missing = tree.set(&path("/c"), b"", None).await;
    assert_eq!(missing, Err(TreeError::NoNode(path("/c"))));
}

async fn what_others_write_is_empty_and_says_why(twin: &Twin) {
    let session = twin.session().await;
    let tree = sealed(&session.tree, &[1]);
    let node = path("/a");
    let raw = &session.tree;
    for (data, why) in [
        (b"{}".to_vec(), "it has no seal"),
        (Vec::new(), "it has no seal"),
        (b"sealed ".to_vec(), "it has no seal"),
        (b"sealed x\n{}".to_vec(), "its seal is damaged"),
        (b"sealed t1.k1.%%\n{}".to_vec(), "its seal is damaged"),
        (b"sealed t1.k1.AAAA\n{}".to_vec(), "somebody changed it"),
        (
            b"sealed t1.k9.AAAA\n{}".to_vec(),
            "key k9, which is not configured",
        ),
        (b"sealed \xff\n{}".to_vec(), "it has no seal"),
    ] {
        raw.create(&node, &data, Lifetime::Persistent)
            .await
            .unwrap();
        assert_forged(&tree.get(&node).await.unwrap(), why);
        raw.delete(&node, None).await.unwrap();
    }
    // With the key of another deployment, and with one byte changed.
    sealed(raw, &[2])
        .create(&node, b"x", Lifetime::Persistent)
        .await
        .unwrap();
    assert_forged(&tree.get(&node).await.unwrap(), "key k2");
    raw.delete(&node, None).await.unwrap();
    tree.create(&node, b"right", Lifetime::Persistent)
        .await
        .unwrap();
    let mut data = raw.get(&node).await.unwrap().data;
    *data.last_mut().unwrap() ^= 1;
    raw.delete(&node, None).await.unwrap();
    raw.create(&node, &data, Lifetime::Persistent)
        .await
        .unwrap();
    assert_forged(&tree.get(&node).await.unwrap(), "somebody changed it");
}

async fn data_that_is_moved_or_put_back_is_not_believed(twin: &Twin) {
    let session = twin.session().await;
    let (tree, raw) = (sealed(&session.tree, &[1]), &session.tree);
    let (node, other) = (path("/a"), path("/b"));
    tree.create(&node, b"old", Lifetime::Persistent)
        .await
        .unwrap();
    let old = raw.get(&node).await.unwrap().data;
    raw.create(&other, &old, Lifetime::Persistent)
        .await
        .unwrap();
    assert_forged(&tree.get(&other).await.unwrap(), "in this place");
    tree.set(&node, b"new", Some(0)).await.unwrap();
    raw.set(&node, &old, None).await.unwrap();
    assert_forged(&tree.get(&node).await.unwrap(), "in this place");
    // A process with the keys repairs it.
    tree.set(&node, b"newer", None).await.unwrap();
    assert_eq!(tree.get(&node).await.unwrap().data, b"newer");
}

async fn a_node_whose_number_the_tree_gives_is_sealed_too(twin: &Twin) {
    let session = twin.session().await;
    let (tree, raw) = (sealed(&session.tree, &[1]), &session.tree);
    let parent = path("/builds");
    tree.create(&parent, b"", Lifetime::Persistent)
        .await
        .unwrap();
    let created = tree.create_sequential(&parent, "", b"building", Lifetime::Persistent);
    let (first, _) = created.await.unwrap();
    assert_eq!(tree.get(&first).await.unwrap().data, b"building");
    let op = Op::CreateSequential {
        parent: parent.clone(),
        prefix: "n".to_owned(),
        data: b"of a transaction".to_vec(),
        lifetime: Lifetime::Persistent,
    };
    let results = tree.multi(&[op]).await.unwrap();
    let [OpResult::Created(second)] = results.as_slice() else {
        panic!("{results:?}");
    };
    assert_eq!(tree.get(second).await.unwrap().data, b"of a transaction");
    let root = TreePath::root();
    let at_root = tree.create_sequential(&root, "n", b"top", Lifetime::Persistent);
    let (at_root, _) = at_root.await.unwrap();
    assert_eq!(tree.get(&at_root).await.unwrap().data, b"top");
    // Neither under another parent or prefix, nor after the data was replaced.
    let data = raw.get(&first).await.unwrap().data;
    for wrong in ["/builds/n0000000007", "/0000000000"] {
        raw.create(&path(wrong), &data, Lifetime::Persistent)
            .await
            .unwrap();
        assert_forged(&tree.get(&path(wrong)).await.unwrap(), "in this place");
    }
    tree.set(&first, b"ready", Some(0)).await.unwrap();
    raw.set(&first, &data, None).await.unwrap();
    assert_forged(&tree.get(&first).await.unwrap(), "in this place");
}

async fn an_image_named_lock_is_no_lock(twin: &Twin) {
    let session = twin.session().await;
    let (tree, raw) = (sealed(&session.tree, &[1]), &session.tree);
    raw.create(&path("/lock"), b"", Lifetime::Persistent)
        .await
        .unwrap();
    let definition = path("/lock/definition");
    raw.create(&definition, b"{}", Lifetime::Persistent)
        .await
        .unwrap();
    assert_forged(&tree.get(&definition).await.unwrap(), "it has no seal");
}

async fn contenders_for_locks_carry_no_seal(twin: &Twin) {
    let session = twin.session().await;
    let tree = sealed(&session.tree, &[1]);
    let node = path("/locked");
    create_with_lock(&tree, &node, b"data").await.unwrap();
    let lock = Lock::try_acquire(&tree, &node, "holder")
        .await
        .unwrap()
        .unwrap();
    let names = tree.children(&lock_path(&node).unwrap()).await.unwrap();
    let contender = lock_path(&node).unwrap().join(&names[0]).unwrap();
    assert_eq!(tree.get(&contender).await.unwrap().data, b"holder");
    let set = Op::Set {
        path: node.clone(),
        data: b"under the lock".to_vec(),
        expected: Some(0),
    };
    lock.write(&[set]).await.unwrap();
    assert_eq!(tree.get(&node).await.unwrap().data, b"under the lock");
    lock.release().await.unwrap();
}

async fn a_transaction_must_know_the_versions_of_what_it_replaces(twin: &Twin) {
    let session = twin.session().await;
    let tree = sealed(&session.tree, &[1]);
    let node = path("/a");
    tree.create(&node, b"x", Lifetime::Persistent)
        .await
        .unwrap();
    let set = |data: &[u8]| Op::Set {
        path: node.clone(),
        data: data.to_vec(),
        expected: None,
    };
    let error = tree.multi(&[set(b"y")]).await.unwrap_err();
    assert!(error.to_string().contains("without its version"), "{error}");
    assert_eq!(tree.get(&node).await.unwrap().data, b"x");
    // Without data, it only counts.
    tree.multi(&[set(b"")]).await.unwrap();
    assert_eq!(tree.get(&node).await.unwrap().stat.version, 1);
}

async fn nodes_of_an_older_key_are_sealed_again_and_then_the_key_can_go(twin: &Twin) {
    let session = twin.session().await;
    let raw = &session.tree;
    let old = sealed(raw, &[1]);
    for (node, data) in [("/a", "one"), ("/a/b", "two"), ("/c", "")] {
        old.create(&path(node), data.as_bytes(), Lifetime::Persistent)
            .await
            .unwrap();
    }
    raw.create(&path("/forged"), b"{}", Lifetime::Persistent)
        .await
        .unwrap();
    let only_new = sealed(raw, &[2]);
    assert_forged(&only_new.get(&path("/a")).await.unwrap(), "key k1");
    let both = SealedTree::new(Arc::clone(raw), keyring(&[2, 1]));
    assert_eq!(both.seal_again(&TreePath::root()).await.unwrap(), 3);
    assert_eq!(both.seal_again(&TreePath::root()).await.unwrap(), 0);
    for (node, data) in [("/a", "one"), ("/a/b", "two"), ("/c", "")] {
        let read = only_new.get(&path(node)).await.unwrap();
        assert_eq!((read.data.as_slice(), read.forged), (data.as_bytes(), None));
    }
    assert_forged(
        &only_new.get(&path("/forged")).await.unwrap(),
        "it has no seal",
    );
}

async fn an_export_leaves_out_what_is_not_to_be_trusted(twin: &Twin) {
    let session = twin.session().await;
    let tree = sealed(&session.tree, &[1]);
    tree.create(&path("/good"), b"data", Lifetime::Persistent)
        .await
        .unwrap();
    session
        .tree
        .create(&path("/bad"), b"data", Lifetime::Persistent)
        .await
        .unwrap();
    let now = Timestamp::from_millis(0);
    let (export, forged) = TreeExport::read(&tree, &TreePath::root(), now)
        .await
        .unwrap();
    let texts: Vec<_> = export
        .nodes
        .iter()
        .filter_map(|node| node.text.as_deref())
        .collect();
    assert!(texts.contains(&"data"), "{texts:?}");
    assert!(!export.nodes.iter().any(|node| node.path == path("/bad")));
    assert!(
        forged.iter().any(|(node, _)| *node == path("/bad")),
        "{forged:?}"
    );
}

/// More than any seal takes.
const SEAL_BYTES: usize = 128;

async fn data_up_to_the_limit_has_room_for_its_seal(twin: &Twin) {
    let session = twin.session().await;
    let tree = sealed(&session.tree, &[1]);
    let data = vec![b'x'; MAX_DATA_BYTES];
    let error = tree
        .create(&path("/a"), &data, Lifetime::Persistent)
        .await
        .unwrap_err();
    assert!(matches!(error, TreeError::TooLarge { .. }), "{error}");
    let fits = &data[..MAX_DATA_BYTES - SEAL_BYTES];
    tree.create(&path("/a"), fits, Lifetime::Persistent)
        .await
        .unwrap();
    assert_eq!(tree.get(&path("/a")).await.unwrap().data.len(), fits.len());
}
