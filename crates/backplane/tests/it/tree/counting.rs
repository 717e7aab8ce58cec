//! A tree that counts the calls to another one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use backplane::tree::{
    Lifetime, Node, NodeWatch, Op, OpResult, SessionState, Stat, SubtreeWatch, Tree, TreeError,
    TreePath,
};
use tokio::sync::watch::Receiver;

#[derive(Debug)]
pub(crate) struct Counting {
    tree: Arc<dyn Tree>,
    pub(crate) n_calls: AtomicUsize,
    /// Watches of single nodes that are in force.
    pub(crate) n_watches: AtomicUsize,
    /// Events of watches of single nodes.
    pub(crate) n_wakeups: Arc<AtomicUsize>,
}

impl Counting {
    pub(crate) fn of(tree: Arc<dyn Tree>) -> Arc<Self> {
        Arc::new(Self {
            tree,
            n_calls: AtomicUsize::new(0),
            n_watches: AtomicUsize::new(0),
            n_wakeups: Arc::default(),
        })
    }

    pub(crate) fn take_calls(&self) -> usize {
        self.n_calls.swap(0, Ordering::SeqCst)
    }

    fn counted(&self) -> &Arc<dyn Tree> {
        self.n_calls.fetch_add(1, Ordering::SeqCst);
        &self.tree
    }
}

#[async_trait]
impl Tree for Counting {
    async fn create(
        &self,
        path: &TreePath,
        data: &[u8],
        lifetime: Lifetime,
    ) -> Result<Stat, TreeError> {
        self.counted().create(path, data, lifetime).await
    }

    async fn create_sequential(
        &self,
        parent: &TreePath,
        prefix: &str,
        data: &[u8],
        lifetime: Lifetime,
    ) -> Result<(TreePath, Stat), TreeError> {
        self.counted()
            .create_sequential(parent, prefix, data, lifetime)
            .await
    }

    async fn get(&self, path: &TreePath) -> Result<Node, TreeError> {
        self.counted().get(path).await
    }

    async fn set(
        &self,
        path: &TreePath,
        data: &[u8],
        expected: Option<i32>,
    ) -> Result<Stat, TreeError> {
        self.counted().set(path, data, expected).await
    }

    async fn delete(&self, path: &TreePath, expected: Option<i32>) -> Result<(), TreeError> {
        self.counted().delete(path, expected).await
    }

    async fn exists(&self, path: &TreePath) -> Result<Option<Stat>, TreeError> {
        self.counted().exists(path).await
    }

    async fn children(&self, path: &TreePath) -> Result<Vec<String>, TreeError> {
        self.counted().children(path).await
    }

    async fn multi(&self, ops: &[Op]) -> Result<Vec<OpResult>, TreeError> {
        self.counted().multi(ops).await
    }

    async fn watch_node(&self, path: &TreePath) -> Result<(Option<Stat>, NodeWatch), TreeError> {
        let (stat, watch) = self.counted().watch_node(path).await?;
        self.n_watches.fetch_add(1, Ordering::SeqCst);
        let n_wakeups = Arc::clone(&self.n_wakeups);
        let watch = NodeWatch::of(async move {
            let event = watch.changed().await;
            n_wakeups.fetch_add(1, Ordering::SeqCst);
            event
        });
        Ok((stat, watch))
    }

    async fn watch_children(&self, path: &TreePath) -> Result<(Vec<String>, NodeWatch), TreeError> {
        self.counted().watch_children(path).await
    }

    async fn watch_subtree(&self, path: &TreePath) -> Result<SubtreeWatch, TreeError> {
        self.counted().watch_subtree(path).await
    }

    fn session(&self) -> Receiver<SessionState> {
        self.tree.session()
    }
}
