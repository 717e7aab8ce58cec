//! A contender for a lock: an ephemeral node that is surely removed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::timeout;

use super::Tree;
use super::error::TreeError;
use super::node::{Lifetime, Stat};
use super::path::TreePath;
use super::session::{SessionId, SessionState, session_ended};

/// Pause between two attempts to remove a contender.
const RETRY: Duration = Duration::from_millis(500);

/// Removes the contender when it is dropped, also if it is unknown whether it was created: a node
/// that is left behind would become the holder later, without a process that knows it (kazoo's
/// issue 732).
#[derive(Debug)]
pub(super) struct Contender {
    tree: Arc<dyn Tree>,
    directory: TreePath,
    /// The name without its number. No other contender begins with it.
    prefix: String,
    pub(super) session: SessionId,
    runtime: Handle,
    is_removed: bool,
}

/// The node of a contender.
#[derive(Debug)]
pub(super) struct ContenderNode {
    pub(super) path: TreePath,
    pub(super) stat: Stat,
}

impl Contender {
    /// Creates the node. It never creates the directory.
    pub(super) async fn create(
        tree: &Arc<dyn Tree>,
        directory: &TreePath,
        holder: &str,
        session: SessionId,
    ) -> Result<(Self, ContenderNode), TreeError> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        let prefix = format!("{session}-{process}-{number}-");
        let contender = Self {
            tree: Arc::clone(tree),
            directory: directory.clone(),
            prefix,
            session,
            runtime: Handle::current(),
            is_removed: false,
        };
        let created = tree.create_sequential(
            directory,
            &contender.prefix,
            holder.as_bytes(),
            Lifetime::Ephemeral,
        );
        match created.await {
            Ok((path, stat)) => Ok((contender, ContenderNode { path, stat })),
            Err(error) if error.is_outcome_unknown() => Err(error),
            Err(error) => {
                contender.forget();
                Err(error)
            }
        }
    }

    /// The node was removed, or was never created.
    pub(super) fn forget(mut self) {
        self.is_removed = true;
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        if !self.is_removed {
            let tree = Arc::clone(&self.tree);
            let prefix = std::mem::take(&mut self.prefix);
            let directory = self.directory.clone();
            let removal = remove(tree, directory, prefix, self.session);
            self.runtime.spawn(removal);
        }
    }
}

/// Tries until the node is removed, or its session has ended and the tree removes it.
async fn remove(tree: Arc<dyn Tree>, directory: TreePath, prefix: String, session: SessionId) {
    let mut state = tree.session();
    loop {
        let settled = |state: &SessionState| !matches!(state, SessionState::Suspended(_));
        match state.wait_for(settled).await {
            Ok(state) if *state == SessionState::Connected(session) => {}
            Ok(_) | Err(_) => return,
        }
        match remove_once(&tree, &directory, &prefix).await {
            Ok(()) | Err(TreeError::NoNode(_)) => return,
            // The pause ends early with the session.
            Err(_) => drop(timeout(RETRY, session_ended(&mut state, session)).await),
        }
    }
}

async fn remove_once(
    tree: &Arc<dyn Tree>,
    directory: &TreePath,
    prefix: &str,
) -> Result<(), TreeError> {
    let names = tree.children(directory).await?;
    for name in names.iter().filter(|name| name.starts_with(prefix)) {
        tree.delete(&directory.join(name)?, None).await?;
    }
    Ok(())
}
