//! Sessions with the tree: their states, and waiting for them.

use std::fmt;
use std::time::Duration;

use tokio::sync::watch::Receiver;
use tokio::time::timeout;

/// Names a session. No two sessions of a tree have the same id at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionId(pub i64);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    Connected(SessionId),
    /// The connection is lost. The session may continue, or may have ended already: stop work that
    /// only one process may do.
    Suspended(SessionId),
    /// No session: the last one ended with its ephemeral nodes, and a new one is being made.
    Lost,
}

impl SessionState {
    pub fn connected(self) -> Option<SessionId> {
        match self {
            Self::Connected(id) => Some(id),
            Self::Suspended(_) | Self::Lost => None,
        }
    }

    /// Whether the session can still be this one.
    pub fn may_be(self, session: SessionId) -> bool {
        match self {
            Self::Connected(id) | Self::Suspended(id) => id == session,
            Self::Lost => false,
        }
    }
}

/// Waits until a session is connected; `None` if it takes longer than the limit, or no session will
/// follow.
pub(crate) async fn connected_session(
    state: &mut Receiver<SessionState>,
    limit: Duration,
) -> Option<SessionId> {
    let connected = state.wait_for(|state| state.connected().is_some());
    let state = timeout(limit, connected).await.ok()?.ok()?;
    state.connected()
}

/// Returns as soon as the session is not surely connected any more.
pub(crate) async fn session_uncertain(state: &mut Receiver<SessionState>, session: SessionId) {
    let uncertain = |state: &SessionState| *state != SessionState::Connected(session);
    // An error means that the tree has been dropped, and its session with it.
    let _ = state.wait_for(uncertain).await;
}

/// Returns when the session has ended.
pub(crate) async fn session_ended(state: &mut Receiver<SessionState>, session: SessionId) {
    let _ = state.wait_for(|state| !state.may_be(session)).await;
}
