//! The embedded tree in our database. One process at a time owns it.

mod owner_process;
mod stored_nodes;

use std::sync::Arc;
use std::time::Duration;

use backplane::tree::{CallLimits, EmbeddedTree, TreeError, TreeLimits};
use domain::time::{Clock, Timestamp};
use store::tree_owners::{self, TreeOwner};
use store::{Store, StoreError};
use tokio::task::JoinHandle;

use owner_process::{Liveness, OwnerProcess};
use stored_nodes::StoredNodes;

/// An owner on another machine that wrote nothing for this long has ended. So has an
/// owner that wrote this far in the future: the clock was set back since.
const LEASE: Duration = Duration::from_secs(30);
/// The owner writes that it runs in this interval.
const RENEWAL: Duration = Duration::from_secs(10);

/// Host and number of this process, as they name the owner of the tree.
pub fn this_process() -> (String, u32) {
    let process = OwnerProcess::this();
    (process.host().to_owned(), process.pid())
}

/// The tree of this process, until it is closed or dropped.
pub struct OwnedTree {
    pub tree: EmbeddedTree,
    store: Store,
    epoch: i64,
    renewals: JoinHandle<()>,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenTreeError {
    #[error(
        "{0} owns the embedded tree of this database: stop it, or let all processes use ZooKeeper \
         (`[tree] kind = \"zookeeper\"`)"
    )]
    InUse(OwnerProcess),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Tree(#[from] TreeError),
}

/// Takes the tree, if no other process has it.
///
/// A process of this machine that was killed is noticed at once, one of another machine after half
/// a minute.
pub async fn open(store: &Store, clock: &Arc<dyn Clock>) -> Result<OwnedTree, OpenTreeError> {
    let process = OwnerProcess::this();
    let now = clock.now();
    let taken = store.write_durably("tree_take", move |tx| {
        let seen = tree_owners::get(tx)?;
        check_free(seen.as_ref(), now)?;
        Ok::<_, OpenTreeError>(tree_owners::take(
            tx,
            &process.to_json(),
            now,
            seen.as_ref(),
        )?)
    });
    let epoch = taken.await?;
    let nodes = StoredNodes::of_owner(store.clone(), epoch);
    let tree = match open_nodes(nodes, clock).await {
        Ok(tree) => tree,
        Err(error) => {
            // If this fails as well, this process may take it again, and another one when this
            // one has ended.
            let _ = release(store, epoch).await;
            return Err(error);
        }
    };
    let renewals = renew(store.clone(), Arc::clone(clock), tree.clone(), epoch);
    Ok(OwnedTree {
        tree,
        store: store.clone(),
        epoch,
        renewals: tokio::spawn(renewals),
    })
}

/// Opens the nodes as they are stored now, whichever process owns them. Writes are refused.
pub async fn open_to_read(
    store: &Store,
    clock: &Arc<dyn Clock>,
) -> Result<EmbeddedTree, OpenTreeError> {
    open_nodes(StoredNodes::to_read(store.clone()), clock).await
}

async fn open_nodes(
    nodes: StoredNodes,
    clock: &Arc<dyn Clock>,
) -> Result<EmbeddedTree, OpenTreeError> {
    let (tree_limits, limits) = (TreeLimits::default(), CallLimits::default());
    let nodes = Arc::new(nodes);
    Ok(EmbeddedTree::open(nodes, Arc::clone(clock), tree_limits, limits).await?)
}

/// Whether the tree can be taken from the owner that was read. If this is our own process, it took
/// the tree and did not get it open, or did not hear that it took it. The epoch keeps a first owner
/// in this process from writing.
fn check_free(owner: Option<&TreeOwner>, now: Timestamp) -> Result<(), OpenTreeError> {
    let Some(owner) = owner.filter(|owner| owner.renewed.as_millis() != 0) else {
        return Ok(());
    };
    let process = OwnerProcess::from_json(&owner.process);
    let lease_ms = i64::try_from(LEASE.as_millis()).unwrap_or(i64::MAX);
    let is_free = match process.liveness() {
        Liveness::Ended => true,
        Liveness::Running => process == OwnerProcess::this(),
        Liveness::Unknown => now.millis_since(owner.renewed).saturating_abs() > lease_ms,
    };
    if is_free {
        return Ok(());
    }
    Err(OpenTreeError::InUse(process))
}

/// Renews the lease until the tree is taken over.
async fn renew(store: Store, clock: Arc<dyn Clock>, tree: EmbeddedTree, epoch: i64) {
    loop {
        let _ = tokio::time::timeout(RENEWAL, std::future::pending::<()>()).await;
        let now = clock.now();
        let renewed = store.write("tree_renew", move |tx| tree_owners::renew(tx, epoch, now));
        match renewed.await {
            Ok(true) => {}
            Ok(false) => {
                tree.give_up("it took the tree over".to_owned());
                return;
            }
            // Writes of nodes have the same error, and tell their callers.
            Err(error) => tracing::warn!("cannot renew the lease of the tree: {error}"),
        }
    }
}

impl OwnedTree {
    /// Lets another process take the tree at once.
    pub async fn close(self) -> Result<(), StoreError> {
        self.renewals.abort();
        release(&self.store, self.epoch).await
    }
}

async fn release(store: &Store, epoch: i64) -> Result<(), StoreError> {
    let released = store.write_durably("tree_release", move |tx| tree_owners::release(tx, epoch));
    released.await
}

impl Drop for OwnedTree {
    fn drop(&mut self) {
        self.renewals.abort();
    }
}
