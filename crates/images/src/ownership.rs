//! Whose tree this is: servers of one database use it.

use std::sync::Arc;

use backplane::tree::{Lifetime, Tree, TreeError, create_parents};

use crate::paths::Place;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeOwnership {
    Ours,
    /// The id of another database, or why that cannot be read.
    Other(String),
}

/// Writes this id of a database into a tree that has none, and reads whose it is.
pub async fn claim_tree(tree: &Arc<dyn Tree>, ours: &str) -> Result<TreeOwnership, TreeError> {
    let path = Place::Database.path()?;
    create_parents(tree, &path).await?;
    match tree
        .create(&path, ours.as_bytes(), Lifetime::Persistent)
        .await
    {
        Ok(_) => return Ok(TreeOwnership::Ours),
        Err(TreeError::NodeExists(_)) => {}
        Err(error) => return Err(error),
    }
    let node = tree.get(&path).await?;
    Ok(match node.forged {
        Some(problem) => TreeOwnership::Other(format!("that node {path} names, but {problem}")),
        None if node.data == ours.as_bytes() => TreeOwnership::Ours,
        None => TreeOwnership::Other(String::from_utf8_lossy(&node.data).into_owned()),
    })
}

/// Lets a database have a tree that was another's.
pub async fn adopt_tree(tree: &Arc<dyn Tree>, ours: &str) -> Result<(), TreeError> {
    if claim_tree(tree, ours).await? == TreeOwnership::Ours {
        return Ok(());
    }
    let path = Place::Database.path()?;
    tree.set(&path, ours.as_bytes(), None).await.map(drop)
}
