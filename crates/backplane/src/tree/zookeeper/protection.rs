//! Access lists of nodes that exist: whether somebody else may write to them.

use std::sync::Arc;

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use zookeeper_client::{Acl, Client, Error};

use super::answers::call_error;
use super::{Tree as _, ZookeeperTree};
use crate::tree::error::TreeError;
use crate::tree::path::TreePath;
use crate::tree::walk::MAX_WALKED;

/// Calls at once.
const CALLS_AT_ONCE: usize = 64;
/// Nodes that an error names.
const NAMED: usize = 5;

impl ZookeeperTree {
    /// Fails if a node below the root has another access list than those that we create: somebody
    /// else made it, or it is from a time without a user. Without a user there is nothing to check.
    pub async fn check_protection(&self, below: &TreePath) -> Result<(), TreeError> {
        let open = self.unprotected(below).await?;
        if open.is_empty() {
            return Ok(());
        }
        let named: Vec<&str> = open.iter().take(NAMED).map(TreePath::as_str).collect();
        Err(TreeError::Unprotected {
            n_nodes: open.len(),
            named: named.join(", "),
        })
    }

    /// Gives nodes with another access list ours. Returns their paths.
    pub async fn protect(&self, below: &TreePath) -> Result<Vec<TreePath>, TreeError> {
        let open = self.unprotected(below).await?;
        for path in &open {
            let acls = Arc::clone(&self.acls);
            let set = self.call(|client| async move {
                match client.set_acl(path.as_str(), &acls, None).await {
                    Ok(_) | Err(Error::NoNode) => Ok(()),
                    Err(error) => Err(call_error(error, path)),
                }
            });
            set.await?;
        }
        Ok(open)
    }

    /// The nodes with another access list, parents first.
    async fn unprotected(&self, below: &TreePath) -> Result<Vec<TreePath>, TreeError> {
        if !self.has_login {
            return Ok(Vec::new());
        }
        let mut open = Vec::new();
        // Everybody may usually write to the root of ZooKeeper itself, which is not ours.
        if self.has_root && !self.is_ours(&TreePath::root()).await? {
            open.push(TreePath::root());
        }
        let (mut level, mut n_seen) = (vec![below.clone()], 0);
        while !level.is_empty() {
            n_seen += level.len();
            if n_seen > MAX_WALKED {
                return Err(TreeError::Full(format!("{MAX_WALKED} nodes below {below}")));
            }
            let looks = level.into_iter().map(|path| self.look(path));
            let looks = stream::iter(looks).buffered(CALLS_AT_ONCE);
            let seen: Vec<Option<Seen>> = looks.try_collect().await?;
            level = Vec::new();
            for node in seen.into_iter().flatten() {
                for name in &node.children {
                    level.push(node.path.join(name)?);
                }
                if !node.is_ours {
                    open.push(node.path);
                }
            }
        }
        Ok(open)
    }

    /// `None`: the node does not exist.
    async fn look(&self, path: TreePath) -> Result<Option<Seen>, TreeError> {
        let is_ours = match self.is_ours(&path).await {
            Err(TreeError::NoNode(_)) => return Ok(None),
            is_ours => is_ours?,
        };
        match self.children(&path).await {
            Ok(children) => Ok(Some(Seen {
                path,
                is_ours,
                children,
            })),
            Err(TreeError::NoNode(_)) => Ok(None),
            // Another user's, and closed to us.
            Err(TreeError::NotPermitted(_)) => Ok(Some(Seen {
                path,
                is_ours: false,
                children: Vec::new(),
            })),
            Err(error) => Err(error),
        }
    }

    async fn is_ours(&self, path: &TreePath) -> Result<bool, TreeError> {
        let read = self.call(|client: Client| async move {
            match client.get_acl(path.as_str()).await {
                Ok((acls, _)) => Ok(Some(acls)),
                // Another user's.
                Err(Error::NoAuth) => Ok(None),
                Err(error) => Err(call_error(error, path)),
            }
        });
        let acls: Option<Vec<Acl>> = read.await?;
        Ok(acls.is_some_and(|acls| acls == *self.acls))
    }
}

struct Seen {
    path: TreePath,
    is_ours: bool,
    children: Vec<String>,
}
