//! A tree in which something else happens before the next change.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use backplane::tree::{
    Lifetime, Node, NodeWatch, Op, OpResult, SessionState, Stat, SubtreeWatch, Tree, TreeError,
    TreePath,
};
use tokio::sync::watch::Receiver;

type Interruption = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(crate) struct InterruptedTree {
    tree: Arc<dyn Tree>,
    next: Mutex<Option<Interruption>>,
    /// `None`: any change.
    only_before: Option<fn(&[Op]) -> bool>,
}

impl std::fmt::Debug for InterruptedTree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InterruptedTree").finish_non_exhaustive()
    }
}

impl InterruptedTree {
    pub(crate) fn of(tree: &Arc<dyn Tree>) -> Arc<Self> {
        Arc::new(Self {
            tree: Arc::clone(tree),
            next: Mutex::default(),
            only_before: None,
        })
    }

    /// The same, before a transaction of this kind.
    pub(crate) fn before(
        tree: &Arc<dyn Tree>,
        is_it: fn(&[Op]) -> bool,
        by: impl Future<Output = ()> + Send + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            tree: Arc::clone(tree),
            next: Mutex::new(Some(Box::pin(by))),
            only_before: Some(is_it),
        })
    }

    /// This happens when the next change is asked for, before the tree makes it.
    pub(crate) fn interrupt(&self, by: impl Future<Output = ()> + Send + 'static) {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::pin(by));
    }

    async fn interrupted(&self) -> &Arc<dyn Tree> {
        self.interrupted_before(&[]).await
    }

    async fn interrupted_before(&self, ops: &[Op]) -> &Arc<dyn Tree> {
        if self.only_before.is_some_and(|is_it| !is_it(ops)) {
            return &self.tree;
        }
        let next = self
            .next
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(next) = next {
            next.await;
        }
        &self.tree
    }
}

#[async_trait]
impl Tree for InterruptedTree {
    async fn create(
        &self,
        path: &TreePath,
        data: &[u8],
        lifetime: Lifetime,
    ) -> Result<Stat, TreeError> {
        self.interrupted().await.create(path, data, lifetime).await
    }

    async fn create_sequential(
        &self,
        parent: &TreePath,
        prefix: &str,
        data: &[u8],
        lifetime: Lifetime,
    ) -> Result<(TreePath, Stat), TreeError> {
        let tree = self.interrupted().await;
        tree.create_sequential(parent, prefix, data, lifetime).await
    }

    async fn get(&self, path: &TreePath) -> Result<Node, TreeError> {
        self.tree.get(path).await
    }

    async fn set(
        &self,
        path: &TreePath,
        data: &[u8],
        expected: Option<i32>,
    ) -> Result<Stat, TreeError> {
        self.interrupted().await.set(path, data, expected).await
    }

    async fn delete(&self, path: &TreePath, expected: Option<i32>) -> Result<(), TreeError> {
        self.interrupted().await.delete(path, expected).await
    }

    async fn exists(&self, path: &TreePath) -> Result<Option<Stat>, TreeError> {
        self.tree.exists(path).await
    }

    async fn children(&self, path: &TreePath) -> Result<Vec<String>, TreeError> {
        self.tree.children(path).await
    }

    async fn multi(&self, ops: &[Op]) -> Result<Vec<OpResult>, TreeError> {
        self.interrupted_before(ops).await.multi(ops).await
    }

    async fn watch_node(&self, path: &TreePath) -> Result<(Option<Stat>, NodeWatch), TreeError> {
        self.tree.watch_node(path).await
    }

    async fn watch_children(&self, path: &TreePath) -> Result<(Vec<String>, NodeWatch), TreeError> {
        self.tree.watch_children(path).await
    }

    async fn watch_subtree(&self, path: &TreePath) -> Result<SubtreeWatch, TreeError> {
        self.tree.watch_subtree(path).await
    }

    fn session(&self) -> Receiver<SessionState> {
        self.tree.session()
    }
}
