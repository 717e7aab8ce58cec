//! Errors of calls to the tree.

use super::path::{BadTreePath, TreePath};
use super::{MAX_DATA_BYTES, MAX_OPS};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    #[error("node {0} does not exist")]
    NoNode(TreePath),
    #[error("node {0} exists already")]
    NodeExists(TreePath),
    #[error("node {0} does not have the expected version")]
    BadVersion(TreePath),
    #[error("node {0} has children")]
    NotEmpty(TreePath),
    #[error("node {0} cannot be created: its parent is ephemeral, and has no children")]
    EphemeralParent(TreePath),
    #[error("the root of the tree cannot be {0}")]
    Root(&'static str),
    #[error("the tree refuses access to node {0}: another user owns it")]
    NotPermitted(TreePath),
    #[error(
        "others may read or write {n_nodes} nodes of the tree: {named}; they were made without its \
         user, or by somebody else. Look at what they contain (`fleetwright tree get`), and take them \
         over with `fleetwright tree protect`"
    )]
    Unprotected { n_nodes: usize, named: String },
    #[error("{size_bytes} bytes are too many for node {path}: the limit is {MAX_DATA_BYTES}")]
    TooLarge { path: TreePath, size_bytes: usize },
    #[error("{0} bytes are too many for one transaction: the limit is {MAX_DATA_BYTES}")]
    MultiTooLarge(usize),
    #[error("{0} operations are too many for one transaction: the limit is {MAX_OPS}")]
    TooManyOps(usize),
    #[error("the sequence numbers below node {0} are used up")]
    SequenceUsedUp(TreePath),
    #[error("the tree is full: it may have {0}")]
    Full(String),
    #[error(transparent)]
    BadPath(#[from] BadTreePath),
    /// Nothing of the transaction took effect.
    #[error("operation {index} of the transaction failed: {source}")]
    Operation {
        index: usize,
        source: Box<TreeError>,
    },
    #[error("the tree did not answer within {limit_ms} ms")]
    TimedOut { limit_ms: u128 },
    #[error("no session with the tree within {limit_ms} ms: {reason}")]
    Disconnected { limit_ms: u128, reason: String },
    #[error("the connection to the tree was lost during the call")]
    ConnectionLost,
    #[error("the session with the tree ended during the call")]
    SessionLost,
    #[error("the tree refused the login: {0}")]
    LoginRefused(String),
    #[error("the database of the tree failed: {0}")]
    Storage(String),
    #[error("another process owns the embedded tree now: {0}")]
    TakenOver(String),
    #[error("the settings of the tree are invalid: {0}")]
    BadSettings(String),
    #[error("unexpected answer of the tree: {0}")]
    Unexpected(String),
}

impl TreeError {
    /// Whether the call may have taken effect nevertheless.
    pub fn is_outcome_unknown(&self) -> bool {
        match self {
            Self::TimedOut { .. }
            | Self::ConnectionLost
            | Self::SessionLost
            | Self::Storage(_)
            | Self::TakenOver(_)
            | Self::Unexpected(_) => true,
            Self::NoNode(_)
            | Self::NodeExists(_)
            | Self::BadVersion(_)
            | Self::NotEmpty(_)
            | Self::EphemeralParent(_)
            | Self::Root(_)
            | Self::NotPermitted(_)
            | Self::Unprotected { .. }
            | Self::TooLarge { .. }
            | Self::MultiTooLarge(_)
            | Self::TooManyOps(_)
            | Self::SequenceUsedUp(_)
            | Self::Full(_)
            | Self::BadPath(_)
            | Self::Operation { .. }
            | Self::Disconnected { .. }
            | Self::LoginRefused(_)
            | Self::BadSettings(_) => false,
        }
    }

    /// Whether the call can succeed later: its session, its server or its database failed.
    pub fn is_temporary(&self) -> bool {
        let lacks_session = matches!(self, Self::Disconnected { .. } | Self::LoginRefused(_));
        self.is_outcome_unknown() && !matches!(self, Self::TakenOver(_)) || lacks_session
    }

    /// Whether no server of the tree answers. It may be started later.
    pub fn is_away(&self) -> bool {
        matches!(
            self,
            Self::TimedOut { .. }
                | Self::Disconnected { .. }
                | Self::ConnectionLost
                | Self::SessionLost
        )
    }

    pub fn is_no_node(&self) -> bool {
        matches!(self, Self::NoNode(_))
    }

    /// The error of the operation that made a transaction fail.
    pub(crate) fn into_cause(self) -> Self {
        if let Self::Operation { source, .. } = self {
            return *source;
        }
        self
    }

    pub(crate) fn of_op(self, index: usize) -> Self {
        let source = Box::new(self);
        Self::Operation { index, source }
    }
}
