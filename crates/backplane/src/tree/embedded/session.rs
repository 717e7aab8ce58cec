//! A session with an embedded tree.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use super::EmbeddedTree;
use super::requests::{Answer, Call, Control, Request};
use crate::tree::Tree;
use crate::tree::error::TreeError;
use crate::tree::node::{Lifetime, Node, Op, OpResult, Stat};
use crate::tree::path::TreePath;
use crate::tree::session::{SessionId, SessionState};
use crate::tree::watch::{NodeWatch, SubtreeWatch};

/// A handle of a session. The session ends when its last handle is dropped.
#[derive(Clone)]
pub struct EmbeddedSession(Arc<SessionHandle>);

struct SessionHandle {
    tree: EmbeddedTree,
    state: watch::Receiver<SessionState>,
}

impl EmbeddedSession {
    pub(super) fn new(tree: EmbeddedTree, state: watch::Receiver<SessionState>) -> Self {
        Self(Arc::new(SessionHandle { tree, state }))
    }

    /// Ends the session as if it had expired: its ephemeral nodes are deleted, and a new session
    /// begins.
    pub fn expire(&self) {
        if let Some(id) = self.0.id() {
            let next = Some(self.0.tree.next_session_id());
            let _ = self.0.tree.controls.send(Control::End { id, next });
        }
    }

    async fn call<T>(&self, call: impl FnOnce(Answer<T>) -> Call) -> Result<T, TreeError> {
        let handle = &self.0;
        let limit = handle.tree.limits.call;
        let (answer, receiver) = oneshot::channel();
        let Some(session) = handle.id() else {
            return Err(TreeError::SessionLost);
        };
        let call = call(answer);
        let exchange = async {
            let request = Request { session, call };
            let sent = handle.tree.requests.send(request).await;
            sent.map_err(|_| closed(limit))?;
            // An answer that never comes: the task of the tree ended.
            receiver.await.map_err(|_| TreeError::SessionLost)?
        };
        let result = timeout(limit, exchange).await;
        result.unwrap_or_else(|_| Err(timed_out(limit)))
    }

    /// Carries out one operation. Returns its result, and the node's state after it.
    async fn write(&self, op: Op) -> Result<(OpResult, Option<Stat>), TreeError> {
        let written = self.call(|answer| Call::Write(vec![op], answer)).await;
        let (results, stats) = written.map_err(TreeError::into_cause)?;
        let first = results.into_iter().zip(stats).next();
        first.ok_or_else(|| TreeError::Unexpected("no result".to_owned()))
    }
}

fn closed(limit: Duration) -> TreeError {
    TreeError::Disconnected {
        limit_ms: limit.as_millis(),
        reason: "the embedded tree was closed".to_owned(),
    }
}

fn timed_out(limit: Duration) -> TreeError {
    let limit_ms = limit.as_millis();
    TreeError::TimedOut { limit_ms }
}

impl SessionHandle {
    fn id(&self) -> Option<SessionId> {
        self.state.borrow().connected()
    }
}

impl Drop for SessionHandle {
    fn drop(&mut self) {
        if let Some(id) = self.id() {
            let _ = self.tree.controls.send(Control::End { id, next: None });
        }
    }
}

impl fmt::Debug for EmbeddedSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EmbeddedSession")
            .field(&*self.0.state.borrow())
            .finish()
    }
}

/// The state of a node that was just created.
fn created(stat: Option<Stat>) -> Result<Stat, TreeError> {
    stat.ok_or_else(|| TreeError::Unexpected("a created node does not exist".to_owned()))
}

#[async_trait]
impl Tree for EmbeddedSession {
    async fn create(
        &self,
        path: &TreePath,
        data: &[u8],
        lifetime: Lifetime,
    ) -> Result<Stat, TreeError> {
        let (path, data) = (path.clone(), data.to_vec());
        let op = Op::Create {
            path,
            data,
            lifetime,
        };
        let (_, stat) = self.write(op).await?;
        created(stat)
    }

    async fn create_sequential(
        &self,
        parent: &TreePath,
        prefix: &str,
        data: &[u8],
        lifetime: Lifetime,
    ) -> Result<(TreePath, Stat), TreeError> {
        let op = Op::CreateSequential {
            parent: parent.clone(),
            prefix: prefix.to_owned(),
            data: data.to_vec(),
            lifetime,
        };
        let (result, stat) = self.write(op).await?;
        let OpResult::Created(path) = result else {
            return Err(TreeError::Unexpected(format!("{result:?}")));
        };
        Ok((path, created(stat)?))
    }

    async fn get(&self, path: &TreePath) -> Result<Node, TreeError> {
        self.call(|answer| Call::Get(path.clone(), answer)).await
    }

    async fn set(
        &self,
        path: &TreePath,
        data: &[u8],
        expected: Option<i32>,
    ) -> Result<Stat, TreeError> {
        let (path, data) = (path.clone(), data.to_vec());
        let op = Op::Set {
            path,
            data,
            expected,
        };
        match self.write(op).await?.0 {
            OpResult::Set(stat) => Ok(stat),
            result @ (OpResult::Created(_) | OpResult::Deleted | OpResult::Checked) => {
                Err(TreeError::Unexpected(format!("{result:?}")))
            }
        }
    }

    async fn delete(&self, path: &TreePath, expected: Option<i32>) -> Result<(), TreeError> {
        let path = path.clone();
        self.write(Op::Delete { path, expected }).await.map(drop)
    }

    async fn exists(&self, path: &TreePath) -> Result<Option<Stat>, TreeError> {
        self.call(|answer| Call::Exists(path.clone(), answer)).await
    }

    async fn children(&self, path: &TreePath) -> Result<Vec<String>, TreeError> {
        self.call(|answer| Call::Children(path.clone(), answer))
            .await
    }

    async fn multi(&self, ops: &[Op]) -> Result<Vec<OpResult>, TreeError> {
        let written = self.call(|answer| Call::Write(ops.to_vec(), answer)).await;
        written.map(|(results, _)| results)
    }

    async fn watch_node(&self, path: &TreePath) -> Result<(Option<Stat>, NodeWatch), TreeError> {
        self.call(|answer| Call::WatchNode(path.clone(), answer))
            .await
    }

    async fn watch_children(&self, path: &TreePath) -> Result<(Vec<String>, NodeWatch), TreeError> {
        self.call(|answer| Call::WatchChildren(path.clone(), answer))
            .await
    }

    async fn watch_subtree(&self, path: &TreePath) -> Result<SubtreeWatch, TreeError> {
        self.call(|answer| Call::WatchSubtree(path.clone(), answer))
            .await
    }

    fn session(&self) -> watch::Receiver<SessionState> {
        self.0.state.clone()
    }
}
