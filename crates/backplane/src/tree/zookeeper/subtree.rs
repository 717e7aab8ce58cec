//! Watches of subtrees that outlive sessions.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use zookeeper_client::{AddWatchMode, Client, EventType, PersistentWatcher, SessionState};

use super::answers::{call_error, subtree_event};
use super::link::Link;
use crate::tree::error::TreeError;
use crate::tree::path::TreePath;
use crate::tree::session::SessionId;
use crate::tree::watch::{SubtreeSender, TreeEvent};

/// Pause after an attempt to set a watch that failed.
const RETRY: Duration = Duration::from_millis(500);

/// Sets the watch in the current session.
pub(super) async fn watch(
    client: Client,
    path: TreePath,
) -> Result<(PersistentWatcher, SessionId), TreeError> {
    let watcher = client.watch(path.as_str(), AddWatchMode::PersistentRecursive);
    let watcher = watcher.await.map_err(|error| call_error(error, &path))?;
    Ok((watcher, SessionId(client.session_id().0)))
}

/// Forwards events until the reader ends or the tree is dropped. With each new connection the watch
/// is set again.
pub(super) async fn forward(
    mut link: watch::Receiver<Link>,
    path: TreePath,
    watcher: PersistentWatcher,
    session: SessionId,
    sender: SubtreeSender,
) {
    let mut current = Some(watcher);
    let mut watched = Some(session);
    let mut replaced = None;
    loop {
        if let Some(mut watcher) = current.take() {
            tokio::select! {
                () = sender.closed() => return,
                interruption = forward_events(&mut watcher, &sender) => match interruption {
                    Interruption::Reconnected => watched = None,
                    Interruption::Ended => {}
                },
            }
            // The old watcher is dropped after the next one is set: otherwise its removal could
            // remove that one.
            replaced = Some(watcher);
        }
        let is_new = |link: &Link| {
            let client = link.client.as_ref();
            client.is_some_and(|client| Some(SessionId(client.session_id().0)) != watched)
        };
        let next = tokio::select! {
            () = sender.closed() => return,
            next = link.wait_for(is_new) => next.ok().and_then(|link| link.client.clone()),
        };
        // Without a link, the tree was dropped.
        let Some(client) = next else {
            return;
        };
        if let Ok((watcher, session)) = watch(client, path.clone()).await {
            current = Some(watcher);
            watched = Some(session);
            drop(replaced.take());
            sender.send(TreeEvent::Resync);
        } else {
            watched = None;
            let _ = timeout(RETRY, sender.closed()).await;
        }
    }
}

/// Why a watch sees nothing more.
enum Interruption {
    /// The session goes on with another connection, for which the client sets watches of nodes
    /// again, and none of subtrees.
    Reconnected,
    Ended,
}

async fn forward_events(watcher: &mut PersistentWatcher, sender: &SubtreeSender) -> Interruption {
    loop {
        let event = watcher.changed().await;
        match (event.event_type, event.session_state) {
            (EventType::Session, SessionState::SyncConnected) => return Interruption::Reconnected,
            (EventType::Session, state) if state.is_terminated() => return Interruption::Ended,
            (EventType::Session, _) => {}
            (
                EventType::NodeCreated
                | EventType::NodeDeleted
                | EventType::NodeDataChanged
                | EventType::NodeChildrenChanged,
                _,
            ) => {
                sender.send(subtree_event(event));
            }
        }
    }
}
