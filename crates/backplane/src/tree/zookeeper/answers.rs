//! Answers of ZooKeeper as values and errors of the tree.

use domain::time::Timestamp;
use zookeeper_client::{Error, EventType, MultiWriteError, MultiWriteResult, WatchedEvent};

use crate::tree::error::TreeError;
use crate::tree::node::{Op, OpResult, Stat};
use crate::tree::path::TreePath;
use crate::tree::watch::TreeEvent;

/// The error of a call about a node.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the library adds errors, and all others are unexpected"
)]
pub(super) fn call_error(error: Error, path: &TreePath) -> TreeError {
    let path = || path.clone();
    match error {
        Error::NoNode => TreeError::NoNode(path()),
        Error::NodeExists => TreeError::NodeExists(path()),
        Error::BadVersion => TreeError::BadVersion(path()),
        Error::NotEmpty => TreeError::NotEmpty(path()),
        Error::NoChildrenForEphemerals => TreeError::EphemeralParent(path()),
        Error::NoAuth => TreeError::NotPermitted(path()),
        other => request_error(other),
    }
}

/// The error of a call that was sent. The library reports a closed or silent connection as a text.
/// The session continues on its next connection.
fn request_error(error: Error) -> TreeError {
    if matches!(error, Error::Custom(_)) {
        return TreeError::ConnectionLost;
    }
    session_error(error)
}

/// The error of a creation: a node that does not exist is the parent.
pub(super) fn create_error(error: Error, path: &TreePath) -> TreeError {
    match (call_error(error, path), path.parent()) {
        (TreeError::NoNode(_), Some(parent)) => TreeError::NoNode(parent),
        (error, _) => error,
    }
}

/// The error of a connection or a session.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the library adds errors, and all others are unexpected"
)]
pub(super) fn session_error(error: Error) -> TreeError {
    match error {
        Error::ConnectionLoss => TreeError::ConnectionLost,
        Error::SessionExpired | Error::SessionMoved | Error::ClientClosed => TreeError::SessionLost,
        Error::AuthFailed => {
            TreeError::LoginRefused("the user or the password is wrong".to_owned())
        }
        Error::InvalidAcl => {
            let reason = "the server does not know the kind of login; check `authentication`";
            TreeError::LoginRefused(reason.to_owned())
        }
        other => TreeError::Unexpected(other.to_string()),
    }
}

pub(super) fn multi_error(error: MultiWriteError, ops: &[Op]) -> TreeError {
    match error {
        MultiWriteError::RequestFailed { source } => request_error(source),
        MultiWriteError::OperationFailed { index, source } => match ops.get(index) {
            Some(Op::Create { path, .. }) => create_error(source, path).of_op(index),
            Some(op) => call_error(source, op.path()).of_op(index),
            None => request_error(source),
        },
    }
}

pub(super) fn to_stat(stat: &zookeeper_client::Stat) -> Stat {
    let count = |number: i32| u32::try_from(number).unwrap_or_default();
    // The server counts creations and deletions together.
    let created = (i64::from(stat.cversion) + i64::from(stat.num_children)) / 2;
    Stat {
        created_by: stat.czxid,
        created: Timestamp::from_millis(stat.ctime),
        changed: Timestamp::from_millis(stat.mtime),
        version: stat.version,
        n_children: count(stat.num_children),
        next_sequence: u32::try_from(created).unwrap_or_default(),
        size_bytes: count(stat.data_length),
        owner: (stat.ephemeral_owner != 0).then_some(stat.ephemeral_owner),
    }
}

pub(super) fn to_result(result: MultiWriteResult) -> Result<OpResult, TreeError> {
    match result {
        MultiWriteResult::Check => Ok(OpResult::Checked),
        MultiWriteResult::Delete => Ok(OpResult::Deleted),
        MultiWriteResult::Create { path, .. } => Ok(OpResult::Created(path.parse()?)),
        MultiWriteResult::SetData { stat } => Ok(OpResult::Set(to_stat(&stat))),
        other => Err(TreeError::Unexpected(format!("{other:?}"))),
    }
}

/// The event of a watch that was set once, on this node.
pub(super) fn node_event(event: WatchedEvent, path: &TreePath) -> TreeEvent {
    let path = path.clone();
    match event.event_type {
        EventType::NodeCreated => TreeEvent::Created(path),
        EventType::NodeDeleted => TreeEvent::Deleted(path),
        EventType::NodeDataChanged => TreeEvent::Changed(path),
        EventType::NodeChildrenChanged => TreeEvent::Children(path),
        EventType::Session => TreeEvent::Resync,
    }
}

/// The event of a watch of a subtree. A path that is not ours to parse means: read again.
pub(super) fn subtree_event(event: WatchedEvent) -> TreeEvent {
    match event.path.parse() {
        Ok(path) => node_event(event, &path),
        Err(_) => TreeEvent::Resync,
    }
}
