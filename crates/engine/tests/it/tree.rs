//! The embedded tree in a database: kept over restarts, with one owner at a time.

use std::sync::Arc;

use backplane::tree::{Lifetime, Op, Tree, TreeError, TreePath};
use domain::time::Clock;
use engine::tree::{OpenTreeError, open, open_to_read};
use store::tree_owners;

use crate::world::World;

fn path(text: &str) -> TreePath {
    text.parse().unwrap()
}

fn clock(world: &World) -> Arc<dyn Clock> {
    Arc::clone(&world.engine.clock)
}

#[tokio::test]
async fn nodes_of_all_kinds_are_kept_over_a_restart() {
    let world = World::new().await;
    let store = &world.engine.store;
    let owned = open(store, &clock(&world)).await.unwrap();
    let tree = owned.tree.session();
    let datas: [(&str, &[u8]); 4] = [
        ("/text", "größer".as_bytes()),
        ("/bytes", b"\xff\x00"),
        ("/nul", b"a\0b"),
        ("/empty", b""),
    ];
    for (node, data) in datas {
        tree.create(&path(node), data, Lifetime::Persistent)
            .await
            .unwrap();
    }
    tree.create(&path("/ephemeral"), b"", Lifetime::Ephemeral)
        .await
        .unwrap();
    tree.set(&path("/text"), b"changed", None).await.unwrap();
    let deleted = tree.multi(&[Op::delete(path("/empty"))]).await;
    deleted.unwrap();
    let before = tree.get(&path("/text")).await.unwrap();
    drop(tree);
    owned.close().await.unwrap();
    let owned = open(store, &clock(&world)).await.unwrap();
    let tree = owned.tree.session();
    assert_eq!(
        tree.children(&TreePath::root()).await.unwrap(),
        ["bytes", "nul", "text"]
    );
    assert_eq!(tree.get(&path("/text")).await, Ok(before));
    for (node, data) in &datas[1..3] {
        assert_eq!(tree.get(&path(node)).await.unwrap().data, *data);
    }
    let root = tree.exists(&TreePath::root()).await.unwrap().unwrap();
    assert_eq!(root.next_sequence, 5);
}

#[tokio::test]
async fn a_second_owner_is_refused_until_the_first_ends() {
    let world = World::new().await;
    let store = &world.engine.store;
    let first = open(store, &clock(&world)).await.unwrap();
    let Err(refused @ OpenTreeError::InUse(_)) = open(store, &clock(&world)).await else {
        panic!("two owners");
    };
    let text = refused.to_string();
    assert!(
        text.contains(&format!("process {} on ", std::process::id())),
        "{text}"
    );
    assert!(text.contains("kind = \"zookeeper\""), "{text}");
    // Anybody may read what is stored.
    let session = first.tree.session();
    session
        .create(&path("/a"), b"x", Lifetime::Persistent)
        .await
        .unwrap();
    let reader = open_to_read(store, &clock(&world)).await.unwrap().session();
    assert_eq!(reader.get(&path("/a")).await.unwrap().data, b"x");
    let written = reader.set(&path("/a"), b"y", None).await.unwrap_err();
    assert!(
        written.to_string().contains("was opened to read"),
        "{written}"
    );
    first.close().await.unwrap();
    open(store, &clock(&world)).await.unwrap();
}

/// Makes it look as if a process of another machine took the tree now.
async fn take_elsewhere(world: &World) {
    let now = world.now();
    let taken = world.engine.store.write("take", move |tx| {
        let seen = tree_owners::get(tx)?;
        let process = r#"{"host":"other","pid":7,"namespace":"elsewhere"}"#;
        tree_owners::take(tx, process, now, seen.as_ref())
    });
    taken.await.unwrap();
}

#[tokio::test]
async fn an_owner_on_another_machine_ends_with_its_lease() {
    let world = World::new().await;
    take_elsewhere(&world).await;
    let open = || open(&world.engine.store, &world.engine.clock);
    let Err(OpenTreeError::InUse(process)) = open().await else {
        panic!("two owners");
    };
    assert_eq!(process.to_string(), "process 7 on other");
    world.advance_ms(30_000);
    assert!(matches!(open().await, Err(OpenTreeError::InUse(_))));
    world.advance_ms(1);
    open().await.unwrap();
}

#[tokio::test]
async fn an_owner_elsewhere_whose_clock_was_ahead_ends_like_the_others() {
    let open = |world: &World| {
        let (store, clock) = (world.engine.store.clone(), clock(world));
        async move { open(&store, &clock).await }
    };
    for (ahead_ms, is_held) in [
        (0, true),
        (30_000, true),
        (30_001, false),
        (28_800_000, false),
    ] {
        let world = World::new().await;
        world.advance_ms(ahead_ms);
        take_elsewhere(&world).await;
        world.advance_ms(-ahead_ms);
        assert_eq!(open(&world).await.is_err(), is_held, "{ahead_ms}");
    }
}

#[tokio::test]
async fn an_owner_that_lost_the_tree_cannot_write() {
    let world = World::new().await;
    let owned = open(&world.engine.store, &clock(&world)).await.unwrap();
    let tree = owned.tree.session();
    tree.create(&path("/a"), b"", Lifetime::Persistent)
        .await
        .unwrap();
    take_elsewhere(&world).await;
    let error = tree.set(&path("/a"), b"late", None).await.unwrap_err();
    assert_eq!(error, TreeError::TakenOver("process 7 on other".to_owned()));
    let late = tree.get(&path("/a")).await;
    assert!(late.is_err());
    let reader = open_to_read(&world.engine.store, &clock(&world))
        .await
        .unwrap();
    assert_eq!(reader.session().get(&path("/a")).await.unwrap().data, b"");
}

#[tokio::test]
async fn a_tree_of_any_size_is_loaded() {
    let world = World::new().await;
    let mut n_created = 0;
    for n_nodes in testing::sizes_around("engine::tree::stored_nodes::PAGE", 1_000) {
        let owned = open(&world.engine.store, &clock(&world)).await.unwrap();
        let tree = owned.tree.session();
        while n_created < n_nodes {
            let n_now = (n_nodes - n_created).min(900);
            let ops = (0..n_now)
                .map(|number| Op::create(path(&format!("/node-{}", n_created + number)), ""));
            tree.multi(&ops.collect::<Vec<_>>()).await.unwrap();
            n_created += n_now;
        }
        drop(tree);
        owned.close().await.unwrap();
        let reader = open_to_read(&world.engine.store, &clock(&world))
            .await
            .unwrap();
        let names = reader.session().children(&TreePath::root()).await.unwrap();
        assert_eq!(names.len(), n_nodes);
    }
}
