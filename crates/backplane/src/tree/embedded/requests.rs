//! Messages to the task of an embedded tree.

use tokio::sync::{oneshot, watch};

use crate::tree::error::TreeError;
use crate::tree::node::{Node, Op, OpResult, Stat};
use crate::tree::path::TreePath;
use crate::tree::session::{SessionId, SessionState};
use crate::tree::watch::{NodeWatch, SubtreeWatch};

/// The receiver of an answer.
pub(super) type Answer<T> = oneshot::Sender<Result<T, TreeError>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchKind {
    Node,
    Children,
}

/// A call of a session.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) session: SessionId,
    pub(super) call: Call,
}

#[derive(Debug)]
pub(super) enum Call {
    Write(Vec<Op>, Answer<(Vec<OpResult>, Vec<Option<Stat>>)>),
    Get(TreePath, Answer<Node>),
    Exists(TreePath, Answer<Option<Stat>>),
    Children(TreePath, Answer<Vec<String>>),
    WatchNode(TreePath, Answer<(Option<Stat>, NodeWatch)>),
    WatchChildren(TreePath, Answer<(Vec<String>, NodeWatch)>),
    WatchSubtree(TreePath, Answer<SubtreeWatch>),
}

/// A message that is never refused, and waits for nothing.
#[derive(Debug)]
pub(super) enum Control {
    Begin {
        id: SessionId,
        state: watch::Sender<SessionState>,
    },
    /// Ends the session. With `next`, the same handles go on with a new one.
    End {
        id: SessionId,
        next: Option<SessionId>,
    },
    /// Another process owns the tree: refuse everything from now on.
    TakenOver(String),
    RemoveWatch {
        kind: WatchKind,
        path: TreePath,
        number: u64,
    },
}

impl Call {
    pub(super) fn refuse(self, error: TreeError) {
        match self {
            Self::Write(_, answer) => drop(answer.send(Err(error))),
            Self::Get(_, answer) => drop(answer.send(Err(error))),
            Self::Exists(_, answer) => drop(answer.send(Err(error))),
            Self::Children(_, answer) => drop(answer.send(Err(error))),
            Self::WatchNode(_, answer) => drop(answer.send(Err(error))),
            Self::WatchChildren(_, answer) => drop(answer.send(Err(error))),
            Self::WatchSubtree(_, answer) => drop(answer.send(Err(error))),
        }
    }
}
