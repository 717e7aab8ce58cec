//! The tree: small nodes with versions, watches, sessions and locks, as ZooKeeper has them.
//!
//! [`Tree`] is one session's view of it. There are two implementations: [`EmbeddedTree`] keeps the
//! nodes in this process and in a database, for one machine; [`ZookeeperTree`] is a client of
//! ZooKeeper. [`SealedTree`] authenticates the nodes of either. Everything else here (locks,
//! members, shards, exports) uses the trait only.

mod embedded;
mod error;
mod export;
mod import;
mod lock;
mod lock_contender;
mod lock_directory;
mod members;
mod node;
mod nodepool;
mod path;
mod sealed;
mod session;
mod shards;
mod walk;
mod watch;
mod zookeeper;

use std::fmt::Debug;

use async_trait::async_trait;
use tokio::sync::watch::Receiver;

pub use embedded::{
    CallLimits, EmbeddedSession, EmbeddedTree, MemoryStorage, StorageError, TreeBatch, TreeLimits,
    TreeRow, TreeStorage,
};
pub use error::TreeError;
pub use export::{ExportedNode, TreeExport};
pub use import::{ImportError, ImportOptions, ImportSummary, import};
pub use lock::{Lock, LockError};
pub use lock_directory::{
    LockHolder, create_with_lock, delete_with_lock, is_locked, lock_holder, lock_path,
};
pub use members::{MEMBERS_PATH, Member, Membership, local_host, members};
pub use node::{Lifetime, Node, Op, OpResult, Stat};
pub use nodepool::{NodepoolImport, convert_nodepool};
pub use path::{BadTreePath, MAX_PATH_BYTES, TreePath};
pub use sealed::SealedTree;
pub use session::{SessionId, SessionState};
pub use shards::{keeper, rank};
pub use walk::{MAX_WALKED, create_parents, delete_subtree, walk};
pub use watch::{NodeWatch, SUBTREE_EVENTS, SubtreeWatch, TreeEvent};
pub use zookeeper::{TreeLogin, TreeTls, ZookeeperSettings, ZookeeperTree, check_servers};

/// Largest data of a node. ZooKeeper's limit of 1 MiB is for a message, which also holds the path
/// and the access list.
pub const MAX_DATA_BYTES: usize = 1_000_000;
/// Operations of one `multi`.
pub const MAX_OPS: usize = 1_000;

/// A session's view of the tree.
///
/// Every call ends at its time limit. Calls that are made in order take effect in order. A call
/// whose error is [`TreeError::is_outcome_unknown`] may have taken effect, or may still take it.
#[async_trait]
pub trait Tree: Debug + Send + Sync {
    /// Creates a node. Its parent must exist and be persistent.
    async fn create(
        &self,
        path: &TreePath,
        data: &[u8],
        lifetime: Lifetime,
    ) -> Result<Stat, TreeError>;

    /// Creates a node whose name is the prefix with ten digits that count up below this parent.
    ///
    /// The counter counts all nodes that were ever created below the parent.
    async fn create_sequential(
        &self,
        parent: &TreePath,
        prefix: &str,
        data: &[u8],
        lifetime: Lifetime,
    ) -> Result<(TreePath, Stat), TreeError>;

    async fn get(&self, path: &TreePath) -> Result<Node, TreeError>;

    /// Replaces the data of a node, if it has the expected version.
    async fn set(
        &self,
        path: &TreePath,
        data: &[u8],
        expected: Option<i32>,
    ) -> Result<Stat, TreeError>;

    /// Deletes a node without children, if it has the expected version.
    async fn delete(&self, path: &TreePath, expected: Option<i32>) -> Result<(), TreeError>;

    async fn exists(&self, path: &TreePath) -> Result<Option<Stat>, TreeError>;

    /// The names of a node's children, sorted.
    async fn children(&self, path: &TreePath) -> Result<Vec<String>, TreeError>;

    /// Carries out all operations, or none.
    async fn multi(&self, ops: &[Op]) -> Result<Vec<OpResult>, TreeError>;

    /// Reads whether a node exists, and watches for its creation, change or deletion, once.
    async fn watch_node(&self, path: &TreePath) -> Result<(Option<Stat>, NodeWatch), TreeError>;

    /// Reads the names of a node's children, and watches for their change, once.
    async fn watch_children(&self, path: &TreePath) -> Result<(Vec<String>, NodeWatch), TreeError>;

    /// Watches a node and everything below it until the watch is dropped.
    ///
    /// The node need not exist. The watch outlives the session: see [`TreeEvent::Resync`].
    async fn watch_subtree(&self, path: &TreePath) -> Result<SubtreeWatch, TreeError>;

    /// The state of the session. After a loss, a new session is made.
    fn session(&self) -> Receiver<SessionState>;
}
