//! Members: the processes that use the tree now.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::Tree;
use super::error::TreeError;
use super::node::Lifetime;
use super::path::TreePath;
use super::session::{SessionId, SessionState};
use super::walk::create_parents;

/// The parent of all members.
pub const MEMBERS_PATH: &str = "/fleetwright/members";
/// Pause between two attempts to join.
const RETRY: Duration = Duration::from_secs(1);

/// A process, as it describes itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The roles of the process, such as `builder`.
    pub role: Vec<String>,
    /// Where other processes reach it; empty if they cannot.
    pub address: String,
    pub version: String,
}

/// Keeps a process in the list of members until it is dropped, also over lost sessions.
#[derive(Debug)]
pub struct Membership {
    tree: Arc<dyn Tree>,
    path: TreePath,
    data: watch::Sender<Vec<u8>>,
    task: JoinHandle<()>,
    has_left: bool,
    runtime: Handle,
}

impl Membership {
    /// Joins under a name that no other process has.
    pub async fn join(
        tree: &Arc<dyn Tree>,
        name: &str,
        member: &Member,
    ) -> Result<Self, TreeError> {
        let text = serde_json::to_vec(member);
        let text = text.map_err(|error| TreeError::Unexpected(error.to_string()))?;
        Self::join_at(tree, members_path()?.join(name)?, text).await
    }

    /// Joins another list than that of members: keeps an ephemeral node with this data.
    pub async fn join_at(
        tree: &Arc<dyn Tree>,
        path: TreePath,
        data: Vec<u8>,
    ) -> Result<Self, TreeError> {
        let session = register(tree, &path, &data).await?;
        let (sender, data) = watch::channel(data);
        let task = tokio::spawn(stay(Arc::clone(tree), path.clone(), data, session));
        Ok(Self {
            tree: Arc::clone(tree),
            path,
            data: sender,
            task,
            has_left: false,
            runtime: Handle::current(),
        })
    }

    /// Replaces the data of the node, also in later sessions.
    pub fn replace(&self, data: Vec<u8>) {
        self.data.send_replace(data);
    }

    /// Leaves the list, and waits until the node is deleted. Dropping leaves it soon.
    pub async fn leave(mut self) -> Result<(), TreeError> {
        self.task.abort();
        delete_own(&self.tree, &self.path).await?;
        self.has_left = true;
        Ok(())
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.task.abort();
        if self.has_left {
            return;
        }
        let (tree, path) = (Arc::clone(&self.tree), self.path.clone());
        // If this fails, the node ends with the session.
        self.runtime
            .spawn(async move { delete_own(&tree, &path).await });
    }
}

/// Deletes the node, unless it is of the next process with this name.
async fn delete_own(tree: &Arc<dyn Tree>, path: &TreePath) -> Result<(), TreeError> {
    let owner = tree.exists(path).await?.and_then(|stat| stat.owner);
    let is_own = |owner: i64| tree.session().borrow().may_be(SessionId(owner));
    if !owner.is_some_and(is_own) {
        return Ok(());
    }
    match tree.delete(path, None).await {
        Ok(()) | Err(TreeError::NoNode(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The name of this machine, as a part of a node's name.
pub fn local_host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let allowed = |character: &char| character.is_ascii_alphanumeric() || *character == '-';
    let name: String = name.chars().filter(allowed).take(64).collect();
    if name.is_empty() {
        "host".to_owned()
    } else {
        name
    }
}

fn members_path() -> Result<TreePath, TreeError> {
    Ok(MEMBERS_PATH.parse()?)
}

/// Creates the node of a member. Returns the session that owns it.
async fn register(
    tree: &Arc<dyn Tree>,
    path: &TreePath,
    text: &[u8],
) -> Result<Option<SessionId>, TreeError> {
    create_parents(tree, path).await?;
    loop {
        let session = tree.session().borrow().connected();
        match tree.create(path, text, Lifetime::Ephemeral).await {
            Ok(stat) => return Ok(stat.owner.map(SessionId)),
            Err(TreeError::NodeExists(_)) => {}
            Err(error) => return Err(error),
        }
        let (stat, watch) = tree.watch_node(path).await?;
        match stat.map(|stat| stat.owner) {
            // An earlier attempt succeeded without its answer.
            Some(owner) if owner == session.map(|session| session.0) => {
                tree.set(path, text, None).await?;
                return Ok(session);
            }
            // The node of an earlier session of this process ends with that session.
            Some(_) => drop(watch.changed().await),
            None => {}
        }
    }
}

/// Registers again with each new session, when the data changes, and when the node was deleted.
async fn stay(
    tree: Arc<dyn Tree>,
    path: TreePath,
    mut data: watch::Receiver<Vec<u8>>,
    mut registered: Option<SessionId>,
) {
    let mut state = tree.session();
    loop {
        let is_new = |state: &SessionState| {
            let session = state.connected();
            session.is_some() && session != registered
        };
        tokio::select! {
            changed = state.wait_for(is_new) => if changed.is_err() {
                return;
            },
            changed = data.changed() => if changed.is_err() {
                return;
            },
            () = until_lost(&tree, &path, registered) => {}
        }
        let text = data.borrow_and_update().clone();
        match register(&tree, &path, &text).await {
            Ok(session) => registered = session,
            Err(_) => {
                registered = None;
                drop(timeout(RETRY, std::future::pending::<()>()).await);
            }
        }
    }
}

/// Waits until the node is not of this session any more.
async fn until_lost(tree: &Arc<dyn Tree>, path: &TreePath, session: Option<SessionId>) {
    loop {
        match tree.watch_node(path).await {
            Ok((Some(stat), watch)) if stat.owner == session.map(|session| session.0) => {
                drop(watch.changed().await);
            }
            Ok(_) => return,
            Err(_) => drop(timeout(RETRY, std::future::pending::<()>()).await),
        }
    }
}

/// All members by name. A node that no version of this program wrote is left out.
pub async fn members(tree: &Arc<dyn Tree>) -> Result<BTreeMap<String, Member>, TreeError> {
    let parent = members_path()?;
    let names = match tree.children(&parent).await {
        Err(TreeError::NoNode(_)) => return Ok(BTreeMap::new()),
        names => names?,
    };
    let mut members = BTreeMap::new();
    for name in names {
        match tree.get(&parent.join(&name)?).await {
            Ok(node) => {
                if let Ok(member) = serde_json::from_slice(&node.data) {
                    members.insert(name, member);
                }
            }
            Err(TreeError::NoNode(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(members)
}
