//! Watches: notifications of changes.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc;

use super::path::TreePath;

/// Events that a watch of a subtree keeps for a slow reader. Instead of more, it gets one
/// [`TreeEvent::Resync`].
pub const SUBTREE_EVENTS: usize = 10_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeEvent {
    Created(TreePath),
    /// The data of the node changed.
    Changed(TreePath),
    Deleted(TreePath),
    /// Children of the node were created or deleted.
    Children(TreePath),
    /// Changes may have been missed: read again. A watch of one node must be set again, too.
    Resync,
}

/// Waits for one change of a node or of its children.
pub struct NodeWatch(Pin<Box<dyn Future<Output = TreeEvent> + Send>>);

impl NodeWatch {
    /// A watch that waits for this event.
    pub fn of(event: impl Future<Output = TreeEvent> + Send + 'static) -> Self {
        Self(Box::pin(event))
    }

    /// Returns at the first change, or when the session ends.
    pub async fn changed(self) -> TreeEvent {
        self.0.await
    }
}

impl fmt::Debug for NodeWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeWatch").finish_non_exhaustive()
    }
}

/// The changes of a node and of everything below it, in order.
#[derive(Debug)]
pub struct SubtreeWatch {
    events: mpsc::Receiver<TreeEvent>,
    has_missed: Arc<AtomicBool>,
}

/// The other end of a [`SubtreeWatch`].
#[derive(Clone, Debug)]
pub(crate) struct SubtreeSender {
    events: mpsc::Sender<TreeEvent>,
    has_missed: Arc<AtomicBool>,
}

pub(crate) fn subtree_watch(capacity: usize) -> (SubtreeSender, SubtreeWatch) {
    let (sender, receiver) = mpsc::channel(capacity);
    let has_missed = Arc::new(AtomicBool::new(false));
    let sender = SubtreeSender {
        events: sender,
        has_missed: Arc::clone(&has_missed),
    };
    let watch = SubtreeWatch {
        events: receiver,
        has_missed,
    };
    (sender, watch)
}

impl SubtreeSender {
    /// Hands over an event, or notes that one was missed. Returns whether anybody reads.
    pub(crate) fn send(&self, event: TreeEvent) -> bool {
        if self.has_missed.load(Ordering::Acquire) {
            return !self.events.is_closed();
        }
        match self.events.try_send(event) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Full(event)) => {
                self.has_missed.store(true, Ordering::Release);
                // If the reader emptied the queue meanwhile, this wakes it, and it finds the note.
                let _ = self.events.try_send(event);
                true
            }
            Err(mpsc::error::TrySendError::Closed(_)) => false,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.events.is_closed()
    }

    pub(crate) async fn closed(&self) {
        self.events.closed().await;
    }
}

impl SubtreeWatch {
    /// The next event; `None` when the tree has been closed.
    pub async fn next(&mut self) -> Option<TreeEvent> {
        // Events are missed only while the queue is full, so the note is found behind them.
        if let Ok(event) = self.events.try_recv() {
            return Some(event);
        }
        if self.has_missed.swap(false, Ordering::AcqRel) {
            return Some(TreeEvent::Resync);
        }
        self.events.recv().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_slow_reader_gets_as_many_events_as_fit_and_one_note_of_the_others() {
        let sizes = testing::sizes_around("backplane::tree::watch::SUBTREE_EVENTS", SUBTREE_EVENTS);
        for n_events in sizes {
            let (sender, mut watch) = subtree_watch(SUBTREE_EVENTS);
            for _ in 0..n_events {
                assert!(sender.send(TreeEvent::Changed(TreePath::root())));
            }
            for _ in 0..n_events.min(SUBTREE_EVENTS) {
                let event = watch.next().await;
                assert_eq!(event, Some(TreeEvent::Changed(TreePath::root())));
            }
            if n_events > SUBTREE_EVENTS {
                assert_eq!(watch.next().await, Some(TreeEvent::Resync));
            }
            sender.send(TreeEvent::Deleted(TreePath::root()));
            let event = watch.next().await;
            assert_eq!(event, Some(TreeEvent::Deleted(TreePath::root())));
            drop(sender);
            assert_eq!(watch.next().await, None);
        }
    }

    #[tokio::test]
    async fn a_sender_learns_that_its_reader_ended() {
        let (sender, watch) = subtree_watch(1);
        drop(watch);
        assert!(!sender.send(TreeEvent::Resync));
        sender.closed().await;
    }
}
