//! The watches of an embedded tree.

use std::collections::BTreeMap;

use tokio::sync::oneshot;

use super::requests::WatchKind;
use crate::tree::path::TreePath;
use crate::tree::session::SessionId;
use crate::tree::watch::{SubtreeSender, TreeEvent};

type OneShots = BTreeMap<TreePath, BTreeMap<u64, OneShot>>;

#[derive(Debug)]
struct OneShot {
    session: SessionId,
    sender: oneshot::Sender<TreeEvent>,
}

#[derive(Debug)]
struct Subtree {
    root: TreePath,
    session: SessionId,
    sender: SubtreeSender,
}

#[derive(Debug, Default)]
pub(super) struct Watches {
    nodes: OneShots,
    children: OneShots,
    subtrees: Vec<Subtree>,
}

impl Watches {
    pub(super) fn add(
        &mut self,
        kind: WatchKind,
        path: TreePath,
        number: u64,
        session: SessionId,
    ) -> oneshot::Receiver<TreeEvent> {
        let (sender, receiver) = oneshot::channel();
        let watch = OneShot { session, sender };
        let of_path = self.of_kind(kind).entry(path).or_default();
        of_path.insert(number, watch);
        receiver
    }

    pub(super) fn remove(&mut self, kind: WatchKind, path: &TreePath, number: u64) {
        let watches = self.of_kind(kind);
        if let Some(of_path) = watches.get_mut(path) {
            of_path.remove(&number);
            if of_path.is_empty() {
                watches.remove(path);
            }
        }
    }

    pub(super) fn add_subtree(
        &mut self,
        root: TreePath,
        session: SessionId,
        sender: SubtreeSender,
    ) {
        self.subtrees.push(Subtree {
            root,
            session,
            sender,
        });
    }

    /// Hands the watches of subtrees of a session that ended over to the next one.
    pub(super) fn move_subtrees(&mut self, ended: SessionId, next: SessionId) {
        for subtree in &mut self.subtrees {
            if subtree.session == ended {
                subtree.session = next;
                subtree.sender.send(TreeEvent::Resync);
            }
        }
    }

    fn of_kind(&mut self, kind: WatchKind) -> &mut OneShots {
        match kind {
            WatchKind::Node => &mut self.nodes,
            WatchKind::Children => &mut self.children,
        }
    }

    pub(super) fn notify(&mut self, event: &TreeEvent) {
        match event {
            TreeEvent::Created(path) | TreeEvent::Changed(path) => {
                fire(&mut self.nodes, path, event);
                self.notify_subtrees(path, event);
            }
            TreeEvent::Deleted(path) => {
                fire(&mut self.nodes, path, event);
                fire(&mut self.children, path, event);
                self.notify_subtrees(path, event);
            }
            TreeEvent::Children(path) => fire(&mut self.children, path, event),
            TreeEvent::Resync => {}
        }
    }

    fn notify_subtrees(&mut self, path: &TreePath, event: &TreeEvent) {
        self.subtrees.retain(|subtree| {
            let concerns = path.is_within(&subtree.root);
            !concerns || subtree.sender.send(event.clone())
        });
    }

    /// Removes the watches of subtrees whose readers ended.
    pub(super) fn sweep(&mut self) {
        self.subtrees.retain(|subtree| !subtree.sender.is_closed());
    }

    /// Removes the watches of subtrees of a session that ended for good.
    pub(super) fn remove_subtrees(&mut self, session: SessionId) {
        self.subtrees.retain(|subtree| subtree.session != session);
    }

    /// Notifies the watches of a session that ended.
    pub(super) fn end_session(&mut self, session: SessionId) {
        for watches in [&mut self.nodes, &mut self.children] {
            watches.retain(|_, of_path| {
                let ended = of_path.extract_if(.., |_, watch| watch.session == session);
                for (_, watch) in ended {
                    let _ = watch.sender.send(TreeEvent::Resync);
                }
                !of_path.is_empty()
            });
        }
    }
}

fn fire(watches: &mut OneShots, path: &TreePath, event: &TreeEvent) {
    for watch in watches.remove(path).unwrap_or_default().into_values() {
        let _ = watch.sender.send(event.clone());
    }
}
