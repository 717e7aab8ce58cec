//! The embedded tree in a database: kept over restarts, with one owner at a time.

use std::sync::Arc;

use backplane::tree::{Lifetime, Op, Tree, TreeError, TreePath};
use domain::time::Clock;
use engine::tree::{OpenTreeError, open, open_to_read};
use store::StoreError;
use store::tree_nodes::{self, TreeNode};
use store::tree_owners::{self, TreeOwner};

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

/// Makes it look as if this process took the tree now. Returns its epoch.
async fn take_as(world: &World, process: String) -> i64 {
    let now = world.now();
    let taken = world.engine.store.write("take", move |tx| {
        let seen = tree_owners::get(tx)?;
        tree_owners::take(tx, &process, now, seen.as_ref())
    });
    let taken: Result<i64, StoreError> = taken.await;
    taken.unwrap()
}

/// Makes it look as if a process of another machine took the tree now.
async fn take_elsewhere(world: &World) {
    let process = r#"{"host":"other","pid":7,"namespace":"elsewhere"}"#;
    take_as(world, process.to_owned()).await;
}

async fn owner(world: &World) -> TreeOwner {
    let read = world.engine.store.read("owner", tree_owners::get);
    let owner: Result<_, StoreError> = read.await;
    owner.unwrap().unwrap()
}

/// The process that started this one, which still runs.
fn parent_like(process: &str) -> String {
    let pid = std::os::unix::process::parent_id();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(')').unwrap();
    let mut parent: serde_json::Value = serde_json::from_str(process).unwrap();
    parent["pid"] = pid.into();
    parent["started"] = rest.split_whitespace().nth(19).unwrap().into();
    parent.to_string()
}

#[tokio::test]
async fn a_second_owner_is_refused_until_the_first_ends() {
    let world = World::new().await;
    let store = &world.engine.store;
    let first = open(store, &clock(&world)).await.unwrap();
    let session = first.tree.session();
    session
        .create(&path("/a"), b"x", Lifetime::Persistent)
        .await
        .unwrap();
    let parent = parent_like(&owner(&world).await.process);
    let epoch = take_as(&world, parent).await;
    let Err(refused @ OpenTreeError::InUse(_)) = open(store, &clock(&world)).await else {
        panic!("two owners");
    };
    let text = refused.to_string();
    let pid = std::os::unix::process::parent_id();
    assert!(text.contains(&format!("process {pid} on ")), "{text}");
    assert!(text.contains("kind = \"zookeeper\""), "{text}");
    // Anybody may read what is stored.
    let reader = open_to_read(store, &clock(&world)).await.unwrap().session();
    assert_eq!(reader.get(&path("/a")).await.unwrap().data, b"x");
    let written = reader.set(&path("/a"), b"y", None).await.unwrap_err();
    assert!(
        written.to_string().contains("was opened to read"),
        "{written}"
    );
    let released = store.write("release", move |tx| tree_owners::release(tx, epoch));
    let released: Result<(), StoreError> = released.await;
    released.unwrap();
    open(store, &clock(&world)).await.unwrap();
}

#[tokio::test]
async fn a_tree_that_could_not_be_opened_can_be_opened_by_the_same_process_later() {
    let world = World::new().await;
    let store = &world.engine.store;
    let this = open(store, &clock(&world)).await.unwrap();
    let process = owner(&world).await.process;
    this.close().await.unwrap();
    let orphan = TreeNode {
        path: "/parent/child".to_owned(),
        data: String::new(),
        is_base64: false,
        version: 0,
        created: world.now(),
        changed: world.now(),
        created_by: 1,
        changed_by: 1,
        children_changed_by: 1,
        next_sequence: 0,
    };
    let put = store.write("put", move |tx| tree_nodes::put(tx, &orphan));
    let put: Result<(), StoreError> = put.await;
    put.unwrap();
    let failed = open(store, &clock(&world)).await.err().unwrap();
    assert!(failed.to_string().contains("/parent/child"), "{failed}");
    // Others may have it.
    assert_eq!(owner(&world).await.renewed.as_millis(), 0);
    // Also if that could not be written.
    take_as(&world, process).await;
    let failed = open(store, &clock(&world)).await.err().unwrap();
    assert!(failed.to_string().contains("/parent/child"), "{failed}");
    let deleted = store.write("delete", |tx| tree_nodes::delete(tx, "/parent/child"));
    let deleted: Result<(), StoreError> = deleted.await;
    deleted.unwrap();
    open(store, &clock(&world)).await.unwrap();
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
