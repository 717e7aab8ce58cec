//! Walks through a subtree: reads all of it, makes the parents of a node, deletes a subtree.

use std::sync::Arc;

use futures_util::stream::{self, StreamExt, TryStreamExt};

use super::Tree;
use super::error::TreeError;
use super::node::{Lifetime, Node, Op};
use super::path::TreePath;

/// Nodes of one walk. A larger subtree is an error.
pub const MAX_WALKED: usize = 1_000_000;
/// Reads at once.
const READS_AT_ONCE: usize = 64;
/// Deletions of one transaction: with the longest paths they fit into a message.
const DELETIONS_AT_ONCE: usize = 500;
/// ZooKeeper's own nodes.
const RESERVED: &str = "/zookeeper";

/// All nodes of a subtree with their data, parents before their children, in the order of their
/// paths. Nodes that are deleted meanwhile are left out.
pub async fn walk(
    tree: &Arc<dyn Tree>,
    root: &TreePath,
    limit: usize,
) -> Result<Vec<(TreePath, Node)>, TreeError> {
    let mut found = Vec::new();
    let mut level = vec![root.clone()];
    while !level.is_empty() {
        if found.len() + level.len() > limit {
            return Err(TreeError::Full(format!("{limit} nodes below {root}")));
        }
        let reads = level.into_iter().map(|path| read(tree, path));
        let mut reads = stream::iter(reads).buffered(READS_AT_ONCE);
        let mut next = Vec::new();
        while let Some(read) = reads.try_next().await? {
            let Some((path, node, names)) = read else {
                continue;
            };
            for name in names {
                let child = path.join(&name)?;
                if child.as_str() != RESERVED {
                    next.push(child);
                }
            }
            found.push((path, node));
        }
        level = next;
    }
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(found)
}

/// A node with the names of its children; `None` if it does not exist.
async fn read(
    tree: &Arc<dyn Tree>,
    path: TreePath,
) -> Result<Option<(TreePath, Node, Vec<String>)>, TreeError> {
    let node = match tree.get(&path).await {
        Err(TreeError::NoNode(_)) => return Ok(None),
        node => node?,
    };
    if node.stat.n_children == 0 {
        return Ok(Some((path, node, Vec::new())));
    }
    match tree.children(&path).await {
        Err(TreeError::NoNode(_)) => Ok(None),
        names => Ok(Some((path, node, names?))),
    }
}

/// Creates the parents of a node that do not exist, empty and persistent.
pub async fn create_parents(tree: &Arc<dyn Tree>, path: &TreePath) -> Result<(), TreeError> {
    let mut missing = Vec::new();
    let mut above = path.parent();
    while let Some(parent) = above {
        if parent.is_root() || tree.exists(&parent).await?.is_some() {
            break;
        }
        above = parent.parent();
        missing.push(parent);
    }
    for parent in missing.into_iter().rev() {
        match tree.create(&parent, b"", Lifetime::Persistent).await {
            // Another process creates the same parents.
            Ok(_) | Err(TreeError::NodeExists(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Deletes a node with everything below it, in several transactions. Returns how many nodes
/// were deleted.
///
/// A node that is created meanwhile makes it fail with [`TreeError::NotEmpty`]; calling it again
/// goes on.
pub async fn delete_subtree(tree: &Arc<dyn Tree>, root: &TreePath) -> Result<usize, TreeError> {
    let nodes = walk(tree, root, MAX_WALKED).await?;
    let mut n_deleted = 0;
    // Children before their parents.
    let paths: Vec<TreePath> = nodes.into_iter().rev().map(|(path, _)| path).collect();
    for chunk in paths.chunks(DELETIONS_AT_ONCE) {
        let ops: Vec<Op> = chunk.iter().cloned().map(Op::delete).collect();
        match tree.multi(&ops).await {
            Ok(_) => n_deleted += chunk.len(),
            // Some were deleted by others: one by one.
            Err(TreeError::Operation { .. }) => {
                for path in chunk {
                    match tree.delete(path, None).await {
                        Ok(()) => n_deleted += 1,
                        Err(TreeError::NoNode(_)) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(n_deleted)
}
