//! Locks with fencing numbers.
//!
//! Contenders are ephemeral sequential nodes below `<node>/lock`. The first one holds the lock; the
//! others wait for their predecessor only, so a release wakes one process. The directory is made
//! with the node ([`create_with_lock`](super::create_with_lock)) and never by locking: if it is
//! missing, the node was deleted.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch::Receiver;
use tokio::time::timeout;

use super::Tree;
use super::error::TreeError;
use super::lock_contender::{Contender, ContenderNode};
use super::lock_directory::{contenders, lock_path};
use super::node::{Op, OpResult};
use super::path::TreePath;
use super::session::{SessionState, connected_session, session_ended, session_uncertain};

/// Longest wait for a session before the lock is contended for.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Pause of a waiter after a call that failed.
const RETRY: Duration = Duration::from_millis(500);

/// Holds the lock of a node until it is released or dropped, or the session ends.
#[derive(Debug)]
pub struct Lock {
    tree: Arc<dyn Tree>,
    node: ContenderNode,
    contender: Contender,
    state: Receiver<SessionState>,
}

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("node {0} does not exist, or cannot be locked")]
    NoNode(TreePath),
    #[error("another process still holds the lock of {node} after {limit_ms} ms")]
    Busy { node: TreePath, limit_ms: u128 },
    /// Stop the work: another process may hold the lock now.
    #[error("the lock of {0} is lost: the session with the tree ended")]
    Lost(TreePath),
    /// Stop the work: the lock may be lost, or will be soon.
    #[error("the lock of {0} is uncertain: the connection to the tree is lost")]
    Suspended(TreePath),
    #[error(transparent)]
    Tree(#[from] TreeError),
}

impl Lock {
    /// Takes the lock of a node if it is free. `holder` is a text for people.
    pub async fn try_acquire(
        tree: &Arc<dyn Tree>,
        node: &TreePath,
        holder: &str,
    ) -> Result<Option<Self>, LockError> {
        let directory = lock_path(node)?;
        // A read first: most attempts find the lock taken, and need not write.
        match contenders(tree, &directory).await {
            Ok(names) if names.is_empty() => {}
            Ok(_) => return Ok(None),
            Err(TreeError::NoNode(_)) => return Err(LockError::NoNode(node.clone())),
            Err(error) => return Err(error.into()),
        }
        let attempt = Self::contend(tree, node, holder, Duration::MAX).await?;
        if attempt.predecessor(node).await?.is_none() {
            return Ok(Some(attempt));
        }
        match attempt.release().await {
            // If it is unknown whether the contender was removed, a task goes on removing it.
            Ok(()) | Err(_) => Ok(None),
        }
    }

    /// Waits for the lock of a node, at most for the limit.
    pub async fn acquire(
        tree: &Arc<dyn Tree>,
        node: &TreePath,
        holder: &str,
        limit: Duration,
    ) -> Result<Self, LockError> {
        let wait = async {
            let attempt = Self::contend(tree, node, holder, limit).await?;
            attempt.wait_for_turn(node).await
        };
        let busy = || LockError::Busy {
            node: node.clone(),
            limit_ms: limit.as_millis(),
        };
        timeout(limit, wait).await.unwrap_or_else(|_| Err(busy()))
    }

    async fn contend(
        tree: &Arc<dyn Tree>,
        node: &TreePath,
        holder: &str,
        limit: Duration,
    ) -> Result<Self, LockError> {
        let mut state = tree.session();
        let directory = lock_path(node)?;
        let Some(session) = connected_session(&mut state, limit.min(CONNECT_LIMIT)).await else {
            return Err(LockError::Suspended(node.clone()));
        };
        let created = Contender::create(tree, &directory, holder, session).await;
        let (contender, node) = created.map_err(|error| of_lock(error, node))?;
        Ok(Self {
            tree: Arc::clone(tree),
            node,
            contender,
            state,
        })
    }

    /// The contender before this one; `None` if this one holds the lock.
    async fn predecessor(&self, node: &TreePath) -> Result<Option<TreePath>, LockError> {
        let directory = lock_path(node)?;
        let names = contenders(&self.tree, &directory).await;
        let names = names.map_err(|error| of_lock(error, node))?;
        let ours = names.iter().position(|name| name == self.node.path.name());
        let Some(ours) = ours else {
            return Err(LockError::Lost(node.clone()));
        };
        let before = ours.checked_sub(1).and_then(|before| names.get(before));
        Ok(before
            .map(|name| directory.join(name))
            .transpose()
            .map_err(TreeError::from)?)
    }

    async fn wait_for_turn(self, node: &TreePath) -> Result<Self, LockError> {
        let mut state = self.state.clone();
        loop {
            match self.wait_once(node, &mut state).await {
                Ok(true) if self.is_certain() => return Ok(self),
                Ok(_) => {}
                // While the session lasts, the contender keeps its place in the line.
                Err(LockError::Tree(error)) if error.is_temporary() => {
                    let _ = timeout(RETRY, session_ended(&mut state, self.contender.session)).await;
                }
                Err(error) => return Err(error),
            }
            if !state.borrow().may_be(self.contender.session) {
                return Err(LockError::Lost(node.clone()));
            }
        }
    }

    /// Waits until the predecessor's node is deleted. Returns whether there was none.
    async fn wait_once(
        &self,
        node: &TreePath,
        state: &mut Receiver<SessionState>,
    ) -> Result<bool, LockError> {
        let Some(predecessor) = self.predecessor(node).await? else {
            return Ok(true);
        };
        let (stat, watch) = self.tree.watch_node(&predecessor).await?;
        if stat.is_some() {
            tokio::select! {
                _ = watch.changed() => {}
                () = session_ended(state, self.contender.session) => {}
            }
        }
        Ok(false)
    }

    /// The fencing number: each later holder of any lock of the tree has a higher one.
    pub fn number(&self) -> i64 {
        self.node.stat.created_by
    }

    /// The node that represents this holder. To be checked by transactions under the lock.
    pub fn path(&self) -> &TreePath {
        &self.node.path
    }

    /// Whether the session is connected now. Otherwise, work under the lock must stop.
    pub fn is_certain(&self) -> bool {
        *self.state.borrow() == SessionState::Connected(self.contender.session)
    }

    /// Returns as soon as the lock is not certain any more: at the loss of the connection, before
    /// the session ends and another process can take the lock.
    pub async fn uncertain(&self) {
        session_uncertain(&mut self.state.clone(), self.contender.session).await;
    }

    /// Returns when the session has ended, and the lock with it. Work that others cannot disturb
    /// may go on until then, if its result is written with [`write`](Self::write).
    pub async fn lost(&self) {
        session_ended(&mut self.state.clone(), self.contender.session).await;
    }

    /// Waits until the session is connected again. Returns whether the lock may still be held.
    pub async fn certain_again(&self) -> bool {
        let mut state = self.state.clone();
        let session = self.contender.session;
        let decided = |state: &SessionState| {
            *state == SessionState::Connected(session) || !state.may_be(session)
        };
        let state = state.wait_for(decided).await;
        state.is_ok_and(|state| state.may_be(session))
    }

    /// Runs work under the lock, and stops it when the lock is uncertain.
    pub async fn guard<T>(&self, work: impl Future<Output = T>) -> Result<T, LockError> {
        tokio::select! {
            biased;
            () = self.uncertain() => Err(self.uncertain_error()),
            result = work => Ok(result),
        }
    }

    fn uncertain_error(&self) -> LockError {
        let node = self.locked_node();
        if self.state.borrow().may_be(self.contender.session) {
            return LockError::Suspended(node);
        }
        LockError::Lost(node)
    }

    fn locked_node(&self) -> TreePath {
        let directory = self.node.path.parent();
        let node = directory.and_then(|directory| directory.parent());
        node.unwrap_or_else(TreePath::root)
    }

    /// The operation that makes a transaction fail if the lock is lost.
    pub fn check(&self) -> Op {
        Op::Check {
            path: self.node.path.clone(),
            expected: None,
        }
    }

    /// Carries out all operations if the lock is still held, and otherwise none.
    pub async fn write(&self, ops: &[Op]) -> Result<Vec<OpResult>, LockError> {
        let checked: Vec<Op> = [self.check()]
            .into_iter()
            .chain(ops.iter().cloned())
            .collect();
        match self.tree.multi(&checked).await {
            Ok(mut results) => {
                results.remove(0);
                Ok(results)
            }
            Err(TreeError::Operation { index: 0, source }) if source.is_no_node() => {
                Err(LockError::Lost(self.locked_node()))
            }
            Err(TreeError::Operation { index: 0, source }) => Err((*source).into()),
            Err(TreeError::Operation { index, source }) => Err(source.of_op(index - 1).into()),
            Err(error) => Err(error.into()),
        }
    }

    /// Releases the lock. If that fails, a task goes on trying while the session lasts.
    pub async fn release(self) -> Result<(), LockError> {
        match self.tree.delete(&self.node.path, None).await {
            Ok(()) | Err(TreeError::NoNode(_)) => {
                self.contender.forget();
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// The error of a call about the lock directory of a node.
fn of_lock(error: TreeError, node: &TreePath) -> LockError {
    if error.is_no_node() {
        return LockError::NoNode(node.clone());
    }
    LockError::Tree(error)
}
