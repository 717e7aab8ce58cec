//! Nodes: their data, their counters, and the operations on them.

use domain::time::Timestamp;

use super::MAX_DATA_BYTES;
use super::error::TreeError;
use super::path::TreePath;

/// A sequential name ends in this many digits.
pub(crate) const SEQUENCE_DIGITS: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lifetime {
    /// Until it is deleted.
    Persistent,
    /// Until it is deleted, or the session that created it ends. It has no children.
    Ephemeral,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Empty if it is not to be trusted.
    pub data: Vec<u8>,
    pub stat: Stat,
    /// Why the data is not to be trusted, in a tree whose nodes carry seals.
    pub forged: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The number of the change that created the node. It grows with every change of the tree.
    pub created_by: i64,
    pub created: Timestamp,
    /// When the data last changed.
    pub changed: Timestamp,
    /// Number of changes of the data.
    pub version: i32,
    pub n_children: u32,
    /// The number of the next sequential child: how many children were ever created.
    pub next_sequence: u32,
    pub size_bytes: u32,
    /// The session whose end deletes the node; `None` for persistent nodes.
    pub owner: Option<i64>,
}

impl Stat {
    pub fn lifetime(&self) -> Lifetime {
        match self.owner {
            Some(_) => Lifetime::Ephemeral,
            None => Lifetime::Persistent,
        }
    }
}

/// An operation of a `multi`. Versions are optional: `None` accepts each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Create {
        path: TreePath,
        data: Vec<u8>,
        lifetime: Lifetime,
    },
    CreateSequential {
        parent: TreePath,
        prefix: String,
        data: Vec<u8>,
        lifetime: Lifetime,
    },
    Set {
        path: TreePath,
        data: Vec<u8>,
        expected: Option<i32>,
    },
    Delete {
        path: TreePath,
        expected: Option<i32>,
    },
    /// Fails unless the node exists and has this version.
    Check {
        path: TreePath,
        expected: Option<i32>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpResult {
    Created(TreePath),
    Set(Stat),
    Deleted,
    Checked,
}

impl Op {
    pub fn create(path: TreePath, data: impl Into<Vec<u8>>) -> Self {
        let (data, lifetime) = (data.into(), Lifetime::Persistent);
        Self::Create {
            path,
            data,
            lifetime,
        }
    }

    pub fn delete(path: TreePath) -> Self {
        let expected = None;
        Self::Delete { path, expected }
    }

    pub fn path(&self) -> &TreePath {
        match self {
            Self::Create { path, .. }
            | Self::Set { path, .. }
            | Self::Delete { path, .. }
            | Self::Check { path, .. } => path,
            Self::CreateSequential { parent, .. } => parent,
        }
    }

    pub(crate) fn size_bytes(&self) -> usize {
        match self {
            Self::Create { data, .. }
            | Self::Set { data, .. }
            | Self::CreateSequential { data, .. } => data.len(),
            Self::Delete { .. } | Self::Check { .. } => 0,
        }
    }

    /// Rules that need no look at the tree.
    pub(crate) fn check(&self) -> Result<(), TreeError> {
        check_size(self.path(), self.size_bytes())?;
        match self {
            Self::Create { path, .. } => check_not_root(path, "created"),
            Self::Delete { path, .. } => check_not_root(path, "deleted"),
            Self::CreateSequential { parent, prefix, .. } => {
                sequential_path(parent, prefix, i32::MAX.unsigned_abs()).map(drop)
            }
            Self::Set { .. } | Self::Check { .. } => Ok(()),
        }
    }
}

pub(crate) fn check_size(path: &TreePath, size_bytes: usize) -> Result<(), TreeError> {
    if size_bytes > MAX_DATA_BYTES {
        let path = path.clone();
        return Err(TreeError::TooLarge { path, size_bytes });
    }
    Ok(())
}

pub(crate) fn check_not_root(path: &TreePath, what: &'static str) -> Result<(), TreeError> {
    if path.is_root() {
        return Err(TreeError::Root(what));
    }
    Ok(())
}

/// The rules of a `multi` that need no look at the tree: of each operation, and their number and
/// size together.
pub(crate) fn check_ops(ops: &[Op]) -> Result<(), TreeError> {
    if ops.len() > super::MAX_OPS {
        return Err(TreeError::TooManyOps(ops.len()));
    }
    for (index, op) in ops.iter().enumerate() {
        op.check().map_err(|source| source.of_op(index))?;
    }
    // The paths and the access lists are part of the same message.
    let overhead = |op: &Op| op.path().as_str().len() + 200;
    let size_bytes: usize = ops.iter().map(|op| op.size_bytes() + overhead(op)).sum();
    if ops.len() > 1 && size_bytes > MAX_DATA_BYTES {
        return Err(TreeError::MultiTooLarge(size_bytes));
    }
    Ok(())
}

/// The path of a sequential node.
pub(crate) fn sequential_path(
    parent: &TreePath,
    prefix: &str,
    number: u32,
) -> Result<TreePath, TreeError> {
    if parent.is_root() && prefix.is_empty() {
        return Err(TreeError::Root(
            "the parent of a sequential node without a prefix",
        ));
    }
    let name = format!("{prefix}{number:0SEQUENCE_DIGITS$}");
    Ok(parent.join(&name)?)
}

/// The path of a sequential node without its number.
pub(crate) fn unnumbered_path(parent: &TreePath, prefix: &str) -> String {
    if parent.is_root() {
        format!("/{prefix}")
    } else {
        format!("{parent}/{prefix}")
    }
}

/// The number at the end of a sequential name.
pub(crate) fn sequence_of(name: &str) -> Option<u32> {
    let start = name.len().checked_sub(SEQUENCE_DIGITS)?;
    let digits = name.get(start..)?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}
