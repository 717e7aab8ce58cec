//! The embedded tree: in one process, with its persistent nodes in a database.

mod requests;
mod session;
mod state;
mod storage;
mod tree_loop;
mod undo;
mod watches;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use domain::time::Clock;
use tokio::sync::{mpsc, watch};

use super::error::TreeError;
use super::session::{SessionId, SessionState};
use requests::{Control, Request};
use state::TreeState;
use tree_loop::TreeLoop;

pub use session::EmbeddedSession;
pub use state::TreeLimits;
pub use storage::{MemoryStorage, StorageError, TreeBatch, TreeRow, TreeStorage};

/// Calls that wait for the tree's task. Further calls wait for room.
pub(crate) const QUEUED_CALLS: usize = 1_024;

/// Time limits of a tree.
#[derive(Clone, Copy, Debug)]
pub struct CallLimits {
    /// Each call ends within this time.
    pub call: Duration,
}

impl Default for CallLimits {
    fn default() -> Self {
        let call = Duration::from_secs(10);
        Self { call }
    }
}

/// An open tree. It ends with its last session and handle.
#[derive(Clone)]
pub struct EmbeddedTree {
    requests: mpsc::Sender<Request>,
    controls: mpsc::UnboundedSender<Control>,
    next_session: Arc<AtomicI64>,
    limits: CallLimits,
}

impl EmbeddedTree {
    /// Loads the nodes, and starts the task that keeps them.
    pub async fn open(
        storage: Arc<dyn TreeStorage>,
        clock: Arc<dyn Clock>,
        tree_limits: TreeLimits,
        limits: CallLimits,
    ) -> Result<Self, TreeError> {
        let rows = storage.load().await?;
        let state = TreeState::load(rows, tree_limits, clock.now())?;
        let (requests, request_receiver) = mpsc::channel(QUEUED_CALLS);
        let (controls, control_receiver) = mpsc::unbounded_channel();
        let tree_loop = TreeLoop::new(state, storage, clock, controls.downgrade());
        tokio::spawn(tree_loop.run(request_receiver, control_receiver));
        Ok(Self {
            requests,
            controls,
            next_session: Arc::new(AtomicI64::new(1)),
            limits,
        })
    }

    /// A new session. Its ephemeral nodes end when the last handle of it is dropped.
    pub fn session(&self) -> EmbeddedSession {
        let id = self.next_session_id();
        let (state, receiver) = watch::channel(SessionState::Connected(id));
        let _ = self.controls.send(Control::Begin { id, state });
        EmbeddedSession::new(self.clone(), receiver)
    }

    /// Ends all sessions, and refuses all calls: another process owns the tree now.
    pub fn give_up(&self, to: String) {
        let _ = self.controls.send(Control::TakenOver(to));
    }

    fn next_session_id(&self) -> SessionId {
        SessionId(self.next_session.fetch_add(1, Ordering::Relaxed))
    }
}

impl fmt::Debug for EmbeddedTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedTree").finish_non_exhaustive()
    }
}
