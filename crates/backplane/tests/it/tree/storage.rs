//! The embedded tree and its storage: what survives, and failures.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use backplane::tree::{
    CallLimits, EmbeddedTree, Lifetime, Lock, MemoryStorage, Op, SessionState, StorageError, Tree,
    TreeBatch, TreeError, TreeLimits, TreePath, TreeRow, TreeStorage, create_with_lock,
};
use tokio::sync::Semaphore;

use super::twin::{FixedClock, open_embedded, path, within};

/// A storage that a test can slow down and break.
#[derive(Default)]
struct FaultyStorage {
    rows: MemoryStorage,
    n_batches: AtomicUsize,
    /// 0: works. 1: fails after the write. 2: fails before it. 3: another process owns it.
    fault: AtomicUsize,
    /// Writes wait for a permit, if it is set.
    gate: Option<Semaphore>,
}

#[async_trait]
impl TreeStorage for FaultyStorage {
    async fn load(&self) -> Result<Vec<TreeRow>, StorageError> {
        self.rows.load().await
    }

    async fn apply(&self, batch: TreeBatch) -> Result<(), StorageError> {
        self.n_batches.fetch_add(1, Ordering::SeqCst);
        if let Some(gate) = &self.gate {
            gate.acquire().await.unwrap().forget();
        }
        let failed = || StorageError::Failed("disk full".to_owned());
        match self.fault.load(Ordering::SeqCst) {
            0 => self.rows.apply(batch).await,
            1 => {
                self.rows.apply(batch).await?;
                Err(failed())
            }
            2 => Err(failed()),
            _ => Err(StorageError::TakenOver("process 7".to_owned())),
        }
    }
}

async fn open(storage: &Arc<FaultyStorage>) -> (EmbeddedTree, Arc<dyn Tree>) {
    let storage: Arc<dyn TreeStorage> = Arc::clone(storage) as Arc<dyn TreeStorage>;
    let tree = open_embedded(storage).await;
    let session = Arc::new(tree.session());
    (tree, session)
}

async fn paths(tree: &Arc<dyn Tree>) -> Vec<String> {
    let nodes = backplane::tree::walk(tree, &TreePath::root(), 100)
        .await
        .unwrap();
    nodes
        .into_iter()
        .map(|(path, _)| path.to_string())
        .collect()
}

#[tokio::test]
async fn persistent_nodes_and_counters_survive_and_ephemeral_nodes_do_not() {
    let storage = Arc::new(FaultyStorage::default());
    let (handle, tree) = open(&storage).await;
    tree.create(&path("/a"), b"x", Lifetime::Persistent)
        .await
        .unwrap();
    tree.set(&path("/a"), b"y", None).await.unwrap();
    let before = tree
        .create_sequential(&path("/a"), "n", b"", Lifetime::Ephemeral)
        .await
        .unwrap();
    create_with_lock(&tree, &path("/b"), b"").await.unwrap();
    let lock = Lock::try_acquire(&tree, &path("/b"), "x")
        .await
        .unwrap()
        .unwrap();
    drop((handle, tree));
    let (_handle, tree) = open(&storage).await;
    assert_eq!(paths(&tree).await, ["/", "/a", "/b", "/b/lock"]);
    let node = tree.get(&path("/a")).await.unwrap();
    assert_eq!(
        (node.data.as_slice(), node.stat.version),
        (b"y".as_slice(), 1)
    );
    let after = tree
        .create_sequential(&path("/a"), "n", b"", Lifetime::Ephemeral)
        .await
        .unwrap();
    assert_eq!(after.0, path("/a/n0000000001"));
    assert!(after.1.created_by > before.1.created_by);
    // The fencing numbers grow over the restart, too.
    let next = Lock::try_acquire(&tree, &path("/b"), "x")
        .await
        .unwrap()
        .unwrap();
    assert!(next.number() > lock.number());
}

#[tokio::test]
async fn a_write_that_the_storage_refuses_is_taken_back_and_repaired_later() {
    for fault in [1, 2] {
        let storage = Arc::new(FaultyStorage::default());
        let (handle, tree) = open(&storage).await;
        create_with_lock(&tree, &path("/a"), b"old").await.unwrap();
        let before = tree.exists(&path("/a")).await;
        storage.fault.store(fault, Ordering::SeqCst);
        let ops = [
            Op::Set {
                path: path("/a"),
                data: b"new".to_vec(),
                expected: None,
            },
            Op::create(path("/b"), ""),
            Op::delete(path("/a/lock")),
        ];
        let error = tree.multi(&ops).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "the database of the tree failed: disk full"
        );
        assert!(error.is_outcome_unknown());
        assert_eq!(paths(&tree).await, ["/", "/a", "/a/lock"]);
        assert_eq!(tree.get(&path("/a")).await.unwrap().data, b"old");
        assert_eq!(tree.exists(&path("/a")).await, before);
        storage.fault.store(0, Ordering::SeqCst);
        tree.create(&path("/c"), b"", Lifetime::Persistent)
            .await
            .unwrap();
        drop((handle, tree));
        let (_handle, tree) = open(&storage).await;
        assert_eq!(paths(&tree).await, ["/", "/a", "/a/lock", "/c"], "{fault}");
        assert_eq!(tree.get(&path("/a")).await.unwrap().data, b"old");
    }
}

#[tokio::test]
async fn no_watch_sees_a_write_that_is_taken_back() {
    let storage = Arc::new(FaultyStorage::default());
    let (_handle, tree) = open(&storage).await;
    let mut watch = tree.watch_subtree(&TreePath::root()).await.unwrap();
    storage.fault.store(2, Ordering::SeqCst);
    tree.create(&path("/lost"), b"", Lifetime::Persistent)
        .await
        .unwrap_err();
    storage.fault.store(0, Ordering::SeqCst);
    tree.create(&path("/kept"), b"", Lifetime::Persistent)
        .await
        .unwrap();
    let event = within(watch.next()).await.unwrap();
    assert_eq!(event, backplane::tree::TreeEvent::Created(path("/kept")));
}

#[tokio::test]
async fn a_tree_that_another_process_took_over_refuses_all_calls() {
    let storage = Arc::new(FaultyStorage::default());
    let (handle, tree) = open(&storage).await;
    create_with_lock(&tree, &path("/a"), b"").await.unwrap();
    let lock = Lock::try_acquire(&tree, &path("/a"), "x")
        .await
        .unwrap()
        .unwrap();
    storage.fault.store(3, Ordering::SeqCst);
    let error = tree.set(&path("/a"), b"", None).await.unwrap_err();
    let text = "another process owns the embedded tree now: process 7";
    assert_eq!(error.to_string(), text);
    within(lock.uncertain()).await;
    assert_eq!(*tree.session().borrow(), SessionState::Lost);
    assert!(tree.get(&path("/a")).await.is_err());
    let second = handle.session();
    assert!(second.get(&path("/a")).await.is_err());
}

#[tokio::test]
async fn calls_at_one_time_are_written_in_few_batches() {
    let storage = Arc::new(FaultyStorage::default());
    let (_handle, tree) = open(&storage).await;
    tree.create(&path("/a"), b"", Lifetime::Persistent)
        .await
        .unwrap();
    let sizes = testing::sizes_around("backplane::tree::embedded::tree_loop::CALLS_PER_BATCH", 256);
    for n_calls in sizes {
        storage.n_batches.store(0, Ordering::SeqCst);
        let node = path("/a");
        let calls =
            (0..n_calls).map(|_| tree.create_sequential(&node, "", b"", Lifetime::Persistent));
        let created = futures_util::future::join_all(calls).await;
        assert!(created.iter().all(Result::is_ok));
        let n_batches = storage.n_batches.load(Ordering::SeqCst);
        // The runtime interrupts a task after some messages.
        assert!(
            n_batches <= n_calls.div_ceil(64) + 1,
            "{n_calls} calls, {n_batches} batches"
        );
        assert!(n_batches >= n_calls.div_ceil(256));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_at_its_time_limit_and_further_calls_wait_for_room() {
    let sizes = testing::sizes_around("backplane::tree::embedded::QUEUED_CALLS", 1_024);
    for n_calls in sizes.into_iter().filter(|n_calls| *n_calls > 0) {
        let storage = Arc::new(FaultyStorage {
            gate: Some(Semaphore::new(0)),
            ..FaultyStorage::default()
        });
        let limits = CallLimits {
            call: Duration::from_millis(250),
        };
        let shared: Arc<dyn TreeStorage> = Arc::clone(&storage) as Arc<dyn TreeStorage>;
        let clock = Arc::new(FixedClock);
        let opened = EmbeddedTree::open(shared, clock, TreeLimits::default(), limits)
            .await
            .unwrap();
        let tree = opened.session();
        let root = TreePath::root();
        let calls =
            (0..n_calls).map(|_| tree.create_sequential(&root, "n", b"", Lifetime::Persistent));
        for result in futures_util::future::join_all(calls).await {
            let error = result.unwrap_err();
            assert_eq!(error, TreeError::TimedOut { limit_ms: 250 });
            assert!(error.is_outcome_unknown());
        }
        // When the storage works again, the tree does.
        storage.gate.as_ref().unwrap().add_permits(1_000_000);
        tree.create(&path("/a"), b"", Lifetime::Persistent)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_tree_has_a_maximum_number_of_nodes_and_bytes() {
    let storage = Arc::new(MemoryStorage::default());
    let limits = TreeLimits {
        nodes: 3,
        bytes: 10,
    };
    let opened = EmbeddedTree::open(storage, Arc::new(FixedClock), limits, CallLimits::default());
    let tree = opened.await.unwrap().session();
    tree.create(&path("/a"), b"12345", Lifetime::Persistent)
        .await
        .unwrap();
    let full = TreeError::Full("10 bytes".to_owned());
    let created = tree
        .create(&path("/b"), b"123456", Lifetime::Persistent)
        .await;
    assert_eq!(created, Err(full.clone()));
    tree.create(&path("/b"), b"12345", Lifetime::Ephemeral)
        .await
        .unwrap();
    assert_eq!(tree.set(&path("/b"), b"123456", None).await, Err(full));
    tree.set(&path("/b"), b"1234", None).await.unwrap();
    let full = TreeError::Full("3 nodes".to_owned());
    assert_eq!(
        tree.create(&path("/c"), b"", Lifetime::Persistent).await,
        Err(full)
    );
    tree.delete(&path("/b"), None).await.unwrap();
    tree.create(&path("/c"), b"12345", Lifetime::Persistent)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_database_with_a_node_without_parent_is_refused() {
    let storage = MemoryStorage::default();
    let (_handle, tree) = open(&Arc::new(FaultyStorage::default())).await;
    tree.create(&path("/a"), b"", Lifetime::Persistent)
        .await
        .unwrap();
    let row = TreeRow {
        path: path("/a/b"),
        data: Vec::new(),
        version: 0,
        created: domain::time::Timestamp::from_millis(0),
        changed: domain::time::Timestamp::from_millis(0),
        created_by: 1,
        changed_by: 1,
        children_changed_by: 1,
        next_sequence: 0,
    };
    let batch = TreeBatch {
        put: vec![row],
        delete: Vec::new(),
    };
    storage.apply(batch).await.unwrap();
    let opened = EmbeddedTree::open(
        Arc::new(storage),
        Arc::new(FixedClock),
        TreeLimits::default(),
        CallLimits::default(),
    );
    let error = opened.await.unwrap_err();
    assert!(
        error.to_string().contains("node /a/b without its parent"),
        "{error}"
    );
}
