//! The embedded tree: its nodes in pages, and one owner at a time.

use store::tree_nodes::{self, TreeNode};
use store::tree_owners;

use crate::samples::at;
use crate::world::{on_both, read, write};

fn node(path: &str, data: &str) -> TreeNode {
    TreeNode {
        path: path.to_owned(),
        data: data.to_owned(),
        is_base64: data.len() % 2 == 1,
        version: 3,
        created: at(1),
        changed: at(2),
        created_by: 4,
        changed_by: 5,
        children_changed_by: i64::MAX,
        next_sequence: 6,
    }
}

on_both!(
    nodes_are_written_replaced_listed_in_pages_and_deleted,
    |database| {
        let store = database.migrated().await;
        let nodes = ["/", "/ä", "/a/b", "/a"].map(|path| node(path, path));
        write(&store, {
            let nodes = nodes.clone();
            move |tx| nodes.iter().try_for_each(|node| tree_nodes::put(tx, node))
        })
        .await;
        let replaced = node("/a", "other");
        write(&store, {
            let replaced = replaced.clone();
            move |tx| tree_nodes::put(tx, &replaced)
        })
        .await;
        let page = read(&store, |tx| tree_nodes::list(tx, "", 2)).await;
        assert_eq!(page.items, [nodes[0].clone(), replaced]);
        let page = read(&store, |tx| tree_nodes::list(tx, "/a", 10)).await;
        assert_eq!(page.items, [nodes[2].clone(), nodes[1].clone()]);
        write(&store, |tx| tree_nodes::delete(tx, "/ä")).await;
        write(&store, |tx| tree_nodes::delete(tx, "/ä")).await;
        let page = read(&store, |tx| tree_nodes::list(tx, "/a", 10)).await;
        assert_eq!(page.items, [nodes[2].clone()]);
    }
);

on_both!(only_the_last_owner_is_renewed, |database| {
    let store = database.migrated().await;
    assert_eq!(read(&store, tree_owners::get).await, None);
    let first = write(&store, |tx| tree_owners::take(tx, "one", at(5), None)).await;
    let seen = read(&store, tree_owners::get).await.unwrap();
    assert_eq!((seen.epoch, seen.renewed), (first, at(5)));
    assert!(write(&store, move |tx| tree_owners::renew(tx, first, at(6))).await);
    // The owner that was read is out of date.
    let outdated = store.write("take", {
        let seen = seen.clone();
        move |tx| tree_owners::take(tx, "two", at(7), Some(&seen))
    });
    assert!(outdated.await.is_err());
    let seen = read(&store, tree_owners::get).await.unwrap();
    let second = write(&store, move |tx| {
        tree_owners::take(tx, "two", at(7), Some(&seen))
    });
    let second = second.await;
    assert_eq!(second, first + 1);
    assert!(!write(&store, move |tx| tree_owners::renew(tx, first, at(8))).await);
    write(&store, move |tx| tree_owners::release(tx, first)).await;
    let seen = read(&store, tree_owners::get).await.unwrap();
    assert_eq!((seen.process.as_str(), seen.renewed), ("two", at(7)));
    write(&store, move |tx| tree_owners::release(tx, second)).await;
    let seen = read(&store, tree_owners::get).await.unwrap();
    assert_eq!(seen.renewed, at(0));
});
