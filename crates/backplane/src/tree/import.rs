//! Imports an export into a tree. Running it again after a failure goes on.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt, TryStreamExt};

use super::error::TreeError;
use super::export::ExportedNode;
use super::node::{Lifetime, Op};
use super::path::TreePath;
use super::walk::create_parents;
use super::{MAX_DATA_BYTES, Tree};

/// Calls at once.
const CALLS_AT_ONCE: usize = 64;
/// A sequence counter is raised by nodes that are created and deleted at once, this many in one
/// transaction.
const RAISED_AT_ONCE: u32 = 200;
/// A counter that is further behind is left alone: each number costs two operations.
const MAX_RAISED: u32 = 200_000;
/// Conflicts that an error names.
const NAMED_CONFLICTS: usize = 10;

#[derive(Clone, Copy, Debug, Default)]
pub struct ImportOptions {
    /// Replace the data of nodes that differ.
    pub overwrites: bool,
    /// Compare only.
    pub is_dry: bool,
}

/// The result of an import, or of its dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportSummary {
    pub n_created: usize,
    pub n_unchanged: usize,
    pub n_overwritten: usize,
    /// Nodes whose sequence counter was raised.
    pub n_raised: usize,
    /// Nodes whose counter is too far behind.
    pub not_raised: Vec<TreePath>,
}

#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("{n_nodes} nodes exist with other data: {}", named.join(", "))]
    Conflicts { n_nodes: usize, named: Vec<String> },
    #[error("node {path}: {problem}")]
    Invalid { path: TreePath, problem: String },
    #[error(transparent)]
    Tree(#[from] TreeError),
}

/// A node to import, and the tree's data for it now.
struct Compared<'a> {
    node: &'a ExportedNode,
    data: Vec<u8>,
    current: Option<(Vec<u8>, u32)>,
}

impl Compared<'_> {
    fn differs(&self) -> bool {
        let current = self.current.as_ref();
        current.is_some_and(|(current, _)| *current != self.data)
    }
}

/// Writes all nodes, or, if nodes with other data exist and may not be overwritten, none.
///
/// Versions begin again at 0: they count the changes in this tree.
pub async fn import(
    tree: &Arc<dyn Tree>,
    nodes: &[ExportedNode],
    options: ImportOptions,
) -> Result<ImportSummary, ImportError> {
    let compared = compare(tree, nodes).await?;
    let conflicts: Vec<&Compared<'_>> = compared.iter().filter(|node| node.differs()).collect();
    if !conflicts.is_empty() && !options.overwrites {
        let paths = conflicts.iter().map(|node| node.node.path.to_string());
        return Err(ImportError::Conflicts {
            n_nodes: conflicts.len(),
            named: paths.take(NAMED_CONFLICTS).collect(),
        });
    }
    let n_created = compared
        .iter()
        .filter(|node| node.current.is_none())
        .count();
    let mut summary = ImportSummary {
        n_created,
        n_unchanged: compared.len() - n_created - conflicts.len(),
        n_overwritten: conflicts.len(),
        ..ImportSummary::default()
    };
    if !options.is_dry {
        write(tree, &compared).await?;
    }
    raise_counters(tree, &compared, options.is_dry, &mut summary).await?;
    Ok(summary)
}

async fn compare<'a>(
    tree: &Arc<dyn Tree>,
    nodes: &'a [ExportedNode],
) -> Result<Vec<Compared<'a>>, ImportError> {
    let reads = nodes.iter().map(|node| compare_one(tree, node));
    stream::iter(reads)
        .buffered(CALLS_AT_ONCE)
        .try_collect()
        .await
}

async fn compare_one<'a>(
    tree: &Arc<dyn Tree>,
    node: &'a ExportedNode,
) -> Result<Compared<'a>, ImportError> {
    let invalid = |problem: String| ImportError::Invalid {
        path: node.path.clone(),
        problem,
    };
    let data = node.data().map_err(invalid)?;
    if data.len() > MAX_DATA_BYTES {
        let (path, size_bytes) = (node.path.clone(), data.len());
        return Err(TreeError::TooLarge { path, size_bytes }.into());
    }
    let current = match tree.get(&node.path).await {
        Ok(current) if current.stat.lifetime() == Lifetime::Ephemeral => {
            return Err(invalid(
                "an ephemeral node of a running process is in its place".to_owned(),
            ));
        }
        Ok(current) => Some((current.data, current.stat.next_sequence)),
        Err(TreeError::NoNode(_)) => None,
        Err(error) => return Err(error.into()),
    };
    Ok(Compared {
        node,
        data,
        current,
    })
}

/// Parents before their children: level by level.
async fn write(tree: &Arc<dyn Tree>, compared: &[Compared<'_>]) -> Result<(), TreeError> {
    let mut levels: BTreeMap<usize, Vec<&Compared<'_>>> = BTreeMap::new();
    for node in compared {
        levels.entry(node.node.path.depth()).or_default().push(node);
    }
    for level in levels.into_values() {
        let writes = level.into_iter().map(|node| write_one(tree, node));
        let mut writes = stream::iter(writes).buffered(CALLS_AT_ONCE);
        while writes.try_next().await?.is_some() {}
    }
    Ok(())
}

async fn write_one(tree: &Arc<dyn Tree>, node: &Compared<'_>) -> Result<(), TreeError> {
    let path = &node.node.path;
    if node.differs() {
        return tree.set(path, &node.data, None).await.map(drop);
    }
    if node.current.is_some() {
        return Ok(());
    }
    match tree.create(path, &node.data, Lifetime::Persistent).await {
        Ok(_) => Ok(()),
        // The document may lack parents.
        Err(TreeError::NoNode(_)) => {
            create_parents(tree, path).await?;
            tree.create(path, &node.data, Lifetime::Persistent)
                .await
                .map(drop)
        }
        Err(error) => Err(error),
    }
}

async fn raise_counters(
    tree: &Arc<dyn Tree>,
    compared: &[Compared<'_>],
    is_dry: bool,
    summary: &mut ImportSummary,
) -> Result<(), TreeError> {
    for node in compared.iter().filter(|node| node.node.next_sequence > 0) {
        let path = &node.node.path;
        let current = if is_dry {
            node.current.as_ref().map_or(0, |(_, next)| *next)
        } else {
            let stat = tree.exists(path).await?;
            stat.map_or(u32::MAX, |stat| stat.next_sequence)
        };
        let behind = node.node.next_sequence.saturating_sub(current);
        if behind > MAX_RAISED {
            summary.not_raised.push(path.clone());
        } else if behind > 0 {
            summary.n_raised += 1;
            if !is_dry {
                raise(tree, path, behind).await?;
            }
        }
    }
    Ok(())
}

async fn raise(tree: &Arc<dyn Tree>, parent: &TreePath, mut behind: u32) -> Result<(), TreeError> {
    let probe = parent.join("sequence-of-import")?;
    while behind > 0 {
        let n_now = behind.min(RAISED_AT_ONCE);
        let pairs =
            (0..n_now).flat_map(|_| [Op::create(probe.clone(), ""), Op::delete(probe.clone())]);
        let ops: Vec<Op> = pairs.collect();
        tree.multi(&ops).await?;
        behind -= n_now;
    }
    Ok(())
}
