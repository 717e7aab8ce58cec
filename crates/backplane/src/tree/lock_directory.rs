//! Lock directories: nodes that can be locked, and who holds their locks.

use std::sync::Arc;

use super::Tree;
use super::error::TreeError;
use super::node::{Op, sequence_of};
use super::path::TreePath;

/// The directory of contenders, below the node that is locked.
const DIRECTORY: &str = "lock";
/// Contenders that come while a node is deleted make the deletion start again; not more often.
const DELETE_ATTEMPTS: usize = 100;

/// The holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// The text that the holder gave.
    pub holder: String,
    /// The holder's fencing number.
    pub number: i64,
    pub n_waiting: usize,
}

/// The directory of a node's contenders.
pub fn lock_path(node: &TreePath) -> Result<TreePath, TreeError> {
    Ok(node.join(DIRECTORY)?)
}

/// Creates a node that can be locked. Its parent must exist.
pub async fn create_with_lock(
    tree: &Arc<dyn Tree>,
    node: &TreePath,
    data: &[u8],
) -> Result<(), TreeError> {
    let ops = [
        Op::create(node.clone(), data),
        Op::create(lock_path(node)?, ""),
    ];
    match tree.multi(&ops).await {
        Ok(_) => Ok(()),
        Err(TreeError::Operation { source, .. }) => Err(*source),
        Err(error) => Err(error),
    }
}

/// Deletes a node with its lock directory and all contenders, who learn that the node is deleted.
///
/// `first` are operations of the same transaction, such as the check of a lock or the deletion of
/// the node's other children.
pub async fn delete_with_lock(
    tree: &Arc<dyn Tree>,
    node: &TreePath,
    first: &[Op],
) -> Result<(), TreeError> {
    let directory = lock_path(node)?;
    for _ in 0..DELETE_ATTEMPTS {
        let mut ops = first.to_vec();
        match contenders(tree, &directory).await {
            Ok(names) => {
                for name in names {
                    ops.push(Op::delete(directory.join(&name)?));
                }
                ops.push(Op::delete(directory.clone()));
            }
            Err(TreeError::NoNode(_)) => {}
            Err(error) => return Err(error),
        }
        ops.push(Op::delete(node.clone()));
        match tree.multi(&ops).await {
            Ok(_) => return Ok(()),
            Err(TreeError::Operation { index, source }) => {
                let of_lock = source_path(&source).is_some_and(|path| path.is_within(&directory));
                // A contender came or left meanwhile.
                if index < first.len() || !of_lock {
                    return Err(*source);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Err(TreeError::NotEmpty(directory))
}

fn source_path(error: &TreeError) -> Option<&TreePath> {
    if let TreeError::NoNode(path) | TreeError::NotEmpty(path) = error {
        return Some(path);
    }
    None
}

/// The names of all contenders, by their numbers: the first one holds the lock.
pub(super) async fn contenders(
    tree: &Arc<dyn Tree>,
    directory: &TreePath,
) -> Result<Vec<String>, TreeError> {
    let names = tree.children(directory).await?;
    let numbered = names
        .into_iter()
        .filter_map(|name| Some((sequence_of(&name)?, name)));
    let mut numbered: Vec<(u32, String)> = numbered.collect();
    numbered.sort();
    Ok(numbered.into_iter().map(|(_, name)| name).collect())
}

/// Whether a node is a contender for a lock, by its path.
pub(super) fn is_contender(path: &TreePath) -> bool {
    let parent = path.parent();
    parent.is_some_and(|parent| is_lock(&parent)) && sequence_of(path.name()).is_some()
}

/// Whether a node has contenders as its sequential children, by its path.
pub(super) fn is_lock(path: &TreePath) -> bool {
    path.name() == DIRECTORY
}

/// Whether somebody holds the lock of a node. It writes nothing.
pub async fn is_locked(tree: &Arc<dyn Tree>, node: &TreePath) -> Result<bool, TreeError> {
    match contenders(tree, &lock_path(node)?).await {
        Ok(names) => Ok(!names.is_empty()),
        Err(TreeError::NoNode(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The holder of a node's lock.
pub async fn lock_holder(
    tree: &Arc<dyn Tree>,
    node: &TreePath,
) -> Result<Option<LockHolder>, TreeError> {
    let directory = lock_path(node)?;
    let names = match contenders(tree, &directory).await {
        Ok(names) => names,
        Err(TreeError::NoNode(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let Some(first) = names.first() else {
        return Ok(None);
    };
    match tree.get(&directory.join(first)?).await {
        Ok(contender) => Ok(Some(LockHolder {
            holder: String::from_utf8_lossy(&contender.data).into_owned(),
            number: contender.stat.created_by,
            n_waiting: names.len() - 1,
        })),
        Err(TreeError::NoNode(_)) => Ok(None),
        Err(error) => Err(error),
    }
}
